"""Reading tables: numpy, pandas, polars or torch in, checked float64 arrays out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from sklearn.utils.validation import _check_sample_weight, validate_data

__all__ = ["Table", "check_range", "read_inputs", "read_noise", "read_table"]


@dataclass(frozen=True)
class Table:
    """Inputs N×D, targets N×P, weights N (all positive), known noise variances N×P or None.

    ``vector`` tells whether the targets came as a vector.
    """

    x: np.ndarray
    y: np.ndarray
    weight: np.ndarray
    noise: np.ndarray | None
    vector: bool

    def __len__(self) -> int:
        return len(self.x)

    def rows(self, index: np.ndarray) -> Table:
        noise = None if self.noise is None else self.noise[index]
        return Table(self.x[index], self.y[index], self.weight[index], noise, self.vector)

    def append(self, other: Table) -> Table:
        if self.y.shape[1] != other.y.shape[1]:
            raise ValueError(f"the model was fitted on {self.y.shape[1]} target(s), these rows have {other.y.shape[1]}")
        if (self.noise is None) != (other.noise is None):
            raise ValueError("alpha must be set for all rows of a model or for none; fit anew to change that")
        noise = None if self.noise is None or other.noise is None else np.concatenate((self.noise, other.noise))
        parts = ((self.x, other.x), (self.y, other.y), (self.weight, other.weight))
        return Table(*(np.concatenate(part) for part in parts), noise, self.vector)


def read_table(estimator: Any, X: Any, y: Any, sample_weight: Any, alpha: Any, reset: bool) -> Table:
    """Check training data; rows of weight zero are left out."""
    x, targets = _validated(estimator, _to_host(X), _to_host(y), reset=reset)
    weight = _check_sample_weight(_to_host(sample_weight), x, dtype=np.float64, ensure_non_negative=True)
    y2d = targets.reshape(len(x), -1)
    noise = None if alpha is None else read_noise(alpha, y2d.shape)
    table = Table(x, y2d, weight, noise, targets.ndim == 1)
    if weight.sum() <= 0:
        raise ValueError("all sample weights are zero: there is nothing to learn from")
    return table if weight.all() else table.rows(np.flatnonzero(weight))


def read_inputs(estimator: Any, X: Any) -> np.ndarray:
    """Check inputs of a prediction against those of the fit."""
    return _validated(estimator, _to_host(X), None, reset=False)


def read_noise(alpha: Any, shape: tuple[int, ...]) -> np.ndarray:
    """Known noise variances as an array of ``shape`` (row × output), from a number, one for each row, or all."""
    noise = np.asarray(_to_host(alpha), dtype=np.float64)
    noise = noise[:, None] if noise.ndim == 1 else noise
    if noise.ndim and noise.shape not in (shape, (shape[0], 1)):
        raise ValueError(f"alpha must be a number or have one entry for each of the {shape[0]} rows, got {noise.shape}")
    if not (np.isfinite(noise).all() and (noise >= 0).all()):
        raise ValueError("alpha holds noise variances: they must be finite and not negative")
    return np.broadcast_to(noise, shape)


def check_range(values: np.ndarray, dtype: torch.dtype, name: str) -> None:
    """Raise where values do not fit into the model's dtype."""
    if len(values) and np.abs(values).max() > torch.finfo(dtype).max:
        raise ValueError(
            f"{name} has values beyond the range of {dtype}; use standardize=True or dtype='float64', or rescale them"
        )


def _validated(estimator: Any, x: Any, y: Any, reset: bool) -> Any:
    options: dict[str, Any] = {"dtype": np.float64, "reset": reset}
    if y is not None:
        options.update(y=y, multi_output=True, y_numeric=True)
    try:
        checked = validate_data(estimator, x, **options)
    except ValueError as error:
        if "could not convert" in str(error):
            raise ValueError(
                f"{error}. The table has columns that are not numbers; encode them first, for example with "
                "sklearn.preprocessing.OneHotEncoder in a pipeline"
            ) from error
        raise
    return (checked[0], np.asarray(checked[1], dtype=np.float64)) if y is not None else checked


def _to_host(values: Any) -> Any:
    return values.detach().cpu().numpy() if isinstance(values, torch.Tensor) else values
