"""Reading tables: numpy, pandas, polars or torch in, checked float64 arrays out."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, validate_data

__all__ = ["Table", "check_range", "read_classes", "read_inputs", "read_known", "read_table"]


# Sorting a longer table would take a noticeable part of the time of its fit.
MOST_SORTED = 20_000
# What parameters that know something of each row speak of.
MEANING = {"alpha": "noise variances", "n_trials": "numbers of trials"}


@dataclass(frozen=True)
class Table:
    """Inputs N×D, targets N×P, weights N (all positive), known noise variances N×P or None.

    Counts have numbers of trials in place of these, if anything, and classes are their numbers. A target that was not
    observed is NaN. ``vector`` tells whether the targets came as a vector, and ``place`` where each row is in an order
    that was given.
    """

    x: np.ndarray
    y: np.ndarray
    weight: np.ndarray
    noise: np.ndarray | None
    vector: bool
    place: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.x)

    @property
    def has_gaps(self) -> bool:
        """Whether there are targets that were not observed."""
        return bool(np.isnan(self.y).any())

    def rows(self, index: np.ndarray) -> Table:
        noise, place = (None if part is None else part[index] for part in (self.noise, self.place))
        return Table(self.x[index], self.y[index], self.weight[index], noise, self.vector, place)

    def observed_shares(self) -> np.ndarray:
        """Of each target, the share of the weight of all rows in which it was observed."""
        return self.weight @ ~np.isnan(self.y) / self.weight.sum()

    def merged(self) -> Table:
        """The same table with equal rows made one, of their total weight, and sorted; as it is if it is long.

        So weights and repetitions give the same fit to the last digit, and rows may come in any order. Rows are equal
        only if the same targets are missing in them. Where an order was given, no two rows are equal.
        """
        if len(self) > MOST_SORTED:
            return self
        # NaN is not equal to itself: which entries are missing are columns of their own.
        y = [self.y] if not self.has_gaps else [np.nan_to_num(self.y), np.isnan(self.y)]
        columns = np.column_stack([self.x, *y, *(part for part in (self.noise, self.place) if part is not None)])
        _, first, group = np.unique(columns, axis=0, return_index=True, return_inverse=True)
        table = self.rows(first)
        return replace(table, weight=np.bincount(group, self.weight))

    def append(self, other: Table) -> Table:
        if self.y.shape[1] != other.y.shape[1]:
            raise ValueError(f"the model was fitted on {self.y.shape[1]} target(s), these rows have {other.y.shape[1]}")
        if (self.noise is None) != (other.noise is None):
            raise ValueError(
                "alpha must be set for all rows of a model or for none, and so must n_trials; fit anew to change that"
            )
        noise = None if self.noise is None or other.noise is None else np.concatenate((self.noise, other.noise))
        parts = ((self.x, other.x), (self.y, other.y), (self.weight, other.weight))
        x, y, weight = (np.concatenate(part) for part in parts)
        return Table(x, y, weight, noise, self.vector, self._places_with(other)).merged()

    def _places_with(self, other: Table) -> np.ndarray | None:
        """In an order that was given, more rows come after those that are there."""
        if self.place is None and other.place is None:
            return None
        if self.place is None or other.place is None:
            raise ValueError("ordering must be given for all rows of a model or for none; fit anew to change that")
        return np.concatenate((self.place, self.place.max() + 1 + other.place))


def read_table(
    estimator: Any, X: Any, y: Any, sample_weight: Any, known: Any, reset: bool, order: Any = None, name: str = "alpha"
) -> Table:
    """Check training data; rows of weight zero are left out, and so are those without any target.

    ``known`` is what the parameter called ``name`` says of each row. ``order`` holds the indices of the rows, the first
    one first, where their order matters.
    """
    y, missing = _without_gaps(_to_host(y)) if estimator._takes_gaps(reset) else (_to_host(y), None)
    x, targets = _validated(estimator, _to_host(X), reset, y=y)
    # The rows are kept for partial_fit, and the caller may use the same array for the next ones.
    targets = np.array(targets)
    if missing is not None:
        targets[missing] = np.nan
    y2d = targets.reshape(len(x), -1)
    noise = None if known is None else read_known(known, y2d.shape, name)
    place = None if order is None else _read_order(order, len(x))
    table = Table(np.array(x), y2d, _read_weight(sample_weight, x), noise, targets.ndim == 1, place)
    table = _that_count(table)
    if reset:
        _check_columns(table)
    return table.merged()


def read_classes(
    estimator: Any, X: Any, y: Any, sample_weight: Any, reset: bool, classes: Any = None
) -> tuple[Table, np.ndarray]:
    """Check training data whose targets are labels; the table has their numbers among the ``classes``.

    Without these, they are the labels of the rows that count, in order.
    """
    x, labels = _validated(estimator, _to_host(X), reset, y=_to_host(y), multi_output=False, y_numeric=False)
    check_classification_targets(labels)
    weight = _read_weight(sample_weight, x)
    known = np.unique(labels[weight > 0] if classes is None else np.asarray(_to_host(classes)))
    strange = np.setdiff1d(labels[weight > 0], known)
    if len(strange):
        raise ValueError(
            f"y has labels {strange[:5].tolist()} that are not among the classes {known[:10].tolist()}; name all "
            "classes in the first call of partial_fit, or fit anew"
        )
    if len(known) < 2:
        raise ValueError(f"y has only one class, {known.tolist()}; a classifier needs rows of two classes at least")
    numbers = np.searchsorted(known, labels).clip(max=len(known) - 1).astype(np.float64)
    return _that_count(Table(np.array(x), numbers[:, None], weight, None, vector=True)).merged(), known


def read_inputs(estimator: Any, X: Any) -> np.ndarray:
    """Check inputs of a prediction against those of the fit."""
    x = _to_host(X)
    if not _is_valid_as_it_is(estimator, x):
        x = _validated(estimator, x, reset=False)
    # Torch cannot share the memory of an array that is read-only or runs backwards.
    return x if x.flags.writeable and min(x.strides) >= 0 else x.copy()


def read_known(values: Any, shape: tuple[int, ...], name: str = "alpha") -> np.ndarray:
    """What is known of rows as an array of ``shape`` (row × output), from a number, one for each row, or all."""
    known = np.asarray(_to_host(values), dtype=np.float64)
    known = known[:, None] if known.ndim == 1 else known
    if known.ndim and known.shape not in (shape, (shape[0], 1)):
        raise ValueError(
            f"{name} must be a number or have one entry for each of the {shape[0]} rows, but its shape is {known.shape}"
        )
    if not (np.isfinite(known).all() and (known >= 0).all()):
        raise ValueError(f"{name} holds {MEANING[name]}: they must be finite and not negative")
    return np.broadcast_to(known, shape)


def _read_weight(sample_weight: Any, x: np.ndarray) -> np.ndarray:
    weight = _check_sample_weight(_to_host(sample_weight), x, dtype=np.float64, ensure_non_negative=True, copy=True)
    if weight.sum() <= 0:
        raise ValueError("all sample weights are zero: there is nothing to learn from")
    return weight


def _that_count(table: Table) -> Table:
    """The rows whose weight is not zero, and that have a target."""
    counts = (table.weight > 0) & ~np.isnan(table.y).all(axis=1)
    if not counts.any():
        raise ValueError("Input y contains NaN only: there is nothing to learn from")
    return table if counts.all() else table.rows(np.flatnonzero(counts))


def _check_columns(table: Table) -> None:
    never = np.flatnonzero(np.isnan(table.y).all(axis=0))
    if len(never):
        raise ValueError(
            f"Input y contains NaN in every row of column {never[0]}: a target must have been observed in one row at "
            "least; leave the column out"
        )


def _without_gaps(y: Any) -> tuple[Any, np.ndarray | None]:
    """Several targets with zeros where an entry is missing, and where that is; anything else as it is."""
    try:
        values = np.array(y)
        if values.dtype.kind == "O" and hasattr(y, "convert_dtypes"):
            # Columns of pandas that may have missing entries hold an object of their own there.
            values = y.to_numpy(np.float64, na_value=np.nan)
        if values.dtype.kind == "c":
            return y, None
        values = values.astype(np.float64, copy=False)
    except (TypeError, ValueError):
        return y, None
    missing = np.isnan(values)
    if values.ndim != 2 or values.shape[1] < 2 or not missing.any():
        return y, None
    values[missing] = 0.0
    return values, missing


def _read_order(order: Any, n_rows: int) -> np.ndarray:
    """The place of each row, from the indices of the rows in their order."""
    order = np.asarray(_to_host(order))
    if order.shape != (n_rows,) or not np.array_equal(np.sort(order), np.arange(n_rows)):
        raise ValueError(f"ordering must hold each of the indices 0 to {n_rows - 1} of the {n_rows} rows once")
    return order.argsort()


def check_range(values: np.ndarray, dtype: torch.dtype, name: str) -> None:
    """Raise where the squares of values do not fit into the model's dtype."""
    # Missing targets do not count.
    largest = np.fmax.reduce(np.abs(values), axis=None)
    if not largest < math.sqrt(torch.finfo(dtype).max):
        kind = str(dtype).removeprefix("torch.")
        raise ValueError(
            f"{name} has values as large as {largest:.0e}, which a model in {kind} cannot square; give it in another "
            "unit, or use standardize=True"
        )


def _is_valid_as_it_is(estimator: Any, x: Any) -> bool:
    """Whether scikit-learn's checks would return ``x`` itself; for a single row they take as long as its prediction."""
    return (
        type(x) is np.ndarray
        and x.dtype == np.float64
        and x.ndim == 2
        and x.shape[0] > 0
        and x.shape[1] == estimator.n_features_in_
        and not hasattr(estimator, "feature_names_in_")
        and _has_finite_sum(x)
    )


def _has_finite_sum(x: np.ndarray) -> bool:
    """False where an entry is not finite, and where finite ones add up to more than a number can hold."""
    with np.errstate(over="ignore", invalid="ignore"):
        return math.isfinite(x.sum())


def _validated(estimator: Any, x: Any, reset: bool, **targets: Any) -> Any:
    """Checked inputs, or inputs and targets where ``y`` is given (and then must not be None)."""
    options: dict[str, Any] = {"dtype": np.float64, "reset": reset}
    if targets:
        options.update({"multi_output": True, "y_numeric": True, **targets})
    try:
        checked = validate_data(estimator, x, **options)
        return (checked[0], np.asarray(checked[1], dtype=np.float64)) if options.get("y_numeric") else checked
    except ValueError as error:
        if "could not convert" in str(error):
            raise ValueError(
                f"{error}. The table has columns that are not numbers; encode them first, for example with "
                "sklearn.preprocessing.OneHotEncoder in a pipeline"
            ) from error
        raise


def _to_host(values: Any) -> Any:
    return values.detach().cpu().numpy() if isinstance(values, torch.Tensor) else values
