"""The rows of a split in standardised units: means and standard deviations are those of the training part."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

import numpy as np

from candid.datasets import Dataset, load, train_test_validation_split
from candid.estimators.scaling import Standardizer

__all__ = ["Parts", "load_data", "make_parts"]

# Of the choice among the rows of a long data set.
SUBSAMPLING_SEED = 0


@dataclass(frozen=True)
class Parts:
    """Training, test and validation rows."""

    x: np.ndarray
    y: np.ndarray
    x_test: np.ndarray
    y_test: np.ndarray
    x_validation: np.ndarray
    y_validation: np.ndarray


def load_data(names: Sequence[str], task: str = "regression", several_outputs: bool = False) -> dict[str, Dataset]:
    """Data sets by name, for one task and, unless ``several_outputs`` are allowed, with one target each.

    All of them are asked for at once, because a long run should not end halfway for want of a file.
    """
    found: dict[str, Dataset] = {}
    missing: dict[str, str] = {}
    for name in names:
        try:
            found[name] = DERIVED[name]() if name in DERIVED else load(name)
        except (OSError, ValueError) as error:
            missing[name] = str(error)
    if missing:
        raise FileNotFoundError(
            f"cannot load {', '.join(missing)}: set the environment variable CANDID_DATA to the directory that has "
            f"{next(iter(missing))}.parquet, or leave it out with --data. {next(iter(missing.values()))}"
        )
    for name, data in found.items():
        if data.task != task or (data.y.ndim > 1 and not several_outputs):
            kind = "real target" if task == "regression" else "target with classes"
            raise ValueError(f"{name} does not have one {kind}, so it cannot be part of this benchmark")
    return found


def make_parts(
    data: Dataset,
    split: int,
    proportions: Sequence[float],
    inputs: str = "standardised",
    most_rows: int | None = None,
    targets: str = "standardised",
) -> Parts:
    """Split the rows, scale the inputs (to mean 0 and variance 1, or to [−1, 1]) and perhaps standardise real targets.

    Of more than ``most_rows`` rows, so many are taken at random, the same for every split.
    """
    x, y = data.X, data.y
    if most_rows is not None and most_rows < len(x):
        some = np.sort(np.random.default_rng(SUBSAMPLING_SEED).choice(len(x), most_rows, replace=False))
        x, y = x[some], y[some]
    train, test, validation = train_test_validation_split(len(x), split, proportions)
    x = (_to_range if inputs == "range" else _standardised)(x, train)
    if data.task == "regression" and targets == "standardised":
        y = _standardised(y.reshape(len(y), -1), train).reshape(y.shape)
    return Parts(x[train], y[train], x[test], y[test], x[validation], y[validation])


def _standardised(values: np.ndarray, train: np.ndarray) -> np.ndarray:
    return Standardizer.fit(values[train], np.ones(len(train)))(values)


def _to_range(values: np.ndarray, train: np.ndarray) -> np.ndarray:
    low, high = values[train].min(axis=0), values[train].max(axis=0)
    middle, half = (low + high) / 2, np.where(high > low, (high - low) / 2, 1.0)
    return (values - middle) / half


def _cover(name: str, chosen: tuple[str, ...]) -> Dataset:
    """Some kinds of forest against all others."""
    data = load("covtype")
    assert data.classes is not None
    numbers = [number for number, label in enumerate(data.classes) if label in chosen]
    return replace(data, name=name, y=np.isin(data.y, numbers).astype(np.int64), classes=("other", name))


def _without(name: str, columns: tuple[str, ...]) -> Dataset:
    """Less than what is known of each row."""
    data = load(name)
    kept = [number for number, column in enumerate(data.feature_names) if column not in columns]
    names = tuple(data.feature_names[number] for number in kept)
    return replace(data, X=data.X[:, kept], feature_names=names)


#: Data sets that are made of others. In covtype 1 is spruce or fir, 6 Douglas fir, 2 lodgepole pine, 3 ponderosa pine;
#: cardio has ten patterns of heartbeats, where cardiotocography by itself has three diagnoses; with the times of the
#: schedule, flights2024 would tell how late a flight is by a subtraction.
DERIVED: Mapping[str, Callable[[], Dataset]] = MappingProxyType(
    {
        "cardio": lambda: replace(load("cardiotocography", target="y_pattern"), name="cardio"),
        "covtype_fir": lambda: _cover("covtype_fir", ("1", "6")),
        "covtype_pine": lambda: _cover("covtype_pine", ("2", "3")),
        "flights2024": lambda: _without("flights2024", ("sched_dep", "sched_arr")),
    }
)
