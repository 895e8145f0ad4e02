"""Adam, for objectives that are estimated from mini-batches."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from candid.engines.steppers.base import Evaluate, TorchStepper

__all__ = ["Adam", "DampedAdam"]


class Adam(TorchStepper):
    """Adam (Kingma and Ba 2015), fused: for M×M parameters the update is memory-bound."""

    needs_one_gradient = True
    #: Gradients below this size move less than the rate.
    damping = 1e-8

    def __init__(self, parameters: Sequence[nn.Parameter], lr: float) -> None:
        self.optimizer = torch.optim.Adam(parameters, lr=lr, eps=self.damping, fused=True)

    def advance(self, evaluate: Evaluate) -> float:
        self.optimizer.step()
        return float("nan")


class DampedAdam(Adam):
    """Adam for q(u) at high rates: entries whose gradient is small, and mostly noise, move in proportion to it.

    Of the M² entries of a covariance most are such; at the full rate they would wander about.
    """

    damping = 1e-4
