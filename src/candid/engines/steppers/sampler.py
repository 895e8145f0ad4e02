"""What steppers share that draw samples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor, nn

from candid.engines.steppers.base import Stepper
from candid.engines.steppers.vector import Vector

__all__ = ["Sampler"]


class Sampler(Stepper):
    """Parameters as one vector for each chain, and a memory of tensors that adapts until it is frozen."""

    samples = True
    joint = True

    def __init__(self, parameters: Sequence[nn.Parameter], lr: float) -> None:
        self.vector, self.rate, self.frozen = Vector(parameters), lr, False
        self.memory: dict[str, Tensor] = {}

    def set_rate(self, rate: float) -> None:
        self.rate = rate

    def sampled(self) -> Sequence[nn.Parameter]:
        return self.vector.parameters

    def freeze(self) -> None:
        self.frozen = True

    def state(self) -> dict[str, Any]:
        return {**super().state(), "frozen": self.frozen, "memory": self.memory}

    def restore(self, state: Mapping[str, Any]) -> None:
        super().restore(state)
        self.frozen, self.memory = bool(state["frozen"]), dict(state["memory"])
