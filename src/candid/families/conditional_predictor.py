"""Predictions whose mean and covariance have kernels of their own."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from candid.families.axes import for_each_gp
from candid.families.means import Mean, mean_from_spec
from candid.families.predictor import BasisPredictor, Joint
from candid.families.squares import SignedSquares
from candid.kernels import Embedding, Kernel, kernel_from_spec, unfold
from candid.kernels.bound import CrossCovariance, bind
from candid.linalg.triangular import inverse_of
from candid.marginal import Marginal

__all__ = ["ConditionalPredictor", "spread_squares"]

# What describes a conditional predictor.
PARTS = {"type", "kernel", "mean_kernel", "mean", "points", "coefficients", "explained", "spread"}


class ConditionalPredictor(BasisPredictor):
    r"""Predictions of decoupled conditionals.

    With k and q the unit kernels of covariance and mean between the points and x, and their amplitude s:

        mean = mu(x) + qᵀ c        variance = s(k(x,x) − ‖L_k⁻¹ k‖² + ‖H q‖²)

    Parameters
    ----------
    kernel, mean, points, coefficients
        As in :class:`~candid.families.predictor.BasisPredictor`, with the same points for mean and variance.
    mean_kernel : Kernel
        q, as fitted.
    explained, spread : SignedSquares
        L_k⁻¹ and H, batched as the points.
    """

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
        super().__init__(kernel, mean, points, coefficients, explained)
        self.mean_kernel, self.spread = mean_kernel, spread
        # Of two kernels
        self.n_points = 2 * points.shape[-2]
        self.requires_grad_(False)

    def marginal(self, x: Float[Tensor, "*#chains n d"], mean_only: bool = False) -> Marginal:
        derived, inputs = self._derived, for_each_gp(x)
        of_mean = derived.of_mean(inputs)
        mean = self._mean(x, self._latent(of_mean))
        nothing = torch.zeros_like(mean)
        if mean_only:
            return Marginal(mean, nothing, nothing)
        (rows,) = derived.embed(inputs)
        # s(k(x,x) − ‖L_k⁻¹ k‖² + ‖H q‖²)
        explained = self.explained.diagonal(derived.of_covariance(rows))
        variance = (derived.unit.diagonal(rows) - explained).clamp_min(0.0) + self.spread.diagonal(of_mean)
        if derived.amplitude is not None:
            variance = derived.amplitude.unsqueeze(-1) * variance
        return Marginal(mean, variance.mT, nothing)

    def joint(self, x: Float[Tensor, "*#chains n d"]) -> Joint:
        derived, inputs = self._derived, for_each_gp(x)
        of_mean = derived.of_mean(inputs)
        (rows,) = derived.embed(inputs)
        # s(K_xx − (L_k⁻¹ K)ᵀ L_k⁻¹ K + (H Q)ᵀ H Q)
        explained = self.explained.matrix_of(derived.of_covariance(rows))
        covariance = derived.unit(rows) - explained + self.spread.matrix_of(of_mean)
        if derived.amplitude is not None:
            covariance = covariance * derived.amplitude[..., None, None]
        # Rounding leaves the two triangles a little apart, which matters where nearly everything cancels.
        return Joint(self._mean(x, self._latent(of_mean)), 0.5 * (covariance + covariance.mT))

    @cached_property
    @torch.inference_mode(False)
    @torch.no_grad()
    def _derived(self) -> _Derived:  # pyright: ignore[reportIncompatibleVariableOverride]
        amplitude, unit = self.kernel.split()
        unit, embed = unfold(unit)
        own_unit, own_embed = unfold(self.mean_kernel)
        (points,), (own_points,) = embed(self.points), own_embed(self.points)
        of_mean = bind(own_unit, own_points)
        return _Derived(amplitude, unit, embed, bind(unit, points), lambda x: of_mean(*own_embed(x)))

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


@dataclass(frozen=True)
class _Derived:
    """What a conditional predictor needs of its kernels, derived once; never part of its state."""

    amplitude: Float[Tensor, "*chains p"] | None
    unit: Kernel  # of the covariance, without its networks
    embed: Embedding  # from inputs to what that kernel sees
    of_covariance: CrossCovariance  # k between the points and rows as that kernel sees them
    of_mean: CrossCovariance  # q between the points and inputs


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
