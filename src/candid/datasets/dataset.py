"""The one form in which every data set is handed out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from candid.datasets.splits import k_folds, train_test_validation_split

__all__ = ["Dataset"]


@dataclass(frozen=True, eq=False, repr=False)
class Dataset:
    """A table of numbers with its target and what is known about both.

    Attributes
    ----------
    name
        The name it was loaded by.
    X
        Inputs, float64, N×D. Categorical inputs are codes counted from 0, see ``levels``.
    y
        Target: (N,), or (N, P) if there are several. float64 for regression; int64 class numbers from 0 for
        classification.
    feature_names, target_names
        Names of the columns of ``X`` and ``y``.
    task
        ``"regression"`` or ``"classification"``.
    classes
        Class names in the order of their numbers; None for regression.
    description, licence
        One paragraph on content and origin; the terms of use as far as known. Empty if nothing is known.
    official_train_rows
        If the source has an official split: the number of leading rows that are its training part. Else None.
    levels
        For each categorical input the names behind its codes, where they are known.
    """

    name: str
    X: np.ndarray
    y: np.ndarray
    feature_names: tuple[str, ...]
    target_names: tuple[str, ...]
    task: str
    classes: tuple[str, ...] | None = None
    description: str = ""
    licence: str = ""
    official_train_rows: int | None = None
    levels: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def Xy(self) -> tuple[np.ndarray, np.ndarray]:
        """Inputs and target, for ``X, y = load("iris").Xy``."""
        return self.X, self.y

    @cached_property
    def constant_features(self) -> tuple[str, ...]:
        """Names of the inputs that have the same value in every row."""
        constant = (self.X[:1] == self.X).all(axis=0)
        return tuple(name for name, is_constant in zip(self.feature_names, constant, strict=True) if is_constant)

    def split(
        self, seed: int = 0, proportions: Sequence[float] = (15, 3, 2)
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Row numbers of a random train, test and validation part; see :func:`train_test_validation_split`."""
        return train_test_validation_split(len(self.X), seed, proportions)

    def folds(self, k: int = 10, seed: int = 0) -> list[tuple[np.ndarray, np.ndarray]]:
        """Row numbers ``(train, test)`` of each fold of a cross-validation; see :func:`k_folds`."""
        return k_folds(len(self.X), k, seed)

    def official_split(self) -> tuple[np.ndarray, np.ndarray]:
        """Row numbers of the training and the test part that the source prescribes."""
        if self.official_train_rows is None:
            raise ValueError(f"{self.name!r} has no official split; use .split(seed) or .folds(k, seed)")
        rows = np.arange(len(self.X))
        return rows[: self.official_train_rows], rows[self.official_train_rows :]

    def __repr__(self) -> str:
        n, d = self.X.shape
        target = self.task if self.y.ndim == 1 else f"{self.task}, {self.y.shape[1]} outputs"
        if self.classes is not None:
            target = f"{self.task}, {len(self.classes)} classes"
        return f"Dataset({self.name!r}, {n}×{d}, {target})"
