"""L-BFGS, for smooth objectives of all rows."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from candid.engines.steppers.base import Evaluate, TorchStepper
from candid.linalg import NotPositiveDefinite

__all__ = ["LBFGS"]

# The loss of a point at which it cannot be evaluated: finite, because the line search interpolates, and low enough for
# its square to be finite in float32.
FORBIDDEN = 1e10


class LBFGS(TorchStepper):
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
