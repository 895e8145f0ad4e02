"""Checks and averages that all metrics share."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from candid.predictive import Predictive

__all__ = ["average", "row_weights", "scale_of", "targets"]


def targets(y: ArrayLike, p: Predictive) -> np.ndarray:
    """``y`` in the shape of the predictions, one value per entry and none missing."""
    if not isinstance(p, Predictive):
        raise ValueError(
            f"{type(p).__name__} is no distribution of real numbers; for classes there are log_loss, error_rate and auc"
        )
    values = np.asarray(y, dtype=np.float64)
    if len(p) == 0:
        raise ValueError("there are no rows to score")
    if values.shape in {(len(p),), (len(p), 1)} and values.size == p.mean.size:
        values = values.reshape(p.shape)
    if values.shape != p.shape:
        raise ValueError(f"y has shape {values.shape}, but the predictions have shape {p.shape}")
    if not np.isfinite(values).all():
        raise ValueError("y contains NaN or infinity: drop those rows first")
    return values


def row_weights(sample_weight: ArrayLike | None, n_rows: int) -> np.ndarray:
    """Weights of the rows that sum to one; equal ones for None."""
    if sample_weight is None:
        return np.full(n_rows, 1 / n_rows)
    weight = np.asarray(sample_weight, dtype=np.float64)
    if weight.shape != (n_rows,):
        raise ValueError(f"sample_weight has shape {weight.shape}, but there are {n_rows} rows")
    if not np.isfinite(weight).all() or (weight < 0).any() or weight.sum() <= 0:
        raise ValueError("sample_weight must be finite and non-negative, with at least one positive entry")
    return weight / weight.sum()


def average(values: np.ndarray, sample_weight: ArrayLike | None = None) -> float:
    """Weighted mean over rows of the plain mean over outputs; rows of weight zero are left out."""
    weight = row_weights(sample_weight, len(values))
    per_row = values.reshape(len(values), -1).mean(axis=1)
    counted = weight > 0
    return float(weight[counted] @ per_row[counted])


def scale_of(scale: ArrayLike | None, p: Predictive) -> np.ndarray:
    """The unit in which y is measured: one positive number, or one per output."""
    unit = np.asarray(1.0 if scale is None else scale, dtype=np.float64)
    if unit.ndim and unit.shape not in {(1,), p.shape[1:]}:
        raise ValueError(f"scale must be one number or one per output, got shape {unit.shape}")
    if not np.isfinite(unit).all() or (unit <= 0).any():
        raise ValueError(f"scale must be positive, got {scale}")
    return np.broadcast_to(unit, p.shape[1:] or (1,)) if unit.ndim else unit
