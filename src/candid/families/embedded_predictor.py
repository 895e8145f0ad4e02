"""A network in front of a predictor."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from candid.families.predictor import Joint, Predictor
from candid.kernels import Features, network_from_spec
from candid.marginal import Marginal

__all__ = ["EmbeddedPredictor"]

# What describes an embedded predictor.
PARTS = {"type", "network", "inner"}


class EmbeddedPredictor(Predictor):
    """Predictions of ``inner`` at the features of the inputs.

    Parameters
    ----------
    network : Features
        As fitted; the predictor keeps it.
    inner : Predictor
        Of features.
    """

    def __init__(self, network: Features, inner: Predictor) -> None:
        super().__init__()
        self.network, self.inner = network, inner
        self.n_points = inner.n_points
        self.requires_grad_(False)

    @property
    def dtype(self) -> torch.dtype:
        return self.inner.dtype

    def marginal(self, x: Float[Tensor, "*#chains n d"], mean_only: bool = False) -> Marginal:
        return self.inner.marginal(self.features(x), mean_only)

    def joint(self, x: Float[Tensor, "*#chains n d"]) -> Joint:
        return self.inner.joint(self.features(x))

    def features(self, x: Tensor) -> Tensor:
        """What the inner predictor sees of the inputs."""
        (features,) = self.network.settled(x)
        return features

    def to_spec(self) -> dict[str, Any]:
        return {"type": "embedded", "network": self.network.to_spec(), "inner": self.inner.to_spec()}

    @staticmethod
    def from_spec(spec: dict[str, Any], code: Any = None) -> EmbeddedPredictor:
        # The inner predictor may be of any kind, this one among them.
        from candid.families.rebuild import predictor_from_spec

        if spec.keys() != PARTS:
            raise ValueError(f"an embedded predictor has the parts {sorted(PARTS)}, but its description {sorted(spec)}")
        return EmbeddedPredictor(network_from_spec(spec["network"], code), predictor_from_spec(spec["inner"], code))
