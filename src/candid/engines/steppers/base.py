"""The interface of a stepper: how a group of parameters moves once the loss and its gradient can be evaluated."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import nn

__all__ = ["Evaluate", "Stepper"]

#: Evaluates the loss, leaves its gradients in the parameters and returns its value: a Moment, in the loop.
Evaluate = Callable[[], float]


class Stepper(ABC):
    """Moves one group of parameters. Its state is plain tensors and numbers, so that it can be checkpointed."""

    #: Whether one gradient is all it needs; such steppers share one evaluation.
    needs_one_gradient: bool
    #: Whether it draws samples rather than looking for an optimum.
    samples: bool = False
    #: Whether all groups that it is named for move together, as one.
    joint: bool = False
    #: Whether it has found that nothing is left to gain.
    converged: bool = False

    @abstractmethod
    def advance(self, evaluate: Evaluate) -> float:
        """Take one step and return the loss before it. Gradients are there already if one is all it needs."""

    @abstractmethod
    def set_rate(self, rate: float) -> None:
        """Take steps of this rate from now on."""

    def sampled(self) -> Sequence[nn.Parameter]:
        """The parameters that it draws samples of."""
        return ()

    def freeze(self) -> None:
        """Burn-in is over: a sampler does not adapt to its target any more. Others never do."""
        return

    def state(self) -> dict[str, Any]:
        return {"converged": self.converged}

    def restore(self, state: Mapping[str, Any]) -> None:
        self.converged = bool(state["converged"])
