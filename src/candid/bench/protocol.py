"""The rows of a split in standardised units: means and standard deviations are those of the training part."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from candid.datasets import Dataset, load, train_test_validation_split
from candid.estimators.scaling import Standardizer

__all__ = ["Parts", "load_data", "make_parts"]


@dataclass(frozen=True)
class Parts:
    """Training, test and validation rows."""

    x: np.ndarray
    y: np.ndarray
    x_test: np.ndarray
    y_test: np.ndarray
    x_validation: np.ndarray
    y_validation: np.ndarray


def load_data(names: Sequence[str]) -> dict[str, Dataset]:
    """Data sets for regression by name.

    All of them are asked for at once, because a long run should not end halfway for want of a file.
    """
    found: dict[str, Dataset] = {}
    missing: dict[str, str] = {}
    for name in names:
        try:
            found[name] = load(name)
        except (OSError, ValueError) as error:
            missing[name] = str(error)
    if missing:
        raise FileNotFoundError(
            f"cannot load {', '.join(missing)}: set the environment variable CANDID_DATA to the directory that has "
            f"{next(iter(missing))}.parquet, or leave it out with --data. {next(iter(missing.values()))}"
        )
    for name, data in found.items():
        if data.task != "regression" or data.y.ndim > 1:
            raise ValueError(f"{name} does not have one real target, so it cannot be part of this benchmark")
    return found


def make_parts(data: Dataset, split: int, proportions: Sequence[float]) -> Parts:
    """Split the rows and standardise inputs and target."""
    train, test, validation = train_test_validation_split(len(data.X), split, proportions)
    ones = np.ones(len(train))
    inputs, targets = Standardizer.fit(data.X[train], ones), Standardizer.fit(data.y[train, None], ones)
    x, y = inputs(data.X), targets(data.y[:, None])[:, 0]
    return Parts(x[train], y[train], x[test], y[test], x[validation], y[validation])
