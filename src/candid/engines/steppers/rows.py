"""Adam for parameters of the size of the data, of which a step concerns some rows only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from candid.engines.steppers.base import Evaluate, Stepper

__all__ = ["RowAdam"]

# As in Adam: decay of the averages of gradients and of their squares, and what keeps a quotient of nothings finite.
DECAY, SQUARE_DECAY, DAMPING = 0.9, 0.999, 1e-8


class RowAdam(Stepper):
    """Adam (Kingma and Ba 2015) that leaves rows without a gradient alone, averages included.

    Gradients are sparse along the first axis. Each row counts its own steps, so a step costs as much as the rows that
    it moves, however many there are.
    """

    needs_one_gradient = True

    def __init__(self, parameters: Sequence[nn.Parameter], lr: float) -> None:
        self.parameters, self.rate = list(parameters), lr
        self.averages = [torch.zeros_like(parameter) for parameter in self.parameters]
        self.squares = [torch.zeros_like(parameter) for parameter in self.parameters]
        self.counts = [parameter.new_zeros(len(parameter)) for parameter in self.parameters]

    @torch.no_grad()
    def advance(self, evaluate: Evaluate) -> float:
        memory = zip(self.parameters, self.averages, self.squares, self.counts, strict=True)
        for parameter, average, square, count in memory:
            if parameter.grad is not None:
                self._move(parameter, parameter.grad.coalesce(), average, square, count)
        return float("nan")

    def _move(self, parameter: Tensor, gradient: Tensor, average: Tensor, square: Tensor, count: Tensor) -> None:
        rows, gradient = gradient.indices()[0], gradient.values()
        count[rows] += 1
        average[rows] = average[rows].lerp(gradient, 1 - DECAY)
        square[rows] = square[rows].lerp(gradient.square(), 1 - SQUARE_DECAY)
        # Averages that began at zero are too small by 1 − βᵗ.
        steps = count[rows].view(-1, *[1] * (parameter.dim() - 1))
        mean, variance = average[rows] / (1 - DECAY**steps), square[rows] / (1 - SQUARE_DECAY**steps)
        parameter[rows] -= self.rate * mean / (variance.sqrt() + DAMPING)

    def set_rate(self, rate: float) -> None:
        self.rate = rate

    def state(self) -> dict[str, Any]:
        return {**super().state(), "averages": self.averages, "squares": self.squares, "counts": self.counts}

    def restore(self, state: Mapping[str, Any]) -> None:
        super().restore(state)
        for name in ("averages", "squares", "counts"):
            for own, saved in zip(getattr(self, name), state[name], strict=True):
                own.copy_(saved)
