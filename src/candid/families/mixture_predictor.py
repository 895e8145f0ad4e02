"""Predictions of many models of one kind: equally likely components of a mixture."""

from __future__ import annotations

import math
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from candid.families.predictor import Joint, Predictor
from candid.marginal import Marginal

__all__ = ["MixturePredictor"]

# What describes a predictor of many models.
PARTS = {"type", "inner", "models"}


class MixturePredictor(Predictor):
    """Sites are the models of ``inner``, all of whose tensors have an axis of models in front.

    They are evaluated together, each with what it has cached: factors, coefficients. Where models have sites of their
    own, these are next to each other.

    Parameters
    ----------
    inner : Predictor
    n_models : int, optional
        By default, as many as ``inner`` has points for.
    """

    def __init__(self, inner: Predictor, n_models: int | None = None) -> None:
        super().__init__()
        self.inner = inner
        self.n_models = len(next(inner.buffers())) if n_models is None else n_models
        # A row is compared with the points of all models.
        self.n_points = self.n_models * inner.n_points
        self.requires_grad_(False)

    @property
    def dtype(self) -> torch.dtype:
        return self.inner.dtype

    def marginal(self, x: Float[Tensor, "n d"], mean_only: bool = False) -> Marginal:
        latent = self.inner.marginal(x, mean_only)
        mean, residual, spread = latent.mean, latent.residual, latent.spread
        if latent.log_weight is not None:
            mean, residual, spread = (part.flatten(0, 1) for part in (mean, residual, spread))
        return Marginal(mean, residual, spread, self._log_weight(latent))

    def joint(self, x: Float[Tensor, "n d"]) -> Joint:
        latent = self.inner.joint(x)
        mean, covariance = latent.mean, latent.covariance
        if latent.log_weight is not None:
            mean, covariance = mean.flatten(0, 1), covariance.flatten(0, 1)
        return Joint(mean, covariance, self._log_weight(latent))

    def _log_weight(self, latent: Marginal | Joint) -> Tensor:
        """Of all sites; all models count the same."""
        even = latent.mean.new_full((self.n_models, 1), -math.log(self.n_models))
        return even if latent.log_weight is None else (even.unsqueeze(-1) + latent.log_weight).flatten(0, 1)

    def to_spec(self) -> dict[str, Any]:
        return {"type": "mixture", "inner": self.inner.to_spec(), "models": self.n_models}

    @staticmethod
    def from_spec(spec: dict[str, Any], code: Any = None) -> MixturePredictor:
        # The inner predictor may be of any kind.
        from candid.families.rebuild import predictor_from_spec

        if spec.keys() != PARTS:
            raise ValueError(f"a mixture of models has the parts {sorted(PARTS)}, but its description {sorted(spec)}")
        inner, n_models = predictor_from_spec(spec["inner"], code), int(spec["models"])
        if n_models < 1 or any(len(buffer) != n_models for buffer in inner.buffers()):
            raise ValueError(f"a mixture of {n_models} models does not fit the tensors of its description")
        return MixturePredictor(inner, n_models)
