"""Class probabilities for every row."""

from __future__ import annotations

from typing import Any, Self, final

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import logsumexp

from candid.predictive._checks import generator, own
from candid.predictive.base import Frozen

__all__ = ["PredictiveBernoulli", "PredictiveCategorical"]


class PredictiveCategorical(Frozen):
    """Probabilities of K classes for every row.

    Parameters
    ----------
    probabilities : array of shape (N, K)
        Rows sum to one.
    classes : sequence of K labels, optional
        In the order of the columns; 0, …, K − 1 by default.

    Attributes
    ----------
    probabilities, log_probabilities : ndarray of shape (N, K)
    classes : ndarray of shape (K,)
    """

    probabilities: np.ndarray
    log_probabilities: np.ndarray
    classes: np.ndarray

    def __init__(self, probabilities: ArrayLike, classes: ArrayLike | None = None) -> None:
        probabilities = _table(own(probabilities, "probabilities"))
        total = probabilities.sum(axis=1, keepdims=True)
        if (probabilities < 0).any() or not np.allclose(total, 1, rtol=0, atol=1e-5):
            raise ValueError("probabilities must be non-negative and sum to one over the classes (the last axis)")
        with np.errstate(divide="ignore"):
            self._fill(np.log(probabilities / total), classes)

    @classmethod
    def from_log(cls, log_probabilities: ArrayLike, classes: ArrayLike | None = None) -> Self:
        """From logarithms, which keep their digits where a class is nearly certain; rows are normalised."""
        logs = _table(np.array(log_probabilities, dtype=np.float64))
        total = np.asarray(logsumexp(logs, axis=1, keepdims=True))
        if not np.isfinite(total).all():
            raise ValueError("log_probabilities contains NaN or infinity: the model's prediction has diverged")
        distribution = cls.__new__(cls)
        distribution._fill(logs - total, classes)
        return distribution

    def _fill(self, log_probabilities: np.ndarray, classes: ArrayLike | None) -> None:
        n_classes = log_probabilities.shape[1]
        labels = np.arange(n_classes) if classes is None else np.array(classes)
        if labels.shape != (n_classes,) or len(np.unique(labels)) != n_classes:
            raise ValueError(f"classes must be {n_classes} different labels, one for each column, got {classes}")
        self._set(probabilities=np.exp(log_probabilities), log_probabilities=log_probabilities, classes=labels)

    def labelled(self, classes: ArrayLike) -> Self:
        """The same probabilities, of classes with other labels."""
        return type(self).from_log(self.log_probabilities, classes)

    @property
    def mode(self) -> np.ndarray:
        """The most probable class of every row; of tied ones the first."""
        return self.classes[self.log_probabilities.argmax(axis=1)]

    def __len__(self) -> int:
        return len(self.probabilities)

    def __getitem__(self, rows: Any) -> Self:
        """The same for some rows: a slice, a mask, row numbers, or one number (which keeps the axis)."""
        if isinstance(rows, tuple):
            raise IndexError("a predictive distribution is indexed by rows only, got several indices")
        rows = [int(rows)] if isinstance(rows, int | np.integer) else rows
        return type(self).from_log(self.log_probabilities[rows], self.classes)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self)} rows, {len(self.classes)} classes)"

    def log_prob(self, y: ArrayLike) -> np.ndarray:
        """Log probability of the labels ``y`` (one label, or one per row)."""
        columns = self._columns(np.asarray(y))
        return np.take_along_axis(self.log_probabilities, columns[:, None], axis=1)[:, 0]

    def entropy(self) -> np.ndarray:
        """``−Σ p log p`` of every row, in nats: zero for a certain class, log K for no idea."""
        logs = np.where(self.probabilities > 0, self.log_probabilities, 0.0)
        return -(self.probabilities * logs).sum(axis=1) + 0.0

    def sample(self, n: int = 1, random_state: Any = None) -> np.ndarray:
        """``n`` labels for every row, shape ``(n, N)``; rows are drawn independently.

        ``random_state`` is None, a seed, a ``numpy.random.Generator`` or a ``numpy.random.RandomState``.
        """
        uniform = generator(random_state).random((n, len(self)))
        column, cumulative = np.zeros((n, len(self)), dtype=np.intp), np.zeros(len(self))
        for k in range(len(self.classes) - 1):
            cumulative = cumulative + self.probabilities[:, k]
            column += uniform >= cumulative
        return self.classes[column]

    def _columns(self, y: np.ndarray) -> np.ndarray:
        """Column number of every label."""
        y = np.broadcast_to(y, len(self)) if y.ndim == 0 else y
        if y.shape not in {(len(self),), (len(self), 1)}:
            raise ValueError(f"y has shape {y.shape}, but there are predictions for {len(self)} rows")
        columns = {label: column for column, label in enumerate(self.classes.tolist())}
        found, position = np.unique(y.ravel(), return_inverse=True)
        unknown = [label for label in found.tolist() if label not in columns]
        if unknown:
            raise ValueError(f"y contains labels that are not among the classes: {unknown[:5]}")
        return np.array([columns[label] for label in found.tolist()], dtype=np.intp)[position]


@final
class PredictiveBernoulli(PredictiveCategorical):
    """Probabilities of two classes for every row.

    Parameters
    ----------
    probability : array of shape (N,)
        Of the second class.
    classes : two labels, optional
        0 and 1 by default.
    """

    def __init__(self, probability: ArrayLike, classes: ArrayLike | None = None) -> None:
        probability = own(probability, "probability")
        if probability.ndim != 1:
            raise ValueError(f"probability must have shape (N,), got {probability.shape}")
        if ((probability < 0) | (probability > 1)).any():
            raise ValueError("probability must lie between 0 and 1")
        with np.errstate(divide="ignore"):
            self._fill(np.column_stack([np.log1p(-probability), np.log(probability)]), classes)

    @property
    def probability(self) -> np.ndarray:
        """Of the second class, shape ``(N,)``."""
        return self.probabilities[:, 1]

    def _fill(self, log_probabilities: np.ndarray, classes: ArrayLike | None) -> None:
        if log_probabilities.shape[1] != 2:
            raise ValueError(f"there must be two classes, got {log_probabilities.shape[1]}")
        super()._fill(log_probabilities, classes)


def _table(array: np.ndarray) -> np.ndarray:
    if array.ndim != 2 or array.shape[1] < 2:
        raise ValueError(f"class probabilities must have shape (N, K) with K of at least 2, got {array.shape}")
    return array
