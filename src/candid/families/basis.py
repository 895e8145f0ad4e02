"""Whitened kernel functions at fixed points, and the linear regression that a sparse model is in terms of them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from candid.families.axes import for_each_gp
from candid.kernels import Kernel
from candid.linalg import cholesky
from candid.linalg.triangular import inverse_of, solve_lower

__all__ = ["FixedBasis", "Regressors"]


class FixedBasis:
    """a(x) = L⁻¹ k(Z, x) with L Lᵀ = K_zz, factorised once; no gradient flows through it."""

    @torch.no_grad()
    def __init__(self, kernel: Kernel, points: Float[Tensor, "*batch m d"], jitter: Float[Tensor, "*batch"]) -> None:
        self.kernel, self.points = kernel, points.detach()
        self.lower = cholesky(kernel(self.points), jitter).lower

    def __call__(self, x: Float[Tensor, "*#chains n d"]) -> Tensor:
        """A = L⁻¹ K_zx for rows that the GPs share."""
        return self.whiten(self.kernel(self.points, for_each_gp(x)))

    def whiten(self, cross: Float[Tensor, "*#batch m n"]) -> Float[Tensor, "*#batch m n"]:
        """L⁻¹ K."""
        return solve_lower(self.lower, cross)

    def coefficients(self, weights: Float[Tensor, "*batch m"]) -> Float[Tensor, "*batch m"]:
        """L⁻ᵀ v, the coefficients of the kernel functions in aᵀv."""
        return torch.linalg.solve_triangular(self.lower.mT, weights.unsqueeze(-1), upper=True).squeeze(-1)

    def independence(self) -> Float[Tensor, "*batch m"]:
        """Share of k(z_j, z_j) that is left when the values at all other points are known."""
        # 1 / (K_zz⁻¹)_jj, and K_zz⁻¹ = L⁻ᵀL⁻¹
        left = inverse_of(self.lower).square().sum(-2).reciprocal()
        return left / self.kernel.diagonal(self.points)


@dataclass(frozen=True)
class Regressors:
    """A sparse model at some rows as a linear regression, with the kernel's amplitude included.

    The mean is mu + Φᵀw, where w ~ N(0, I) before the data; the variance is c + aᵀS a.
    """

    mean: Float[Tensor, "*batch j n"]  # Φ
    spread: Float[Tensor, "*batch m n"] | None  # A; None where these are the first rows of Φ
    residual: Float[Tensor, "*batch n"]  # c
