"""Predictors: what remains of a fitted family. They know no training, and are what is saved and loaded."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from candid.families.axes import for_each_gp
from candid.families.means import Mean, mean_from_spec
from candid.families.squares import SignedSquares
from candid.kernels import Kernel, kernel_from_spec
from candid.marginal import Marginal

__all__ = ["BasisPredictor", "Joint", "Predictor"]

# What describes a basis predictor.
PARTS = {"type", "kernel", "mean", "points", "coefficients", "explained"}


@dataclass(frozen=True)
class Joint:
    """Joint normal of the latent function at several rows: mean (row, output), covariance (output, row, row)."""

    mean: Float[Tensor, "*chains n p"]
    covariance: Float[Tensor, "*chains p n n"]


class Predictor(nn.Module, ABC):
    """Latent predictions at new inputs; differentiable with respect to them."""

    #: How many kernel functions a row is compared with; sets how many rows fit into memory at once.
    n_points: int

    @abstractmethod
    def marginal(self, x: Float[Tensor, "*#chains n d"], mean_only: bool = False) -> Marginal:
        """Marginals of the rows of ``x``.

        Only training needs the parts of the variance apart: here ``residual`` is all of it, and ``spread`` is zero.
        With ``mean_only``, neither is computed, and both are zero.
        """

    @abstractmethod
    def joint(self, x: Float[Tensor, "*#chains n d"]) -> Joint:
        """Mean and covariance of all rows of ``x`` together."""

    @abstractmethod
    def to_spec(self) -> dict[str, Any]:
        """A JSON-able description, from which everything but the tensors can be rebuilt."""


class BasisPredictor(Predictor):
    r"""Predictions from kernel functions at some points: inducing points, or the training rows of an exact GP.

    With k = unit kernel between the points and x, and the kernel's amplitude s:

        mean = mu(x) + kᵀ c        variance = s(k(x,x) − Σ_j sign_j (G k)_j²)

    The mean may have points of its own: it uses the first of all points, as many as there are coefficients, and the
    variance the last ones, as many as G has columns.

    Parameters
    ----------
    kernel, mean : Kernel, Mean
        As fitted; the predictor keeps them.
    points : Tensor
        All points, (\*chains, output, M, feature).
    coefficients : Tensor
        c, (\*chains, output, number of points of the mean).
    explained : SignedSquares
        G and the signs, batched as the points.
    """

    points: Tensor
    coefficients: Tensor

    def __init__(
        self,
        kernel: Kernel,
        mean: Mean,
        points: Float[Tensor, "*chains p m d"],
        coefficients: Float[Tensor, "*chains p c"],
        explained: SignedSquares,
    ) -> None:
        super().__init__()
        self.kernel, self.mean, self.explained = kernel, mean, explained
        self.register_buffer("points", points)
        self.register_buffer("coefficients", coefficients)
        self.n_points = points.shape[-2]
        self.requires_grad_(False)

    def marginal(self, x: Float[Tensor, "*#chains n d"], mean_only: bool = False) -> Marginal:
        amplitude, unit = self.kernel.split()
        rows = for_each_gp(x)
        cross = self._cross_of_mean(unit, rows)
        mean = self._mean(x, cross)
        nothing = mean.new_zeros(()).expand_as(mean)
        if mean_only:
            return Marginal(mean, nothing, nothing)
        # s(k(x,x) − Σ_j sign_j (G k)_j²)
        explained = self.explained.diagonal(self._cross_of_variance(unit, rows, cross))
        variance = (unit.diagonal(rows) - explained).clamp_min(0.0)
        if amplitude is not None:
            variance = amplitude.unsqueeze(-1) * variance
        return Marginal(mean, variance.mT, nothing)

    def joint(self, x: Float[Tensor, "*#chains n d"]) -> Joint:
        amplitude, unit = self.kernel.split()
        rows = for_each_gp(x)
        cross = self._cross_of_mean(unit, rows)
        # s(K_xx − (G K)ᵀ diag(sign) G K)
        covariance = unit(rows) - self.explained.matrix_of(self._cross_of_variance(unit, rows, cross))
        if amplitude is not None:
            covariance = covariance * amplitude[..., None, None]
        # Rounding leaves the two triangles a little apart, which matters where nearly everything cancels.
        return Joint(self._mean(x, cross), 0.5 * (covariance + covariance.mT))

    def _mean(self, x: Tensor, cross: Tensor) -> Tensor:
        # mu(x) + kᵀ c
        return self.mean(x) + (self.coefficients.unsqueeze(-2) @ cross).squeeze(-2).mT

    def _cross_of_mean(self, unit: Kernel, rows: Tensor) -> Tensor:
        return unit(self.points[..., : self.coefficients.shape[-1], :], rows)

    def _cross_of_variance(self, unit: Kernel, rows: Tensor, cross: Tensor) -> Tensor:
        """Kernel values at the last points, which are among those of the mean if it uses all points."""
        n_points = self.explained.matrix.shape[-1]
        if cross.shape[-2] == self.n_points:
            return cross[..., self.n_points - n_points :, :]
        return unit(self.points[..., self.n_points - n_points :, :], rows)

    def to_spec(self) -> dict[str, Any]:
        return {
            "type": "basis",
            "kernel": self.kernel.to_spec(),
            "mean": self.mean.to_spec(),
            "points": list(self.points.shape),
            "coefficients": list(self.coefficients.shape),
            "explained": self.explained.to_spec(),
        }

    @staticmethod
    def from_spec(spec: dict[str, Any], code: Any = None) -> BasisPredictor:
        if spec.keys() != PARTS:
            raise ValueError(f"a basis predictor has the parts {sorted(PARTS)}, but its description {sorted(spec)}")
        points, coefficients = (
            torch.empty([int(size) for size in spec[name]], device="meta") for name in ("points", "coefficients")
        )
        explained = SignedSquares.from_spec(spec["explained"])
        return BasisPredictor(
            kernel_from_spec(spec["kernel"], code), mean_from_spec(spec["mean"]), points, coefficients, explained
        )
