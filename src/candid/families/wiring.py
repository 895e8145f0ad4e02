"""What each layer of a deep GP sees: the layer below, the inputs, or both; its kernel and its mean function apart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

__all__ = ["TOPOLOGIES", "Wiring"]

BELOW, INPUTS, BOTH = "below", "inputs", "both"
#: What the kernel and the mean function of a middle layer see.
TOPOLOGIES = {
    "chain": (BELOW, BELOW),
    "input_mean": (BELOW, INPUTS),
    "both_mean": (BELOW, BOTH),
    "both": (BOTH, BOTH),
}


@dataclass(frozen=True)
class Wiring:
    """The connections of a stack of layers.

    Attributes
    ----------
    n_layers : int
        With the last one.
    topology : {"chain", "input_mean", "both_mean", "both"}
        What a middle layer sees: the layer below it; the same, and its mean function the inputs; the same, and its mean
        function both; or both.
    skip : bool
        Whether the last layer sees the inputs besides the layer below it.
    """

    n_layers: int
    topology: str = "chain"
    skip: bool = False

    def __post_init__(self) -> None:
        if self.topology not in TOPOLOGIES:
            raise ValueError(f"unknown topology {self.topology!r}; choose one of {', '.join(TOPOLOGIES)}")

    def sees(self, layer: int) -> tuple[str, str]:
        """What kernel and mean function of a layer see."""
        if layer == 0:
            return INPUTS, INPUTS
        if layer == self.n_layers - 1:
            return (BOTH, BOTH) if self.skip else (BELOW, BELOW)
        return TOPOLOGIES[self.topology]

    def widths(self, layer: int, n_features: int, hidden: Sequence[int]) -> tuple[int, int]:
        """How many columns that is, with hidden layers of these widths."""
        below = hidden[layer - 1] if layer else 0
        columns = {BELOW: below, INPUTS: n_features, BOTH: below + n_features}
        kernel, mean = self.sees(layer)
        return columns[kernel], columns[mean]

    def inputs(
        self, layer: int, x: Float[Tensor, "*#chains n d"], below: Float[Tensor, "*#chains s n w"] | None
    ) -> tuple[Float[Tensor, "*#chains sn k"], Float[Tensor, "*#chains sn e"]]:
        """The inputs of kernel and mean function: all rows of the first site, then all of the second, …"""
        if below is None:
            return x, x
        kernel, mean = self.sees(layer)
        chosen = {kind: _columns(kind, x, below) for kind in {kernel, mean}}
        return chosen[kernel], chosen[mean]


def _columns(kind: str, x: Tensor, below: Tensor) -> Tensor:
    if kind != BELOW:
        spread = x.unsqueeze(-3).expand(*below.shape[:-1], x.shape[-1])
        below = spread if kind == INPUTS else torch.cat([below, spread], -1)
    return below.flatten(-3, -2)
