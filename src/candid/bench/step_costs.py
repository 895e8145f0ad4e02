"""What steps of decoupled conditionals cost in units of svgp's, which computes all that they compute for the mean."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from candid.bench.case import Case, Sample
from candid.bench.contenders import Action, our_action
from candid.bench.own_process import own_process
from candid.bench.timing import interleaved_medians
from candid.engines import keep_freed_memory

__all__ = ["Step", "StepCost", "decoupled_steps", "measure_steps"]

UNIT = "svgp"


@dataclass(frozen=True)
class Step:
    """A step, and at most how many times as long as svgp's it should take."""

    name: str
    case: Case
    at_most: float | None = None


@dataclass(frozen=True)
class StepCost:
    """Its median seconds, and how many times as long as svgp's that is."""

    step: Step
    seconds: float
    times: float

    @property
    def reached(self) -> bool:
        """Whether it is as short as it should be."""
        return self.step.at_most is not None and self.times <= self.step.at_most


def decoupled_steps(n_inducing: int, n_features: int, batch_size: int) -> list[Step]:
    """svgp itself, and decoupled conditionals without and with Ω."""
    size = (n_inducing, n_features, batch_size)
    return [
        Step(UNIT, Case(UNIT, *size)),
        Step("dcsvgp", Case("dcsvgp", *size), 1.6),
        Step("dcsvgp with Ω", Case("dcsvgp", *size, omega_weight=1e-3), 3.0),
        Step("dcppgpr", Case("dcppgpr", *size)),
        Step("dcppgpr with Ω", Case("dcppgpr", *size, omega_weight=1e-3)),
    ]


def measure_steps(
    steps: Sequence[Step], repeats: int = 15, tell: Callable[[str], None] = lambda text: None
) -> list[StepCost]:
    """Warmed up and taking turns, each in a process of its own; medians. One of the ``steps`` is svgp's."""
    with ExitStack() as processes:
        turns = {}
        for step in steps:
            tell(f"{step.name}, M = {step.case.n_inducing}, batches of {step.case.batch_size:,} rows …")
            turns[step.name] = processes.enter_context(own_process(_make, step.case))
        seconds = interleaved_medians(turns, repeats)
    return [StepCost(step, seconds[step.name], seconds[step.name] / seconds[UNIT]) for step in steps]


def _make(case: Case) -> Action:
    """As in a fit, which begins with this setting of memory."""
    keep_freed_memory()
    return our_action("step", case, Sample.draw(case, n_new=1))
