"""Standardisation: columns with mean zero and standard deviation one, and the way back."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch

from candid.linalg import incomplete_moments

__all__ = ["Standardizer"]

# Of tables with gaps, so many rows tell mean and deviation; below the last number a column counts as constant.
MOST_INCOMPLETE, CONSTANT = 20_000, 1e-2


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

        Columns are divided by their largest entry first, so that no square overflows, and the first row is subtracted,
        so that what is constant is zero. Entries that are NaN are expected to be what the others of their row say;
        every column has others.
        """
        missing = np.isnan(values)
        if missing.any():
            return cls._fit_incomplete(values, missing, weight)
        largest = np.abs(values).max(axis=0)
        largest = np.where(largest > 0, largest, 1.0)
        shares = weight / weight.sum()
        first = values[0] / largest
        rest = values / largest - first
        mean = shares @ rest
        std = np.sqrt(shares @ (rest - mean) ** 2)
        constant = std <= 10 * np.finfo(np.float64).eps
        return cls((first + mean) * largest, np.where(constant, 1.0, std * largest))

    @classmethod
    def _fit_incomplete(cls, values: np.ndarray, missing: np.ndarray, weight: np.ndarray) -> Standardizer:
        columns = zip(values.T, ~missing.T, strict=True)
        parts = [cls.fit(column[there, None], weight[there]) for column, there in columns]
        of_observed = cls(*(np.concatenate([getattr(part, name) for part in parts]) for name in ("shift", "scale")))
        some = slice(None, None, math.ceil(len(values) / MOST_INCOMPLETE))
        moments = incomplete_moments(*(torch.from_numpy(part[some]) for part in (of_observed(values), weight)))
        scale = moments.covariance.diagonal().sqrt().numpy()
        return cls(
            of_observed.shift + of_observed.scale * moments.mean.numpy(),
            of_observed.scale * np.where(scale > CONSTANT, scale, 1.0),
        )

    def __call__(self, values: np.ndarray) -> np.ndarray:
        return (values - self.shift) / self.scale
