"""Natural gradients of q(v)."""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn

from candid.engines.moment import Moment
from candid.engines.steppers.base import Evaluate, Stepper
from candid.families import inducing_part
from candid.weights import Full, natural_step

__all__ = ["NaturalGradient"]

# Without a penalty there is no distance to be relative to; steps are then those of this β.
LEAST_BETA = 1e-3


class NaturalGradient(Stepper):
    """Steps of a full q(v) along its natural gradient (see :mod:`candid.weights.natural`).

    The rate is relative to the distance that the KL penalty sets: with Gaussian noise, all rows and an ELBO, a rate of
    one leads to the optimum in one step.
    """

    needs_one_gradient = True

    def __init__(self, parameters: Sequence[nn.Parameter], lr: float) -> None:
        self.rate = lr

    def set_rate(self, rate: float) -> None:
        self.rate = rate

    def advance(self, evaluate: Evaluate) -> float:
        assert isinstance(evaluate, Moment)
        problem = evaluate.problem
        family = inducing_part(problem.family)
        assert family is not None
        assert isinstance(family.weights, Full)
        # The loss is per row, and its penalty counts β/N: N/β times the loss has the KL divergence once.
        beta = max(problem.coefficients.get("kl", 1.0), LEAST_BETA)
        natural_step(family.weights, self.rate, evaluate.batch.total / beta)
        return float("nan")
