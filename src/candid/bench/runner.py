"""Run a benchmark of accuracy: fit by fit, and what is finished is not done again."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from candid.bench.fit import Fit
from candid.bench.plan import Plan
from candid.bench.results import Results
from candid.bench.spec import Budget, Spec
from candid.bench.workers import Workers
from candid.datasets import Dataset

__all__ = ["Event", "Outcome", "Runner"]

# Epochs and inducing points of a fit for the estimate of the time that is left, where our recipe decides.
TYPICAL_EPOCHS, TYPICAL_POINTS = 30, 300


@dataclass(frozen=True)
class Outcome:
    """A fit of the plan and its record."""

    fit: Fit
    record: Mapping[str, Any]


@dataclass(frozen=True)
class Event:
    """A fit begins (``record`` is None), or is over; ``reused`` says that an earlier run had done it.

    ``seconds_left`` is a guess, None before the first fit of this run has ended.
    """

    fit: Fit
    done: int
    total: int
    record: Mapping[str, Any] | None
    reused: bool
    seconds_left: float | None


class Runner:
    """Does the fits of a budget.

    Parameters are chosen first. All data sets and methods of one split come before the next split, so that a run that
    is broken off leaves a whole table.

    Parameters
    ----------
    spec, budget : Spec, Budget
    data : mapping
        Name → data set, for every name of the budget.
    results : Results
        What earlier runs have done, and where new records go.
    tell : callable
        Hears an :class:`Event` before and after every fit.
    jobs : int
        How many fits run at a time.
    """

    def __init__(
        self,
        spec: Spec,
        budget: Budget,
        data: Mapping[str, Dataset],
        results: Results,
        tell: Callable[[Event], None] = lambda event: None,
        jobs: int = 1,
    ) -> None:
        self.plan = Plan(spec, budget, {name: table.X.shape[1] for name, table in data.items()})
        self.spec, self.splits = spec, budget.splits
        self.data, self.results, self.tell, self.jobs = data, results, tell, jobs
        self._outcomes: list[Outcome | None] = []
        self.pairs = self.plan.pairs({name: len(table.X) for name, table in data.items()})
        expected = [
            fit
            for pair in self.pairs
            for fit in [*self.plan.tries(*pair), *(self.plan.final(*pair, split, {}) for split in self.splits)]
        ]
        self._total, self._cost_left = len(expected), sum(map(self._cost, expected))
        self._cost_done, self._start = 0.0, time.perf_counter()

    @property
    def outcomes(self) -> list[Outcome]:
        """All fits that are over, those that serve to choose a parameter too; in the order of the plan."""
        return [entry for entry in self._outcomes if entry is not None]

    def run(self) -> list[Outcome]:
        """Do what is not finished."""
        tries = {pair: self.plan.tries(*pair) for pair in self.pairs}
        with Workers(self.data, self.jobs) as workers:
            tried = iter(self._do(workers, [fit for fits in tries.values() for fit in fits]))
            chosen = {pair: self._choose(list(islice(tried, len(fits)))) for pair, fits in tries.items()}
            for split in self.splits:
                self._do(workers, [self.plan.final(*pair, split, chosen[pair]) for pair in self.pairs])
        return self.outcomes

    def _choose(self, tries: Sequence[Outcome]) -> dict[str, Any]:
        """The value with the smallest NLL of the validation rows; our recipe's own where no fit succeeded."""
        scored = [entry for entry in tries if entry.record["error"] is None]
        if not scored:
            return {}
        best = min(scored, key=lambda entry: entry.record["validation_nll"]).fit
        parameter = self.spec.grids[best.name].parameter
        return {parameter: best.parameters[parameter]}

    def _do(self, workers: Workers, fits: Sequence[Fit]) -> list[Outcome]:
        """Do these fits unless they are done, and give their outcomes in the same order."""
        first = len(self._outcomes)
        self._outcomes += [None] * len(fits)
        waiting: list[int] = []
        for position, fit in enumerate(fits):
            record = self.results.finished(fit)
            if record is None:
                waiting.append(position)
            else:
                self._note(first + position, Outcome(fit, record), reused=True)
        if not self._cost_done:
            self._start = time.perf_counter()
        missing = [fits[position] for position in waiting]
        for number, record in workers.records(missing, self._say):
            self.results.append(record)
            self._cost_done += self._cost(missing[number])
            self._note(first + waiting[number], Outcome(missing[number], record))
        return [entry for entry in self._outcomes[first:] if entry is not None]

    def _note(self, position: int, outcome: Outcome, reused: bool = False) -> None:
        self._outcomes[position] = outcome
        self._cost_left -= self._cost(outcome.fit)
        self._say(outcome.fit, outcome.record, reused)

    def _cost(self, fit: Fit) -> float:
        """In proportion to the operations of a fit: epochs × rows × M²."""
        epochs, n_rows = fit.parameters.get("max_epochs", TYPICAL_EPOCHS), len(self.data[fit.data].X)
        return epochs * min(n_rows, fit.most_rows or n_rows) * (fit.n_inducing or TYPICAL_POINTS) ** 2

    def _say(self, fit: Fit, record: Mapping[str, Any] | None = None, reused: bool = False) -> None:
        passed = time.perf_counter() - self._start
        left = passed / self._cost_done * self._cost_left if self._cost_done else None
        self.tell(Event(fit, len(self.outcomes), self._total, record, reused, left))
