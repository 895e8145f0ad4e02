"""Adam, for objectives that are estimated from mini-batches."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from candid.engines.steppers.base import Evaluate, TorchStepper
from candid.engines.steppers.limit import GradientLimit

__all__ = ["Adam", "DampedAdam"]


class Adam(TorchStepper):
    """Adam (Kingma and Ba 2015), fused: for M×M parameters the update is memory-bound.

    A weight decay λ adds λ times the parameter to its gradient, as for a penalty of ½λ of the sum of squares. A
    ``limit`` is how many times their usual length gradients may have (:class:`GradientLimit`).
    """

    needs_one_gradient = True
    #: Gradients below this size move less than the rate.
    damping = 1e-8

    def __init__(
        self, parameters: Sequence[nn.Parameter], lr: float, weight_decay: float = 0.0, limit: float = math.inf
    ) -> None:
        self.optimizer = torch.optim.Adam(parameters, lr=lr, eps=self.damping, weight_decay=weight_decay, fused=True)
        self.limit = GradientLimit(limit)

    def advance(self, evaluate: Evaluate) -> float:
        settings = self.optimizer.param_groups[0]
        moving = [parameter for parameter in settings["params"] if parameter.grad is not None]
        if not moving:
            return float("nan")
        self.limit.shorten(moving)
        memory = [self.optimizer.state[parameter] for parameter in moving]
        if all(memory):
            self._move(moving, memory, settings)
        else:
            # The first step makes the memory.
            self.optimizer.step()
        return float("nan")

    @torch.no_grad()
    def _move(self, moving: list[nn.Parameter], memory: list[dict[str, Tensor]], settings: dict[str, Any]) -> None:
        """What the optimizer's own step does, without the checks before it, which take longer than the update."""
        steps = [entry["step"] for entry in memory]
        torch._foreach_add_(steps, 1)
        torch._fused_adam_(  # pyright: ignore[reportCallIssue]
            moving,  # pyright: ignore[reportArgumentType]
            [parameter.grad for parameter in moving],  # pyright: ignore[reportArgumentType]
            [entry["exp_avg"] for entry in memory],
            [entry["exp_avg_sq"] for entry in memory],
            [],
            steps,
            amsgrad=settings["amsgrad"],
            beta1=settings["betas"][0],
            beta2=settings["betas"][1],
            lr=settings["lr"],
            weight_decay=settings["weight_decay"],
            eps=settings["eps"],
            maximize=settings["maximize"],
        )

    def state(self) -> dict[str, Any]:
        return {**super().state(), "usual_length": self.limit.usual}

    def restore(self, state: Mapping[str, Any]) -> None:
        super().restore(state)
        self.limit.usual = state.get("usual_length")


class DampedAdam(Adam):
    """Adam for q(u) at high rates: entries whose gradient is small, and mostly noise, move in proportion to it.

    Of the M² entries of a covariance most are such; at the full rate they would wander about.
    """

    damping = 1e-4
