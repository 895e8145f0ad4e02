"""Adam, for objectives that are estimated from mini-batches."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from candid.engines.steppers.base import Evaluate, TorchStepper

__all__ = ["Adam"]


class Adam(TorchStepper):
    """Adam (Kingma and Ba 2015), fused: for M×M parameters the update is memory-bound."""

    needs_one_gradient = True

    def __init__(self, parameters: Sequence[nn.Parameter], lr: float) -> None:
        self.optimizer = torch.optim.Adam(parameters, lr=lr, fused=True)

    def advance(self, evaluate: Evaluate) -> float:
        self.optimizer.step()
        return float("nan")
