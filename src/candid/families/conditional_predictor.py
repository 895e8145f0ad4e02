"""Predictions whose mean and covariance have kernels of their own."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from candid.families.axes import for_each_gp
from candid.families.means import Mean, mean_from_spec
from candid.families.predictor import Joint, Predictor
from candid.families.squares import SignedSquares, inverse_of
from candid.kernels import Kernel, kernel_from_spec
from candid.marginal import Marginal

__all__ = ["ConditionalPredictor", "spread_squares"]

# What describes a conditional predictor.
PARTS = {"type", "kernel", "mean_kernel", "mean", "points", "coefficients", "explained", "spread"}


class ConditionalPredictor(Predictor):
    r"""Predictions of decoupled conditionals.

    With k and q the unit kernels of covariance and mean between the points and x, and their amplitude s:

        mean = mu(x) + qᵀ c        variance = s(k(x,x) − ‖L_k⁻¹ k‖² + ‖H q‖²)

    Parameters
    ----------
    kernel, mean_kernel, mean : Kernel, Kernel, Mean
        As fitted; the predictor keeps them.
    points : Tensor
        (\*chains, output, M, feature).
    coefficients : Tensor
        c, (\*chains, output, M).
    explained, spread : SignedSquares
        L_k⁻¹ and H, batched as the points.
    """

    points: Tensor
    coefficients: Tensor

    def __init__(
        self,
        kernel: Kernel,
        mean_kernel: Kernel,
        mean: Mean,
        points: Float[Tensor, "*chains p m d"],
        coefficients: Float[Tensor, "*chains p m"],
        explained: SignedSquares,
        spread: SignedSquares,
    ) -> None:
        super().__init__()
        self.kernel, self.mean_kernel, self.mean = kernel, mean_kernel, mean
        self.explained, self.spread = explained, spread
        self.register_buffer("points", points)
        self.register_buffer("coefficients", coefficients)
        # Of two kernels
        self.n_points = 2 * points.shape[-2]
        self.requires_grad_(False)

    def marginal(self, x: Float[Tensor, "*#chains n d"], mean_only: bool = False) -> Marginal:
        rows = for_each_gp(x)
        of_mean = self.mean_kernel(self.points, rows)
        mean = self._mean(x, of_mean)
        nothing = torch.zeros_like(mean)
        if mean_only:
            return Marginal(mean, nothing, nothing)
        amplitude, unit = self.kernel.split()
        # s(k(x,x) − ‖L_k⁻¹ k‖² + ‖H q‖²)
        residual = (unit.diagonal(rows) - self.explained.diagonal(unit(self.points, rows))).clamp_min(0.0)
        variance = residual + self.spread.diagonal(of_mean)
        if amplitude is not None:
            variance = amplitude.unsqueeze(-1) * variance
        return Marginal(mean, variance.mT, nothing)

    def joint(self, x: Float[Tensor, "*#chains n d"]) -> Joint:
        rows = for_each_gp(x)
        of_mean = self.mean_kernel(self.points, rows)
        amplitude, unit = self.kernel.split()
        # s(K_xx − (L_k⁻¹ K)ᵀ L_k⁻¹ K + (H Q)ᵀ H Q)
        explained, spread = self.explained.matrix_of(unit(self.points, rows)), self.spread.matrix_of(of_mean)
        covariance = unit(rows) - explained + spread
        if amplitude is not None:
            covariance = covariance * amplitude[..., None, None]
        # Rounding leaves the two triangles a little apart, which matters where nearly everything cancels.
        return Joint(self._mean(x, of_mean), 0.5 * (covariance + covariance.mT))

    def _mean(self, x: Tensor, of_mean: Tensor) -> Tensor:
        # mu(x) + qᵀ c
        return self.mean(x) + (self.coefficients.unsqueeze(-2) @ of_mean).squeeze(-2).mT

    def to_spec(self) -> dict[str, Any]:
        return {
            "type": "conditional",
            "kernel": self.kernel.to_spec(),
            "mean_kernel": self.mean_kernel.to_spec(),
            "mean": self.mean.to_spec(),
            "points": list(self.points.shape),
            "coefficients": list(self.coefficients.shape),
            "explained": self.explained.to_spec(),
            "spread": self.spread.to_spec(),
        }

    @staticmethod
    def from_spec(spec: dict[str, Any], code: Any = None) -> ConditionalPredictor:
        if spec.keys() != PARTS:
            raise ValueError(
                f"a conditional predictor has the parts {sorted(PARTS)}, but its description {sorted(spec)}"
            )
        kernel, mean_kernel = (kernel_from_spec(spec[name], code) for name in ("kernel", "mean_kernel"))
        points, coefficients = (
            torch.empty([int(size) for size in spec[name]], device="meta") for name in ("points", "coefficients")
        )
        explained, spread = (SignedSquares.from_spec(spec[name]) for name in ("explained", "spread"))
        return ConditionalPredictor(
            kernel, mean_kernel, mean_from_spec(spec["mean"], code), points, coefficients, explained, spread
        )


def spread_squares(
    lower: Float[Tensor, "*batch m m"],
    root: Float[Tensor, "*batch m"] | Float[Tensor, "*batch m m"] | None,
    compact: bool,
) -> SignedSquares:
    """bᵀS b with b = L_q⁻¹ q and S = R Rᵀ, for ``root`` as :meth:`candid.weights.Weights.root` gives it.

    All signs are the same, so H = RᵀL_q⁻¹ can be made a triangle, which takes a while; left out unless ``compact``.
    """
    whitener = inverse_of(lower)
    size = whitener.shape[-1]
    if root is None:
        # A sum of no squares
        batch = whitener.shape[:-2]
        return SignedSquares(whitener.new_empty(*batch, 0, size), whitener.new_empty(*batch, 0), offset=size - 1)
    ones = whitener.new_ones(whitener.shape[:-1])
    if root.dim() < whitener.dim():
        return SignedSquares(root.unsqueeze(-1) * whitener, ones, offset=0)
    turned = root.mT @ whitener
    return SignedSquares.shortened(turned, ones) if compact else SignedSquares(turned, ones, offset=size - 1)
