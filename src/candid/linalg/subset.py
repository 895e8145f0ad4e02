"""A normal variable given values of which only independent normal distributions are known, in many small groups.

For values u with prior N(0, K) and q(u) = N(m, diag(v)), and a variable whose covariances with them are k, with
b = K⁻¹k, α = K⁻¹m and W = K⁻¹:

    mean = kᵀα      explained = kᵀb      spread = Σ v b²      divergence = mᵀα + Σ v diag(W) + log det K

(twice the divergence KL(q‖p), but for terms without K). For gradients m̄, ē, s̄, d̄ of the four, with c = W(v∘b):

    k̄ = m̄α + 2ēb + 2s̄c          m̄ₘ = m̄b + 2d̄α          v̄ = s̄b² + d̄ diag(W)
    K̄ = −½m̄(bαᵀ + αbᵀ) − ēbbᵀ − s̄(bcᵀ + cbᵀ) − d̄(ααᵀ + W diag(v) W − W)

So nothing but products is left for the backward pass, and the factorisation is never differentiated.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from candid.linalg.autograd import first_order
from candid.linalg.cholesky import Factor, cholesky

__all__ = ["Inferred", "infer"]


class Inferred(NamedTuple):
    """What the values of each group say; see the head of the module."""

    mean: Float[Tensor, "*batch"]
    explained: Float[Tensor, "*batch"]
    spread: Float[Tensor, "*batch"]
    divergence: Float[Tensor, "*batch"]


def infer(
    covariance: Float[Tensor, "*batch k k"],
    cross: Float[Tensor, "*batch k"],
    mean: Float[Tensor, "*batch k"],
    variance: Float[Tensor, "*batch k"],
    jitter: float | Tensor = 0.0,
) -> tuple[Inferred, Factor]:
    """What independent values say of a variable, how far they are from their prior, and the factor of its covariance.

    Parameters
    ----------
    covariance : Tensor
        K, one matrix for each group.
    cross : Tensor
        k, covariances of the variable with the values.
    mean, variance : Tensor
        m and v.
    jitter : float or Tensor
        Share of the diagonal to start from; it counts as a constant in the gradient.
    """
    factor = cholesky(covariance.detach(), jitter)
    parts = _Infer.apply(covariance, cross, mean, variance, factor.lower)
    return Inferred(*parts), factor  # pyright: ignore[reportGeneralTypeIssues]


class _Infer(torch.autograd.Function):
    @staticmethod
    def forward(ctx, covariance: Tensor, cross: Tensor, mean: Tensor, variance: Tensor, lower: Tensor):
        # L⁻¹[k, m] and [b, α] = L⁻ᵀL⁻¹[k, m]: solves lose fewer digits than products with W
        whitened = torch.linalg.solve_triangular(lower, torch.stack([cross, mean], -1), upper=False)
        b, alpha = torch.linalg.solve_triangular(lower.mT, whitened, upper=True).unbind(-1)
        inverse = torch.cholesky_inverse(lower)
        ctx.save_for_backward(inverse, b, alpha, variance)
        features, rest = whitened.unbind(-1)
        trace = (variance * inverse.diagonal(dim1=-2, dim2=-1)).sum(-1)
        log_det = 2 * lower.diagonal(dim1=-2, dim2=-1).log().sum(-1)
        divergence = rest.square().sum(-1) + trace + log_det
        return (features * rest).sum(-1), features.square().sum(-1), (variance * b.square()).sum(-1), divergence

    @staticmethod
    @first_order
    def backward(ctx, *gradients: Tensor):
        inverse, b, alpha, variance = ctx.saved_tensors
        of_mean, of_explained, of_spread, of_divergence = (gradient.unsqueeze(-1) for gradient in gradients)
        # c = W(v∘b)
        c = (inverse @ (variance * b).unsqueeze(-1)).squeeze(-1)
        grad_cross = of_mean * alpha + 2 * of_explained * b + 2 * of_spread * c
        grad_mean = of_mean * b + 2 * of_divergence * alpha
        grad_variance = of_spread * b.square() + of_divergence * inverse.diagonal(dim1=-2, dim2=-1)
        grad_covariance = None
        if ctx.needs_input_grad[0]:
            # buᵀ + ubᵀ with u = −½(m̄α + ēb) − s̄c
            pull = -0.5 * (of_mean * alpha + of_explained * b) - of_spread * c
            pairs = torch.stack([b, pull, -of_divergence * alpha], -1) @ torch.stack([pull, b, alpha], -2)
            # d̄(W − W diag(v) W)
            scaled = of_divergence.unsqueeze(-1) * inverse
            grad_covariance = pairs + scaled - scaled @ (variance.unsqueeze(-1) * inverse)
        return grad_covariance, grad_cross, grad_mean, grad_variance, None
