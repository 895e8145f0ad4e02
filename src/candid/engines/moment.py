"""One step of training, as its steppers see it."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from candid.engines.problem import Problem
from candid.marginal import Batch

__all__ = ["Moment"]


@dataclass(frozen=True)
class Moment:
    """Call it to evaluate the loss of the step's batch: it returns the value and leaves gradients in the parameters.

    Most steppers need no more than that. What else there is to know (the problem with its parts, N as
    ``batch.total``, the rows as ``batch.index``, seed and step for random numbers that a resumed run repeats) is here
    for those that do.
    """

    problem: Problem
    batch: Batch
    step: int
    seed: int

    def __call__(self) -> float:
        self.problem.zero_grad(set_to_none=True)
        loss = self.problem.loss(self.batch)
        loss.backward()
        self._share()
        return float(loss.detach())

    def of_chains(self) -> Tensor:
        """The same with the loss of each chain."""
        self.problem.zero_grad(set_to_none=True)
        with torch.enable_grad():
            losses = self.problem.losses(self.batch)
            losses.sum().backward()
        self._share()
        return losses.detach().reshape(-1)

    @torch.no_grad()
    def _share(self) -> None:
        """Chains learn together what they have in common: from the average of their gradients."""
        for parameter in self.problem.family.common_parameters():
            if parameter.grad is not None:
                parameter.grad.copy_(parameter.grad.mean(0, keepdim=True).expand_as(parameter.grad))
