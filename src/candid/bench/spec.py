"""What a benchmark of accuracy is: data sets, rows of a table, splits, and where each parameter's value comes from."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeVar

__all__ = ["CLASS_METRICS", "LENGTHSCALES", "METRICS", "Budget", "Choice", "Grid", "Row", "Spec", "Sweep", "pick"]

Entry = TypeVar("Entry")

#: Metrics of test rows, by task: of regression in the units of the benchmark; the smaller the better.
METRICS = {"nll": "NLL", "rmse": "RMSE", "crps": "CRPS"}
CLASS_METRICS = {"nll": "NLL", "mistaken": "share of errors"}
TWO_CLASS_METRICS = {**CLASS_METRICS, "misranked": "1 − AUC"}
#: Fitted lengthscales in standardised units; nothing to be judged.
LENGTHSCALES = {"mean_lengthscale": "lengthscale of the mean", "lengthscale": "lengthscale of the covariance"}


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
class Row:
    """A row of a table: a method, and what sets it apart from the other fits of the table.

    ``shares`` are parameters that count inducing points, as multiples of the table's number of them, and
    ``hidden_layers`` is the number of hidden layers that are as wide as a data set has features.
    """

    method: str
    parameters: Mapping[str, Any] = field(default_factory=dict)
    shares: Mapping[str, float] = field(default_factory=dict)
    hidden_layers: int = 0

    def sizes(self, n_inducing: int | None) -> dict[str, int]:
        """The number of inducing points, and of other points that go with it; none where our recipe decides."""
        if n_inducing is None:
            return {}
        shares = {"n_inducing": 1.0, **self.shares}
        return {name: max(1, round(share * n_inducing)) for name, share in shares.items()}

    def widths(self, n_features: int | None) -> dict[str, tuple[int, ...]]:
        """The widths of the hidden layers, where the row has some."""
        if not self.hidden_layers:
            return {}
        if n_features is None:
            raise ValueError(f"the layers of {self.method} are as wide as a data set, which is not known here")
        return {"hidden_widths": (n_features,) * self.hidden_layers}


@dataclass(frozen=True)
class Sweep:
    """One parameter of some methods, value by value, beside the method that each of them grows out of.

    ``origins`` maps the methods to those others; ``symbol`` is how tables and pictures call the parameter.
    """

    parameter: str
    symbol: str
    values: tuple[float, ...]
    origins: Mapping[str, str]

    def name(self, method: str, value: float) -> str:
        """How the row of a value is called."""
        return f"{method} {self.symbol}={value:g}"

    def rows(self) -> dict[str, Row]:
        """Name → row, for all methods and values."""
        return {
            self.name(method, value): Row(method, {self.parameter: value})
            for method in self.origins
            for value in self.values
        }


@dataclass(frozen=True)
class Budget:
    """How much of a benchmark is run.

    ``methods`` are names of rows, ``n_inducing`` is one number or one for each data set, or None for as many as our
    recipe has. Without a ``choice``, every parameter has the value of the table or of our recipe; ``max_epochs`` is
    None for as many epochs as our recipe trains. ``parameters`` are what this budget sets beyond those of the table.
    Of data sets with more than ``most_rows``, so many are taken at random.
    """

    data: tuple[str, ...]
    methods: tuple[str, ...]
    splits: tuple[int, ...]
    n_inducing: int | Mapping[str, int] | None = None
    choice: Choice | None = None
    max_epochs: int | None = None
    parameters: Mapping[str, Any] = field(default_factory=dict)
    most_rows: int | None = None

    def narrowed(self, data: Sequence[str] | None, methods: Sequence[str] | None, n_splits: int | None) -> Budget:
        """The same with other data sets, methods or number of splits, where they are given."""
        return replace(
            self,
            data=self.data if data is None else tuple(data),
            methods=self.methods if methods is None else tuple(methods),
            splits=self.splits if n_splits is None else tuple(range(n_splits)),
        )

    def inducing(self, data: str) -> int | None:
        """The number of inducing points for a data set."""
        if self.n_inducing is None or isinstance(self.n_inducing, int):
            return self.n_inducing
        if data not in self.n_inducing:
            raise ValueError(f"this budget has no number of inducing points for {data}: give one with --inducing")
        return self.n_inducing[data]

    @property
    def size(self) -> str:
        """What the budget decides, in words: the number of inducing points (several with slashes between them)."""
        chosen = [f"{name} = {value}" for name, value in self.parameters.items()]
        numbers = sorted({number for name in self.data if (number := self.inducing(name)) is not None})
        points = ["M = " + " / ".join(map(str, numbers))] if numbers else []
        rows = [] if self.most_rows is None else [f"at most {self.most_rows:,} rows"]
        return ", ".join([*points, *chosen, *rows])


@dataclass(frozen=True)
class Spec:
    """One published experiment, repeated.

    Attributes
    ----------
    name, title : str
    reference, protocol : str
        Where it is published, and how it was done there.
    published : str, optional
        Name of the table of its results in :mod:`candid.bench.published`; None where there are only pictures.
    budgets : mapping
        Name of a budget → how much is run.
    grids : mapping
        Row → the values that were tried on validation rows.
    proportions : tuple
        Relative sizes of the training, test and validation part.
    parameters : mapping
        What all fits of the table have in place of our recipe's values.
    rows : mapping
        Name → row, for rows that are more than a method of that name.
    sweep : Sweep, optional
        What the table varies, if it is about one parameter.
    task : {"regression", "classification"}
    inputs : {"standardised", "range"}
        Whether inputs are standardised, or scaled to [−1, 1]: to an isotropic kernel that is not the same.
    targets : {"standardised", "original"}
        The units of real targets, and so of all metrics.
    several_outputs : bool
        Whether data sets may have several targets; metrics are then averages over them.
    two_classes : bool
        Whether the order of classes by their probability is measured as well, which has a meaning for two.
    pairs : tuple of pairs
        Rows of which the first is said to have the smaller NLL than the second: tested over splits.
    """

    name: str
    title: str
    reference: str
    protocol: str
    published: str | None
    budgets: Mapping[str, Budget]
    grids: Mapping[str, Grid] = field(default_factory=dict)
    proportions: tuple[float, float, float] = (15, 3, 2)
    parameters: Mapping[str, Any] = field(default_factory=dict)
    rows: Mapping[str, Row] = field(default_factory=dict)
    sweep: Sweep | None = None
    task: Literal["regression", "classification"] = "regression"
    inputs: Literal["standardised", "range"] = "standardised"
    targets: Literal["standardised", "original"] = "standardised"
    several_outputs: bool = False
    two_classes: bool = False
    pairs: tuple[tuple[str, str], ...] = ()

    @property
    def metrics(self) -> Mapping[str, str]:
        """Name in a record → title, of what is compared."""
        if self.task == "regression":
            return METRICS
        return TWO_CLASS_METRICS if self.two_classes else CLASS_METRICS

    @property
    def recipe(self) -> str:
        """How all rows are fitted, in words."""
        chosen = ", ".join(f"{name} = {value}" for name, value in self.parameters.items())
        return f"our recipe with {chosen}" if chosen else "our recipe"

    def row(self, name: str) -> Row:
        """The row of that name; by default the method of that name."""
        return self.rows.get(name, Row(name))

    def rows_called(self, names: Sequence[str]) -> list[str]:
        """Names of rows; that of a method stands for all rows with that method, if there are any."""
        found: list[str] = []
        for name in names:
            of_method = [label for label, row in self.rows.items() if row.method == name]
            found += [name] if name in self.rows else of_method or [name]
        return found


def pick(entries: Mapping[str, Entry], name: str, what: str) -> Entry:
    """The entry of that name; an unknown one is answered with the nearest known names."""
    if name not in entries:
        near = difflib.get_close_matches(name, entries, n=3, cutoff=0.4)
        hint = f"did you mean {' or '.join(near)}?" if near else f"there are {', '.join(entries)}"
        raise ValueError(f"there is no {what} {name!r}; {hint}")
    return entries[name]
