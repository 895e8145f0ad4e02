"""Adam, for objectives that are estimated from mini-batches."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from candid.engines.steppers.base import Evaluate, Stepper
from candid.engines.steppers.limit import GradientLimit

__all__ = ["Adam", "DampedAdam"]

# What the past counts in running averages of gradients, and of their squares.
BETA_1, BETA_2 = 0.9, 0.999


class Adam(Stepper):
    """Adam (Kingma and Ba 2015), fused: for M×M parameters the update is memory-bound.

    A weight decay λ adds λ times the parameter to its gradient, as for a penalty of ½λ of the sum of squares. A
    ``limit`` is how many times their usual length gradients may have (:class:`GradientLimit`).

    It is torch's own update without torch's optimizer around it: the checks before each step take longer than the step,
    and the first one of a process would import torch's compiler, which takes seconds.
    """

    needs_one_gradient = True
    #: Gradients below this size move less than the rate.
    damping = 1e-8

    def __init__(
        self, parameters: Sequence[nn.Parameter], lr: float, weight_decay: float = 0.0, limit: float = math.inf
    ) -> None:
        self.parameters, self.rate, self.weight_decay = list(parameters), lr, weight_decay
        self.limit = GradientLimit(limit)
        # Of parameters that have moved, by their position.
        self.moments: dict[int, dict[str, Tensor]] = {}
        # How often each has moved; side by side, because counting them one by one takes as long as the update.
        device = self.parameters[0].device if self.parameters else None
        self.counts = torch.zeros(len(self.parameters), dtype=torch.float32, device=device)

    def set_rate(self, rate: float) -> None:
        self.rate = rate

    def advance(self, evaluate: Evaluate) -> float:
        moving = {place: entry for place, entry in enumerate(self.parameters) if entry.grad is not None}
        if moving:
            self.limit.shorten(list(moving.values()))
            self._move(moving)
        return float("nan")

    @torch.no_grad()
    def _move(self, moving: Mapping[int, nn.Parameter]) -> None:
        memory = [self.moments.get(place) or self._begin(place) for place in moving]
        steps = [entry["step"] for entry in memory]
        if len(moving) == len(self.parameters):
            self.counts.add_(1)
        else:
            torch._foreach_add_(steps, 1)
        torch._fused_adam_(  # pyright: ignore[reportCallIssue]
            list(moving.values()),  # pyright: ignore[reportArgumentType]
            [parameter.grad for parameter in moving.values()],  # pyright: ignore[reportArgumentType]
            [entry["exp_avg"] for entry in memory],
            [entry["exp_avg_sq"] for entry in memory],
            [],
            steps,
            amsgrad=False,
            beta1=BETA_1,
            beta2=BETA_2,
            lr=self.rate,
            weight_decay=self.weight_decay,
            eps=self.damping,
            maximize=False,
        )

    def _begin(self, place: int) -> dict[str, Tensor]:
        """The memory of a parameter that moves for the first time."""
        parameter = self.parameters[place]
        moments = {name: torch.zeros_like(parameter) for name in ("exp_avg", "exp_avg_sq")}
        return self.moments.setdefault(place, {"step": self.counts[place], **moments})

    def state(self) -> dict[str, Any]:
        return {**super().state(), "optimizer": self.moments, "usual_length": self.limit.usual}

    def restore(self, state: Mapping[str, Any]) -> None:
        super().restore(state)
        for place, kept in state["optimizer"].items():
            for name, tensor in self._begin(int(place)).items():
                tensor.copy_(kept[name])
        self.limit.usual = state.get("usual_length")


class DampedAdam(Adam):
    """Adam for q(u) at high rates: entries whose gradient is small, and mostly noise, move in proportion to it.

    Of the M² entries of a covariance most are such; at the full rate they would wander about.
    """

    damping = 1e-4
