"""Standardisation: columns with mean zero and standard deviation one, and the way back."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

__all__ = ["Standardizer"]


@dataclass(frozen=True)
class Standardizer:
    """value ↦ (value − shift) / scale, column by column, in float64."""

    shift: np.ndarray
    scale: np.ndarray

    @classmethod
    def identity(cls, n_columns: int) -> Standardizer:
        return cls(np.zeros(n_columns), np.ones(n_columns))

    @classmethod
    def fit(cls, values: np.ndarray, weight: np.ndarray) -> Standardizer:
        """Weighted mean and standard deviation; a constant column is centred and keeps its unit.

        Columns are divided by their largest entry first, so that no square overflows. Entries that are NaN do not
        count; every column has others.
        """
        missing = np.isnan(values)
        if missing.any():
            columns = zip(values.T, ~missing.T, strict=True)
            parts = [cls.fit(column[there, None], weight[there]) for column, there in columns]
            return cls(*(np.concatenate([getattr(part, name) for part in parts]) for name in ("shift", "scale")))
        largest = np.abs(values).max(axis=0)
        largest = np.where(largest > 0, largest, 1.0)
        shares = weight / weight.sum()
        unit = values / largest
        mean = shares @ unit
        std = np.sqrt(shares @ (unit - mean) ** 2)
        constant = std <= 10 * np.finfo(np.float64).eps
        return cls(mean * largest, np.where(constant, 1.0, std * largest))

    def __call__(self, values: np.ndarray) -> np.ndarray:
        return (values - self.shift) / self.scale
