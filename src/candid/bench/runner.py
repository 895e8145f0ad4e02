"""Run a benchmark of accuracy: fit by fit, and what is finished is not done again."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from candid.bench.fit import Fit, execute
from candid.bench.plan import Plan
from candid.bench.protocol import make_parts
from candid.bench.results import Results
from candid.bench.spec import Budget, Spec
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

    All data sets and methods of one split come before the next split, so that a run that is broken off leaves a whole
    table.

    Parameters
    ----------
    spec, budget : Spec, Budget
    data : mapping
        Name → data set, for every name of the budget.
    results : Results
        What earlier runs have done, and where new records go.
    tell : callable
        Hears an :class:`Event` before and after every fit.

    Attributes
    ----------
    outcomes : list of Outcome
        All fits that are over, those that serve to choose a parameter too.
    """

    def __init__(
        self,
        spec: Spec,
        budget: Budget,
        data: Mapping[str, Dataset],
        results: Results,
        tell: Callable[[Event], None] = lambda event: None,
    ) -> None:
        self.plan = Plan(spec, budget, {name: table.X.shape[1] for name, table in data.items()})
        self.spec, self.splits = spec, budget.splits
        self.data, self.results, self.tell = data, results, tell
        self.outcomes: list[Outcome] = []
        self.pairs = self.plan.pairs({name: len(table.X) for name, table in data.items()})
        expected = [
            fit
            for pair in self.pairs
            for fit in [*self.plan.tries(*pair), *(self.plan.final(*pair, split, {}) for split in self.splits)]
        ]
        self._total, self._cost_left = len(expected), sum(map(self._cost, expected))
        self._cost_done = self._seconds = 0.0

    def run(self) -> list[Outcome]:
        """Do what is not finished."""
        chosen: dict[tuple[str, str], dict[str, Any]] = {}
        for split in self.splits:
            for pair in self.pairs:
                if pair not in chosen:
                    chosen[pair] = self._choose([self._do(fit) for fit in self.plan.tries(*pair)])
                self._do(self.plan.final(*pair, split, chosen[pair]))
        return self.outcomes

    def _choose(self, tries: Sequence[Outcome]) -> dict[str, Any]:
        """The value with the smallest NLL of the validation rows; our recipe's own where no fit succeeded."""
        scored = [entry for entry in tries if entry.record["error"] is None]
        if not scored:
            return {}
        best = min(scored, key=lambda entry: entry.record["validation_nll"]).fit
        parameter = self.spec.grids[best.name].parameter
        return {parameter: best.parameters[parameter]}

    def _do(self, fit: Fit) -> Outcome:
        record = self.results.finished(fit)
        reused = record is not None
        if record is None:
            self._say(fit)
            start = time.perf_counter()
            data = self.data[fit.data]
            record = execute(fit, make_parts(data, fit.split, fit.proportions, fit.inputs, fit.most_rows, fit.targets))
            self.results.append(record)
            self._seconds += time.perf_counter() - start
            self._cost_done += self._cost(fit)
        self._cost_left -= self._cost(fit)
        self.outcomes.append(Outcome(fit, record))
        self._say(fit, record, reused)
        return self.outcomes[-1]

    def _cost(self, fit: Fit) -> float:
        """In proportion to the operations of a fit: epochs × rows × M²."""
        epochs, n_rows = fit.parameters.get("max_epochs", TYPICAL_EPOCHS), len(self.data[fit.data].X)
        return epochs * min(n_rows, fit.most_rows or n_rows) * (fit.n_inducing or TYPICAL_POINTS) ** 2

    def _say(self, fit: Fit, record: Mapping[str, Any] | None = None, reused: bool = False) -> None:
        left = self._seconds / self._cost_done * self._cost_left if self._cost_done else None
        self.tell(Event(fit, len(self.outcomes), self._total, record, reused, left))
