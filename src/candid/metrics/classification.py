"""How good predicted class probabilities are.

``proba`` is the probability of the second class, shape ``(N,)``, or of every class, shape ``(N, K)``, with columns in
the order of ``classes``. Without ``classes`` they are the sorted labels in ``y``, which must then all occur.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from sklearn.metrics import roc_auc_score

from candid.metrics._checks import average, row_weights

__all__ = ["auc", "error_rate", "expected_calibration_error", "log_loss"]


def error_rate(
    y: ArrayLike, proba: ArrayLike, classes: ArrayLike | None = None, *, sample_weight: ArrayLike | None = None
) -> float:
    """Share of rows whose most probable class is wrong; a tie counts for the first of the tied classes."""
    label, proba = _labelled(y, proba, classes)
    return average((proba.argmax(axis=1) != label).astype(np.float64), sample_weight)


def log_loss(
    y: ArrayLike, proba: ArrayLike, classes: ArrayLike | None = None, *, sample_weight: ArrayLike | None = None
) -> float:
    """Mean negative log probability of the observed class, in nats.

    Probabilities are first raised to the machine epsilon of their data type, so that a rounded zero costs much but not
    infinitely much.
    """
    given = np.asarray(proba)
    smallest = np.finfo(given.dtype).eps if given.dtype.kind == "f" else np.finfo(np.float64).eps
    label, proba = _labelled(y, given, classes)
    observed = np.take_along_axis(proba, label[:, None], axis=1)[:, 0]
    return average(-np.log(np.clip(observed, smallest, 1.0)), sample_weight)


def auc(
    y: ArrayLike, proba: ArrayLike, classes: ArrayLike | None = None, *, sample_weight: ArrayLike | None = None
) -> float:
    """Area under the ROC curve; for more than two classes the mean over classes of one against the rest."""
    label, proba = _labelled(y, proba, classes)
    weight = row_weights(sample_weight, len(label))
    n_classes = proba.shape[1]
    if (np.bincount(label, weights=weight, minlength=n_classes) == 0).any():
        raise ValueError("the AUC needs at least one row (of positive weight) of every class")
    columns = [1] if n_classes == 2 else range(n_classes)
    return float(np.mean([roc_auc_score(label == k, proba[:, k], sample_weight=weight) for k in columns]))


def expected_calibration_error(
    y: ArrayLike,
    proba: ArrayLike,
    n_bins: int = 15,
    classes: ArrayLike | None = None,
    *,
    sample_weight: ArrayLike | None = None,
) -> float:
    """Mean difference between confidence and accuracy, over ``n_bins`` bins of equal width.

    Confidence is the probability of the most probable class, for two classes too. A bin ``(low, high]`` contributes
    |accuracy − mean confidence| times its share of the rows.
    """
    if n_bins < 1:
        raise ValueError(f"n_bins must be at least 1, got {n_bins}")
    label, proba = _labelled(y, proba, classes)
    weight = row_weights(sample_weight, len(label))
    confidence = proba.max(axis=1)
    correct = proba.argmax(axis=1) == label
    bins = np.clip(np.ceil(confidence * n_bins).astype(int) - 1, 0, n_bins - 1)
    # Σ_bins (share of rows) |accuracy − confidence| = Σ_bins |Σ_rows w (correct − confidence)|
    return float(np.abs(np.bincount(bins, weights=weight * (correct - confidence))).sum())


def _labelled(y: ArrayLike, proba: ArrayLike, classes: ArrayLike | None) -> tuple[np.ndarray, np.ndarray]:
    """Column number of every label, and probabilities of shape (N, K)."""
    proba = np.asarray(proba, dtype=np.float64)
    y = np.asarray(y)
    if proba.ndim == 1:
        proba = np.column_stack([1 - proba, proba])
    if proba.ndim != 2 or proba.shape[1] < 2:
        raise ValueError(f"proba must have shape (N,) or (N, K) with K of at least 2, got {proba.shape}")
    if y.shape not in {(len(proba),), (len(proba), 1)} or y.size == 0:
        raise ValueError(f"y has shape {y.shape}, but there are probabilities for {len(proba)} rows")
    if not ((proba >= -1e-6) & (proba <= 1 + 1e-6)).all() or not np.allclose(proba.sum(axis=1), 1, rtol=0, atol=1e-4):
        raise ValueError("proba must hold probabilities: between 0 and 1, with rows that sum to one")
    found, position = np.unique(y.ravel(), return_inverse=True)
    classes = found if classes is None else np.asarray(classes)
    if len(classes) != proba.shape[1]:
        raise ValueError(
            f"proba has {proba.shape[1]} columns for {len(classes)} classes: pass classes=, in the order of the columns"
        )
    columns = {label: column for column, label in enumerate(classes.tolist())}
    unknown = [label for label in found.tolist() if label not in columns]
    if unknown:
        raise ValueError(f"y contains labels that are not among the classes: {unknown[:5]}")
    return np.array([columns[label] for label in found.tolist()])[position.ravel()], proba
