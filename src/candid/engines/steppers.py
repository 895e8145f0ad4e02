"""Steppers: how a group of parameters moves once the loss and its gradient can be evaluated."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from candid.linalg import NotPositiveDefinite

__all__ = ["LBFGS", "STEPPERS", "Adam", "Stepper", "make_steppers", "take_step"]

# The loss of a point at which it cannot be evaluated: finite, because the line search interpolates, and low enough for
# its square to be finite in float32.
FORBIDDEN = 1e10

#: Evaluates the loss, leaves its gradients in the parameters and returns its value: a Moment, in the loop.
Evaluate = Callable[[], float]


class Stepper(ABC):
    """Moves one group of parameters. Its state is plain tensors and numbers, so that it can be checkpointed."""

    optimizer: torch.optim.Optimizer
    #: Whether one gradient is all it needs; such steppers share one evaluation.
    needs_one_gradient: bool
    #: Whether it has found that nothing is left to gain.
    converged: bool = False

    @abstractmethod
    def advance(self, evaluate: Evaluate) -> float:
        """Take one step and return the loss before it. Gradients are there already if one is all it needs."""

    def set_rate(self, rate: float) -> None:
        for group in self.optimizer.param_groups:
            group["lr"] = rate

    def state(self) -> dict[str, Any]:
        return {"converged": self.converged, "optimizer": self.optimizer.state_dict()["state"]}

    def restore(self, state: Mapping[str, Any]) -> None:
        self.converged = bool(state["converged"])
        entries = {int(position): entry for position, entry in state["optimizer"].items()}
        self.optimizer.load_state_dict({"state": entries, "param_groups": self.optimizer.state_dict()["param_groups"]})


class Adam(Stepper):
    """Adam (Kingma and Ba 2015), fused: for M×M parameters the update is memory-bound."""

    needs_one_gradient = True

    def __init__(self, parameters: Sequence[nn.Parameter], lr: float) -> None:
        self.optimizer = torch.optim.Adam(parameters, lr=lr, fused=True)

    def advance(self, evaluate: Evaluate) -> float:
        self.optimizer.step()
        return float("nan")


class LBFGS(Stepper):
    """Limited-memory BFGS with a line search by the strong Wolfe conditions, for smooth objectives of all rows.

    One step is a few iterations. A point at which the loss cannot be evaluated counts as very bad, so the line search
    backs away from it; where not even the first point of a step can be evaluated, the loss of the step is infinite.
    """

    needs_one_gradient = False
    iterations_per_step = 5
    # Torch would stop a step after 1¼ evaluations for each iteration, which a line search often exceeds.
    evaluations_per_iteration = 25

    def __init__(self, parameters: Sequence[nn.Parameter], lr: float) -> None:
        self.optimizer = torch.optim.LBFGS(
            parameters,
            lr=1.0,
            max_iter=self.iterations_per_step,
            max_eval=self.iterations_per_step * self.evaluations_per_iteration,
            history_size=20,
            tolerance_grad=1e-6,
            tolerance_change=1e-9,
            line_search_fn="strong_wolfe",
        )
        self.parameters = list(parameters)

    def set_rate(self, rate: float) -> None:
        """The line search finds its own step length."""

    def advance(self, evaluate: Evaluate) -> float:
        outside = math.inf

        def careful() -> float:
            nonlocal outside
            try:
                loss = evaluate()
            except NotPositiveDefinite:
                loss = math.nan
            if math.isfinite(loss) and all(bool(gradient.isfinite().all()) for gradient in self._gradients()):
                outside = FORBIDDEN
                return loss
            for parameter in self.parameters:
                parameter.grad = torch.zeros_like(parameter)
            return outside

        before = self._iterations()
        loss = float(self.optimizer.step(careful))
        self.converged = self._iterations() - before < self.iterations_per_step
        return loss

    def _gradients(self) -> list[Tensor]:
        return [parameter.grad for parameter in self.parameters if parameter.grad is not None]

    def _iterations(self) -> int:
        return int(self.optimizer.state[self.parameters[0]].get("n_iter", 0))


STEPPERS: dict[str, type[Adam] | type[LBFGS]] = {"adam": Adam, "lbfgs": LBFGS}


def make_steppers(recipe: Mapping[str, str], groups: Mapping[str, Sequence[nn.Parameter]], lr: float) -> list[Stepper]:
    """One stepper for each parameter group that a method names and that has something to learn."""
    return [STEPPERS[kind](groups[group], lr) for group, kind in recipe.items() if groups[group]]


def take_step(steppers: Sequence[Stepper], evaluate: Evaluate) -> float:
    """Let every stepper advance; those that need one gradient share one. Returns the loss before the step."""
    loss = float("nan")
    sharing = [stepper for stepper in steppers if stepper.needs_one_gradient]
    if sharing:
        loss = evaluate()
    for stepper in sharing:
        stepper.advance(evaluate)
    for stepper in steppers:
        if not stepper.needs_one_gradient:
            loss = stepper.advance(evaluate)
    return loss
