"""Predictions of a network with dropout: each pass is one thinned network, and the passes are sites of a mixture."""

from __future__ import annotations

import math
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from candid.families.headed import HeadedNetwork
from candid.families.predictor import Joint, Predictor
from candid.marginal import Marginal

__all__ = ["DropoutPredictor"]

# What describes a predictor with dropout.
PARTS = {"type", "network", "masks"}


class DropoutPredictor(Predictor):
    """Equally likely functions, each of them the same network with some of its hidden units left out.

    Parameters
    ----------
    network : HeadedNetwork
        As fitted; the predictor keeps it.
    masks : Tensor
        Factors of the hidden units, (pass, unit).
    """

    masks: Tensor

    def __init__(self, network: HeadedNetwork, masks: Float[Tensor, "s units"]) -> None:
        super().__init__()
        self.network = network
        self.register_buffer("masks", masks)
        # A row takes up the widest layer of each pass.
        self.n_points = len(masks) * max(network.hidden)
        self.requires_grad_(False)

    @property
    def dtype(self) -> torch.dtype:
        return self.masks.dtype

    def marginal(self, x: Float[Tensor, "n d"], mean_only: bool = False) -> Marginal:
        """Sites are passes; a pass knows its own values for certain."""
        mean = self.network.passes(x, self.masks.unsqueeze(1))
        nothing = torch.zeros_like(mean)
        return Marginal(mean, nothing, nothing, self._log_weight())

    def joint(self, x: Float[Tensor, "n d"]) -> Joint:
        mean = self.network.passes(x, self.masks.unsqueeze(1))
        return Joint(mean, mean.new_zeros(1, mean.shape[-1], 1, 1), self._log_weight())

    def _log_weight(self) -> Tensor:
        return self.masks.new_full((len(self.masks), 1), -math.log(len(self.masks)))

    def to_spec(self) -> dict[str, Any]:
        return {"type": "dropout", "network": self.network.to_spec(), "masks": list(self.masks.shape)}

    @staticmethod
    def from_spec(spec: dict[str, Any], code: Any = None) -> DropoutPredictor:
        if spec.keys() != PARTS:
            raise ValueError(f"a dropout predictor has the parts {sorted(PARTS)}, but its description {sorted(spec)}")
        network = HeadedNetwork.from_spec(spec["network"], code)
        n_passes, n_units = (int(size) for size in spec["masks"])
        if n_passes < 1 or n_units != sum(network.hidden):
            raise ValueError(f"masks of {n_units} units do not fit a network with {sum(network.hidden)} hidden ones")
        return DropoutPredictor(network, torch.empty(n_passes, n_units, device="meta"))
