"""Adam for what is optimised while inducing values are sampled.

References
----------
M. Havasi, J. M. Hernández-Lobato, J. J. Murillo-Fuentes, Inference in deep Gaussian processes using stochastic gradient
Hamiltonian Monte Carlo (2018): moving window Monte Carlo expectation maximisation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from candid.engines.moment import Moment
from candid.engines.steppers.adam import Adam
from candid.engines.steppers.base import Evaluate
from candid.engines.steppers.random_numbers import random_at
from candid.engines.steppers.vector import Vector

__all__ = ["WindowAdam"]


class WindowAdam(Adam):
    """Adam along gradients at one of the last 64 values of u, picked at random, instead of the present one."""

    needs_one_gradient = False
    joint = True
    #: Values of u that are remembered.
    window = 64

    def __init__(self, parameters: Sequence[nn.Parameter], lr: float, **options: float) -> None:
        super().__init__(parameters, lr, **options)
        self.memory: list[Tensor] = []

    def advance(self, evaluate: Evaluate) -> float:
        assert isinstance(evaluate, Moment)
        vector = Vector(evaluate.problem.family.weight_parameters())
        present = vector.values()
        self.memory = [*self.memory[1 - self.window :], present]
        chosen = torch.randint(len(self.memory), (), generator=random_at(-1 - evaluate.seed, evaluate.step))
        vector.assign(self.memory[int(chosen)])
        loss = evaluate()
        super().advance(evaluate)
        vector.assign(present)
        return loss

    def state(self) -> dict[str, Any]:
        return {**super().state(), "window": self.memory}

    def restore(self, state: Mapping[str, Any]) -> None:
        super().restore(state)
        self.memory = list(state["window"])
