"""Predictors: what remains of a fitted family. They know no training, and are what is saved and loaded."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from candid.families.axes import for_each_gp
from candid.families.means import Mean, mean_from_spec
from candid.families.one_row import OneRow
from candid.families.squares import SignedSquares
from candid.kernels import Embedding, Kernel, kernel_from_spec, unfold
from candid.kernels.bound import CrossCovariance, bind
from candid.marginal import Marginal

__all__ = ["BasisPredictor", "Joint", "Predictor"]

# What describes a basis predictor.
PARTS = {"type", "kernel", "mean", "points", "coefficients", "explained"}


@dataclass(frozen=True)
class Joint:
    """Joint normal of the latent function at several rows: mean (row, output), covariance (output, row, row).

    A mixture of such has sites as an axis before these; a covariance that is the same for all of them, or for all pairs
    of rows, may have axes of length one there. Where outputs depend on each other, ``cross`` has all covariances, and
    there are no sites.
    """

    mean: Float[Tensor, "*axes n p"]
    covariance: Float[Tensor, "*#axes p #n #n"]
    log_weight: Tensor | None = None  # of each site, (site, 1), as of a Marginal
    cross: Float[Tensor, "p n p n"] | None = None

    def mixed(self) -> Joint:
        """Mean and covariance of the mixture; without sites it is itself."""
        if self.log_weight is None:
            return self
        weight = self.log_weight.exp()[..., None]
        mean = (weight * self.mean).sum(-3, keepdim=True)
        # Σ ω C + Σ ω (μ − Σωμ)(μ − Σωμ)ᵀ
        deviation = (self.mean - mean).mT
        between = (weight * deviation).movedim(-3, -1) @ deviation.movedim(-3, -2)
        within = (weight.unsqueeze(-1) * self.covariance).sum(-4)
        return Joint(mean.squeeze(-3), within + between)


class Predictor(nn.Module, ABC):
    """Latent predictions at new inputs; differentiable with respect to them."""

    #: How many kernel functions a row is compared with; sets how many rows fit into memory at once.
    n_points: int

    @property
    def dtype(self) -> torch.dtype:
        """What predictions are computed in."""
        return next(self.buffers()).dtype

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
        As fitted; the predictor keeps them, and what it has derived from the kernel: do not change its values.
    points : Tensor
        All points, (\*chains, output, M, feature).
    coefficients : Tensor
        c, (\*chains, output, number of points of the mean); there may be several where the rest is shared.
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
        coefficients: Float[Tensor, "*draws p c"],
        explained: SignedSquares,
    ) -> None:
        super().__init__()
        self.kernel, self.mean, self.explained = kernel, mean, explained
        self.register_buffer("points", points)
        self.register_buffer("coefficients", coefficients)
        self.n_points = points.shape[-2]
        self.requires_grad_(False)

    def marginal(
        self,
        x: Float[Tensor, "*#chains n d"],
        mean_only: bool = False,
        mean_x: Float[Tensor, "*#chains n e"] | None = None,
    ) -> Marginal:
        """See :meth:`Predictor.marginal`; the mean function may see inputs of its own, ``mean_x``."""
        derived = self._derived
        (rows,) = derived.embed(for_each_gp(x))
        latent, variance = self._unit_moments(rows, mean_only)
        mean = self._mean(x if mean_x is None else mean_x, latent)
        nothing = torch.zeros_like(mean)
        if variance is None:
            return Marginal(mean, nothing, nothing)
        if derived.amplitude is not None:
            variance = derived.amplitude.unsqueeze(-1) * variance
        return Marginal(mean, variance.mT, nothing)

    def joint(self, x: Float[Tensor, "*#chains n d"], mean_x: Float[Tensor, "*#chains n e"] | None = None) -> Joint:
        """See :meth:`Predictor.joint`; the mean function may see inputs of its own, ``mean_x``."""
        derived = self._derived
        (rows,) = derived.embed(for_each_gp(x))
        cross = derived.at_points_of_mean(rows)
        # s(K_xx − (G K)ᵀ diag(sign) G K)
        covariance = derived.unit(rows) - self.explained.matrix_of(self._cross_of_variance(rows, cross))
        if derived.amplitude is not None:
            covariance = covariance * derived.amplitude[..., None, None]
        # Rounding leaves the two triangles a little apart, which matters where nearly everything cancels.
        mean = self._mean(x if mean_x is None else mean_x, self._latent(cross))
        return Joint(mean, 0.5 * (covariance + covariance.mT))

    def _unit_moments(self, rows: Tensor, mean_only: bool) -> tuple[Tensor, Tensor | None]:
        """kᵀ c and, unless ``mean_only``, the variance before it is multiplied by s (…, output, row)."""
        derived = self._derived
        if derived.one_row is not None and derived.one_row.takes(rows):
            moments = derived.one_row(rows, mean_only).view(-1, 1, 1)
            return moments[0], None if mean_only else moments[1]
        cross = derived.at_points_of_mean(rows)
        if mean_only:
            return self._latent(cross), None
        # k(x,x) − Σ_j sign_j (G k)_j²
        explained = self.explained.diagonal(self._cross_of_variance(rows, cross))
        return self._latent(cross), (derived.unit.diagonal(rows) - explained).clamp_min(0.0)

    def _mean(self, x: Tensor, latent: Tensor) -> Tensor:
        # mu(x) + kᵀ c
        return self.mean.plus(x, latent.mT)

    def _latent(self, cross: Tensor) -> Tensor:
        # kᵀ c
        return (self.coefficients.unsqueeze(-2) @ cross).squeeze(-2)

    def _cross_of_variance(self, rows: Tensor, cross: Tensor) -> Tensor:
        """Kernel values at the last points, which are among those of the mean if it uses all points."""
        if cross.shape[-2] == self.n_points:
            return cross[..., self._derived.first_of_variance :, :]
        return self._derived.at_points_of_variance(rows)

    @property
    def dtype(self) -> torch.dtype:
        return self.points.dtype

    @cached_property
    @torch.inference_mode(False)
    @torch.no_grad()
    def _derived(self) -> _Derived:
        amplitude, unit = self.kernel.split()
        unit, embed = unfold(unit)
        (points,) = embed(self.points)
        n_mean, first_of_variance = self.coefficients.shape[-1], self.n_points - self.explained.matrix.shape[-1]
        at_mean, at_variance = (
            bind(unit, points[..., some, :]) for some in (slice(n_mean), slice(first_of_variance, None))
        )
        one_row = OneRow.of_basis(unit, points, self.coefficients, self.explained)
        return _Derived(amplitude, unit, embed, at_mean, at_variance, first_of_variance, one_row)

    def _forget(self) -> None:
        vars(self).pop("_derived", None)

    def _apply(self, *args: Any, **kwargs: Any) -> BasisPredictor:
        """Whatever moves tensors to another device or dtype comes along here."""
        self._forget()
        return super()._apply(*args, **kwargs)

    def _load_from_state_dict(self, *args: Any, **kwargs: Any) -> None:
        self._forget()
        super()._load_from_state_dict(*args, **kwargs)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_derived"}

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
            kernel_from_spec(spec["kernel"], code), mean_from_spec(spec["mean"], code), points, coefficients, explained
        )


@dataclass(frozen=True)
class _Derived:
    """What a basis predictor needs of its kernel, derived once; never part of its state."""

    amplitude: Float[Tensor, "*chains p"] | None
    unit: Kernel
    embed: Embedding
    at_points_of_mean: CrossCovariance
    at_points_of_variance: CrossCovariance
    first_of_variance: int
    one_row: OneRow | None
