"""Which fits a benchmark asks for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from candid.bench.fit import Fit
from candid.bench.spec import Budget, Spec
from candid.methods import METHODS

__all__ = ["Plan", "known_methods"]


def known_methods(budget: Budget) -> tuple[list[str], list[str]]:
    """The methods of a budget that this version has, and the others."""
    known = [name for name in budget.methods if name in METHODS]
    return known, [name for name in budget.methods if name not in known]


@dataclass(frozen=True)
class Plan:
    """The fits of a budget, for each data set and method."""

    spec: Spec
    budget: Budget

    def pairs(self, n_rows: Mapping[str, int]) -> list[tuple[str, str]]:
        """Data sets and methods, without those methods that cannot take so long a table."""
        share = self.spec.proportions[0] / sum(self.spec.proportions)
        methods, _ = known_methods(self.budget)
        return [
            (name, method)
            for name in self.budget.data
            for method in methods
            if share * n_rows[name] <= (METHODS[method].most_rows or float("inf"))
        ]

    def tries(self, name: str, method: str) -> list[Fit]:
        """The small fits on the first split, one for each value of the method's grid; none if nothing is chosen."""
        grid, choice = self.spec.grids.get(method), self.budget.choice
        if grid is None or choice is None:
            return []
        length = _length(choice.max_epochs)
        return [
            self._fit(
                name, method, self.budget.splits[0], choice.n_inducing, {grid.parameter: value, **length}, "choice"
            )
            for value in grid.values
        ]

    def final(self, name: str, method: str, split: int, chosen: Mapping[str, Any]) -> Fit:
        """The fit that counts."""
        parameters = {**chosen, **_length(self.budget.max_epochs)}
        return self._fit(name, method, split, self.budget.n_inducing, parameters, "result")

    def _fit(
        self, name: str, method: str, split: int, n_inducing: int, parameters: Mapping[str, Any], purpose: str
    ) -> Fit:
        return Fit(name, method, split, n_inducing, self.spec.proportions, parameters, purpose)


def _length(max_epochs: int | None) -> dict[str, int]:
    return {} if max_epochs is None else {"max_epochs": max_epochs}
