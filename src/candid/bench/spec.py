"""What a benchmark of accuracy is: data sets, methods, splits, and where each parameter's value comes from."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

__all__ = ["METRICS", "Budget", "Choice", "Grid", "Spec", "pick"]

Entry = TypeVar("Entry")

#: Metrics of every benchmark, on test rows, in standardised units; the smaller the better.
METRICS = {"nll": "NLL", "rmse": "RMSE", "crps": "CRPS"}


@dataclass(frozen=True)
class Grid:
    """The values of one parameter among which validation rows choose."""

    parameter: str
    values: tuple[float, ...]


@dataclass(frozen=True)
class Choice:
    """The small model with which the value of a grid is chosen, once for each data set and method, on the first split.

    ``max_epochs`` is None for as many as our recipe trains.
    """

    n_inducing: int = 300
    max_epochs: int | None = 10


@dataclass(frozen=True)
class Budget:
    """How much of a benchmark is run.

    Without a ``choice``, every parameter has the value of our recipe; ``max_epochs`` is None for as many epochs as our
    recipe trains.
    """

    data: tuple[str, ...]
    methods: tuple[str, ...]
    splits: tuple[int, ...]
    n_inducing: int
    choice: Choice | None = None
    max_epochs: int | None = None

    def narrowed(self, data: Sequence[str] | None, methods: Sequence[str] | None, n_splits: int | None) -> Budget:
        """The same with other data sets, methods or number of splits, where they are given."""
        return replace(
            self,
            data=self.data if data is None else tuple(data),
            methods=self.methods if methods is None else tuple(methods),
            splits=self.splits if n_splits is None else tuple(range(n_splits)),
        )


@dataclass(frozen=True)
class Spec:
    """One published experiment, repeated.

    Attributes
    ----------
    name, title : str
    reference, protocol : str
        Where it is published, and how it was done there.
    published : str
        Name of the table of its results in :mod:`candid.bench.published`.
    budgets : mapping
        Name of a budget → how much is run.
    grids : mapping
        Method → the values that were tried on validation rows.
    proportions : tuple
        Relative sizes of the training, test and validation part.
    """

    name: str
    title: str
    reference: str
    protocol: str
    published: str
    budgets: Mapping[str, Budget]
    grids: Mapping[str, Grid] = field(default_factory=dict)
    proportions: tuple[float, float, float] = (15, 3, 2)


def pick(entries: Mapping[str, Entry], name: str, what: str) -> Entry:
    """The entry of that name; an unknown one is answered with the nearest known names."""
    if name not in entries:
        near = difflib.get_close_matches(name, entries, n=3, cutoff=0.4)
        hint = f"did you mean {' or '.join(near)}?" if near else f"there are {', '.join(entries)}"
        raise ValueError(f"there is no {what} {name!r}; {hint}")
    return entries[name]
