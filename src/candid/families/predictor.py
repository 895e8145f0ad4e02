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
from candid.kernels import Kernel, kernel_from_spec
from candid.marginal import Marginal

__all__ = ["BasisPredictor", "Joint", "Predictor", "predictor_from_spec"]


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
        """Marginals of the rows of ``x``; ``mean_only`` leaves both variances at zero and does not compute them."""

    @abstractmethod
    def joint(self, x: Float[Tensor, "*#chains n d"]) -> Joint:
        """Mean and covariance of all rows of ``x`` together."""

    @abstractmethod
    def to_spec(self) -> dict[str, Any]:
        """A JSON-able description from which :func:`predictor_from_spec` rebuilds everything but the tensors."""


class BasisPredictor(Predictor):
    r"""Predictions from kernel functions at M points: inducing points, or the training rows of an exact GP.

    With k = unit kernel between the points and x, a = W k and the kernel's amplitude s (all cached):

        mean = mu(x) + kᵀ c        residual = s(k(x,x) − aᵀa)        spread = s ‖Rᵀ a‖²

    Parameters
    ----------
    kernel, mean : Kernel, Mean
        As fitted; the predictor keeps copies.
    points : Tensor
        Z, (\*chains, output, M, feature).
    coefficients : Tensor
        c, (\*chains, output, M).
    whitener : Tensor
        W = L⁻¹, (\*chains, output, M, M).
    root : Tensor or None
        R, as :meth:`candid.weights.Weights.root` gives it.
    """

    points: Tensor
    coefficients: Tensor
    whitener: Tensor
    root: Tensor | None

    def __init__(
        self,
        kernel: Kernel,
        mean: Mean,
        points: Float[Tensor, "*chains p m d"],
        coefficients: Float[Tensor, "*chains p m"],
        whitener: Float[Tensor, "*chains p m m"],
        root: Float[Tensor, "*chains p m"] | Float[Tensor, "*chains p m m"] | None,
    ) -> None:
        super().__init__()
        self.kernel, self.mean = kernel, mean
        self.register_buffer("points", points)
        self.register_buffer("coefficients", coefficients)
        self.register_buffer("whitener", whitener)
        self.register_buffer("root", root)
        self.n_points = points.shape[-2]
        self.requires_grad_(False)

    def marginal(self, x: Float[Tensor, "*#chains n d"], mean_only: bool = False) -> Marginal:
        amplitude, unit = self.kernel.split()
        rows = for_each_gp(x)
        cross = unit(self.points, rows)
        mean = self._mean(x, cross)
        if mean_only:
            nothing = mean.new_zeros(()).expand_as(mean)
            return Marginal(mean, nothing, nothing)
        features = self.whitener @ cross
        residual = (unit.diagonal(rows) - features.square().sum(-2)).clamp_min(0.0)
        spread = self._root_times(features).square().sum(-2) if self.root is not None else torch.zeros_like(residual)
        if amplitude is not None:
            residual, spread = residual * amplitude.unsqueeze(-1), spread * amplitude.unsqueeze(-1)
        return Marginal(mean, residual.mT, spread.mT)

    def joint(self, x: Float[Tensor, "*#chains n d"]) -> Joint:
        amplitude, unit = self.kernel.split()
        rows = for_each_gp(x)
        cross = unit(self.points, rows)
        features = self.whitener @ cross
        # s(K_xx − AᵀA + AᵀRRᵀA)
        covariance = unit(rows) - features.mT @ features
        if self.root is not None:
            uncertain = self._root_times(features)
            covariance = covariance + uncertain.mT @ uncertain
        if amplitude is not None:
            covariance = covariance * amplitude[..., None, None]
        # Rounding leaves the two triangles a little apart, which matters where nearly everything cancels.
        return Joint(self._mean(x, cross), 0.5 * (covariance + covariance.mT))

    def _mean(self, x: Tensor, cross: Tensor) -> Tensor:
        # mu(x) + kᵀ c
        return self.mean(x) + (self.coefficients.unsqueeze(-2) @ cross).squeeze(-2).mT

    def _root_times(self, features: Tensor) -> Tensor:
        """Rᵀ A, where R may be kept as its diagonal."""
        assert self.root is not None
        diagonal = self.root.dim() == features.dim() - 1
        return self.root.unsqueeze(-1) * features if diagonal else self.root.mT @ features

    def to_spec(self) -> dict[str, Any]:
        return {
            "type": "basis",
            "kernel": self.kernel.to_spec(),
            "mean": self.mean.to_spec(),
            "points": list(self.points.shape),
            "root": None if self.root is None else list(self.root.shape),
        }

    @staticmethod
    def from_spec(spec: dict[str, Any]) -> BasisPredictor:
        *batch, n_points, n_features = (int(size) for size in spec["points"])

        def shaped(*sizes: int) -> Tensor:
            return torch.empty(*sizes, device="meta")

        return BasisPredictor(
            kernel_from_spec(spec["kernel"]),
            mean_from_spec(spec["mean"]),
            shaped(*batch, n_points, n_features),
            shaped(*batch, n_points),
            shaped(*batch, n_points, n_points),
            None if spec["root"] is None else shaped(*(int(size) for size in spec["root"])),
        )


def predictor_from_spec(spec: dict[str, Any]) -> Predictor:
    """Rebuild a predictor; its tensors are still to be loaded with ``load_state_dict(…, assign=True)``.

    Until then its own tensors take no memory, so a description of any size does no harm.
    """
    makers = {"basis": BasisPredictor.from_spec}
    if spec.get("type") not in makers:
        raise ValueError(f"unknown kind of predictor {spec.get('type')!r}")
    return makers[spec["type"]](spec)
