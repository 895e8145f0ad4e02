"""L-BFGS, for smooth objectives of all rows."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from inspect import unwrap
from typing import Any

import torch
from torch import Tensor, nn

from candid.engines.steppers.base import Evaluate, Stepper
from candid.linalg import NotPositiveDefinite

__all__ = ["LBFGS"]

# The loss of a point at which it cannot be evaluated: finite, because the line search interpolates, and low enough for
# its square to be finite in float32.
FORBIDDEN = 1e10


class _Optimizer(torch.optim.LBFGS):
    """Torch's optimizer without what tells its compiler to leave these alone: that would import it, for seconds."""

    add_param_group = unwrap(torch.optim.Optimizer.add_param_group)
    state_dict = unwrap(torch.optim.Optimizer.state_dict)
    load_state_dict = unwrap(torch.optim.Optimizer.load_state_dict)


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
        self.optimizer = _Optimizer(
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

    def state(self) -> dict[str, Any]:
        return {**super().state(), "optimizer": self.optimizer.state_dict()["state"]}

    def restore(self, state: Mapping[str, Any]) -> None:
        super().restore(state)
        entries = {int(position): entry for position, entry in state["optimizer"].items()}
        self.optimizer.load_state_dict({"state": entries, "param_groups": self.optimizer.state_dict()["param_groups"]})

    def _gradients(self) -> list[Tensor]:
        return [parameter.grad for parameter in self.parameters if parameter.grad is not None]

    def _iterations(self) -> int:
        return int(self.optimizer.state[self.parameters[0]].get("n_iter", 0))
