"""Which fits a benchmark asks for."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from candid.bench.fit import Fit
from candid.bench.spec import Budget, Spec
from candid.methods import METHODS

__all__ = ["Plan", "known_methods"]


def known_methods(spec: Spec, budget: Budget) -> tuple[list[str], list[str]]:
    """The rows of a budget whose methods this version has, and the others."""
    known = [name for name in budget.methods if spec.row(name).method in METHODS]
    return known, [name for name in budget.methods if name not in known]


@dataclass(frozen=True)
class Plan:
    """The fits of a budget, for each data set and row of the table.

    ``n_features`` of the data sets are needed where a row has hidden layers.
    """

    spec: Spec
    budget: Budget
    n_features: Mapping[str, int] = field(default_factory=dict)

    def pairs(self, n_rows: Mapping[str, int]) -> list[tuple[str, str]]:
        """Data sets and rows, without those whose methods cannot take so long a table."""
        share = self.spec.proportions[0] / sum(self.spec.proportions)
        names, _ = known_methods(self.spec, self.budget)
        longest = {name: METHODS[self.spec.row(name).method].most_rows or math.inf for name in names}
        return [
            (data, name)
            for data in self.budget.data
            for name in names
            if share * min(n_rows[data], self.budget.most_rows or math.inf) <= longest[name]
        ]

    def tries(self, data: str, name: str) -> list[Fit]:
        """The small fits on the first split, one for each value of the row's grid; none if nothing is chosen."""
        grid, choice = self.spec.grids.get(name), self.budget.choice
        if grid is None or choice is None:
            return []
        length = _length(choice.max_epochs)
        return [
            self._fit(data, name, self.budget.splits[0], choice.n_inducing, {grid.parameter: value, **length}, "choice")
            for value in grid.values
        ]

    def final(self, data: str, name: str, split: int, chosen: Mapping[str, Any]) -> Fit:
        """The fit that counts."""
        parameters = {**chosen, **_length(self.budget.max_epochs)}
        return self._fit(data, name, split, self.budget.inducing(data), parameters, "result")

    def _fit(
        self, data: str, name: str, split: int, n_inducing: int | None, parameters: Mapping[str, Any], purpose: str
    ) -> Fit:
        row = self.spec.row(name)
        sizes, widths = row.sizes(n_inducing), row.widths(self.n_features.get(data))
        return Fit(
            data=data,
            method=row.method,
            split=split,
            n_inducing=sizes.pop("n_inducing", None),
            proportions=self.spec.proportions,
            parameters=parameters,
            purpose=purpose,
            setting={**self.spec.parameters, **self.budget.parameters, **row.parameters, **sizes, **widths},
            row=name,
            task=self.spec.task,
            inputs=self.spec.inputs,
            most_rows=self.budget.most_rows,
            targets=self.spec.targets,
        )


def _length(max_epochs: int | None) -> dict[str, int]:
    return {} if max_epochs is None else {"max_epochs": max_epochs}
