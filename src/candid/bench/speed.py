"""How long steps and predictions take: ours, GPyTorch's, and what the machine could do at best."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

import torch

from candid.bench.case import Case, Sample
from candid.bench.contenders import ACTIVITIES, Action, gpytorch_action, has_gpytorch, our_action
from candid.bench.own_process import own_process
from candid.bench.timing import GEMM_FLOPS, interleaved_medians, make_gemm, turns_of
from candid.engines import keep_freed_memory
from candid.methods import METHODS

__all__ = ["Goal", "Measurement", "all_goals", "default_goals", "machine_rate", "measure"]

N_NEW = 2000
LARGE, SMALL = (1000, 26), (300, 8)


@dataclass(frozen=True)
class Goal:
    """Something to time, and how many times faster than GPyTorch it should be."""

    activity: str
    case: Case
    times: float | None = None


@dataclass(frozen=True)
class Measurement:
    """Median seconds of one goal; those of GPyTorch are None where it is not installed.

    ``gemm_rate`` is how many floating-point operations per second a product of matrices of the same precision reached
    meanwhile; ``flops`` is how many the activity needs, None where a count means nothing.
    """

    goal: Goal
    ours: float
    gpytorch: float | None
    flops: float | None
    gemm_rate: float

    @property
    def ratio(self) -> float | None:
        """How many times faster we are."""
        return None if self.gpytorch is None else self.gpytorch / self.ours

    @property
    def reached(self) -> bool:
        """Whether we are as much faster as we should be."""
        return self.ratio is not None and self.goal.times is not None and self.ratio >= self.goal.times

    def limit(self, rate: float) -> float | None:
        """Seconds of the needed products alone, at ``rate`` operations per second."""
        return None if self.flops is None else self.flops / rate


def default_goals(quick: bool = False, batch_size: int = 1000) -> list[Goal]:
    """What this library promises; ``quick`` leaves M = 1000 out."""

    def training(method: str, size: tuple[int, int], times: float) -> list[Goal]:
        return [Goal("step", Case(method, *size, batch_size), times)] if method in METHODS else []

    goals = [
        *training("ppgpr-chol", LARGE, 2.8),
        *training("svgp", LARGE, 2.8),
        *training("ppgpr-mf", LARGE, 2.5),
        *training("ppgpr-delta", LARGE, 2.5),
        *training("ppgpr-mfd", LARGE, 3.0),
        *training("ppgpr-mfd", SMALL, 8.0),
        *training("ppgpr-mfd", (100, 8), 8.0),
        *training("ppgpr-chol", SMALL, 2.0),
        *training("svgp", (100, 8), 2.5),
        *training("dspp-qr3", SMALL, 5.0),
        *training("dgp", SMALL, 5.0),
    ]
    if quick:
        goals = [goal for goal in goals if goal.case.n_inducing < LARGE[0]]
    return goals + _prediction_goals(Case("ppgpr-chol", *(SMALL if quick else LARGE), batch_size))


def all_goals(sizes: Sequence[int], n_features: int, batch_size: int = 1000) -> list[Goal]:
    """Every activity at sizes of one's own; nothing is promised there."""
    methods = dict.fromkeys(goal.case.method for goal in default_goals())
    steps = [Goal("step", Case(method, m, n_features, batch_size)) for m in sizes for method in methods]
    predictions = [
        Goal(goal.activity, goal.case)
        for m in sizes
        for goal in _prediction_goals(Case("ppgpr-chol", m, n_features, batch_size))
    ]
    return steps + predictions


def _prediction_goals(case: Case) -> list[Goal]:
    times = {"predict32": 3.0, "predict64": 1.0, "row": 10.0, "row_estimator": 3.0}
    return [Goal(activity, case, times[activity]) for activity in ACTIVITIES if activity in times]


def measure(
    goals: Sequence[Goal], repeats: int = 9, n_new: int = N_NEW, tell: Callable[[str], None] = lambda text: None
) -> list[Measurement]:
    """Time every goal: warmed up, contenders taking turns, each in a process of its own; medians.

    Parameters
    ----------
    goals : sequence of Goal
    repeats : int
    n_new : int
        Rows to predict.
    tell : callable
        Hears what is being measured.
    """
    return [_measure(goal, repeats, n_new, tell) for goal in goals]


def machine_rate(measurements: Sequence[Measurement], precision: torch.dtype) -> float:
    """The best rate of matrix products in that precision; 0 if none was timed."""
    return max((entry.gemm_rate for entry in measurements if precision_of(entry.goal) == precision), default=0.0)


def precision_of(goal: Goal) -> torch.dtype:
    """What our side computes in."""
    return torch.float32 if goal.activity in ("step", "predict32") else torch.float64


def _measure(goal: Goal, repeats: int, n_new: int, tell: Callable[[str], None]) -> Measurement:
    case = goal.case
    tell(f"{ACTIVITIES[goal.activity]}, {case.method}, M = {case.n_inducing}, D = {case.n_features} …")
    makers = {"ours": _ours, "theirs": _theirs} if has_gpytorch() else {"ours": _ours}
    turns = {"gemm": turns_of(make_gemm(precision_of(goal)))}
    with ExitStack() as processes:
        for name, make_action in makers.items():
            turns[name] = processes.enter_context(own_process(make_action, goal.activity, case, n_new))
        seconds = interleaved_medians(turns, repeats)
    flops = {"step": case.step_flops(), "predict32": case.predict_flops(n_new), "predict64": case.predict_flops(n_new)}
    return Measurement(
        goal=goal,
        ours=seconds["ours"],
        gpytorch=seconds.get("theirs"),
        flops=flops.get(goal.activity),
        gemm_rate=GEMM_FLOPS / seconds["gemm"],
    )


def _ours(activity: str, case: Case, n_new: int) -> Action:
    """Ours as in a fit, which begins with this setting of memory."""
    keep_freed_memory()
    return our_action(activity, case, Sample.draw(case, n_new))


def _theirs(activity: str, case: Case, n_new: int) -> Action:
    action = gpytorch_action(activity, case, Sample.draw(case, n_new))
    assert action is not None
    return action
