"""Our results beside the published ones."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from candid.bench.published import Figure, PublishedTable
from candid.bench.runner import Outcome

__all__ = ["Comparison", "compare_with"]

# Of our figures where there is no published one.
DECIMALS = 3


@dataclass(frozen=True)
class Comparison:
    """A row of a table on a data set, over the splits that are done.

    ``ours`` is None where every fit failed or has no such figure, ``published`` where the paper has none.
    """

    data: str
    method: str
    ours: Figure | None
    published: Figure | None
    n_splits: int
    n_failed: int
    epochs: float | None
    seconds: float | None

    @property
    def decimals(self) -> int:
        """With how many decimals the figures are given."""
        return DECIMALS if self.published is None else self.published.decimals

    @property
    def difference(self) -> float | None:
        """Ours minus published."""
        if self.ours is None or self.published is None:
            return None
        return self.ours.mean - self.published.mean

    @property
    def at_least_as_good(self) -> bool | None:
        """Whether our figure, with as many decimals as the paper prints, is not the larger one."""
        if self.ours is None or self.published is None:
            return None
        return round(self.ours.mean, self.published.decimals) <= self.published.mean


def compare_with(published: PublishedTable, outcomes: Sequence[Outcome], metric: str) -> list[Comparison]:
    """One comparison for each data set and row, in the order in which they were first fitted."""
    groups: dict[tuple[str, str], list[Outcome]] = {}
    for outcome in outcomes:
        if outcome.fit.purpose == "result":
            groups.setdefault((outcome.fit.data, outcome.fit.name), []).append(outcome)
    comparisons = []
    for (data, method), group in groups.items():
        done = [entry.record for entry in group if entry.record["error"] is None]
        values = [record[metric] for record in done if record.get(metric) is not None]
        theirs = published.get((metric, data, method))
        decimals = DECIMALS if theirs is None else theirs.decimals
        comparisons.append(
            Comparison(
                data=data,
                method=method,
                ours=average(values, decimals) if values else None,
                published=theirs,
                n_splits=len(done),
                n_failed=len(group) - len(done),
                epochs=_mean(done, "epochs"),
                seconds=_mean(done, "seconds"),
            )
        )
    return comparisons


def average(values: Sequence[float], decimals: int = DECIMALS) -> Figure:
    """Mean and, of more than one value, its standard error."""
    error = statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else None
    return Figure(statistics.fmean(values), error, decimals)


def _mean(records: Sequence[Any], name: str) -> float | None:
    return statistics.fmean(record[name] for record in records) if records else None
