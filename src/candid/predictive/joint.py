"""One normal distribution over all rows together."""

from __future__ import annotations

import math
from functools import cached_property
from typing import Any, final

import numpy as np
from numpy.typing import ArrayLike

from candid.predictive._checks import generator, own
from candid.predictive.base import Frozen

__all__ = ["JointNormal"]


@final
class JointNormal(Frozen):
    """One normal distribution over all N rows together; the covariance may be singular.

    Parameters
    ----------
    mean : array of shape (N,)
    covariance : array of shape (N, N)
        Eigenvalues that rounding made negative count as zero.
    """

    mean: np.ndarray
    covariance: np.ndarray
    std: np.ndarray

    def __init__(self, mean: ArrayLike, covariance: ArrayLike) -> None:
        mean, covariance = own(mean, "mean"), own(covariance, "covariance")
        if mean.ndim != 1 or covariance.shape != (len(mean), len(mean)):
            raise ValueError(
                f"a joint normal needs shapes (N,) and (N, N), got mean {mean.shape} and covariance {covariance.shape}"
            )
        if not np.allclose(covariance, covariance.T, rtol=1e-5, atol=1e-6 * np.abs(covariance).max(initial=0.0)):
            raise ValueError("the covariance is not symmetric")
        covariance = (covariance + covariance.T) / 2
        self._set(mean=mean, covariance=covariance, std=np.sqrt(np.clip(np.diag(covariance), 0, None)))

    def __len__(self) -> int:
        return len(self.mean)

    def __getitem__(self, rows: Any) -> JointNormal:
        """The joint distribution of some rows."""
        index = np.atleast_1d(np.arange(len(self))[rows])
        return JointNormal(self.mean[index], self.covariance[np.ix_(index, index)])

    def __repr__(self) -> str:
        return f"JointNormal({len(self)} rows)"

    def sample(self, n: int = 1, random_state: Any = None) -> np.ndarray:
        """``n`` joint draws, shape ``(n, N)``."""
        values, vectors = self._eigen
        noise = generator(random_state).standard_normal((n, len(self)))
        return self.mean + (noise * np.sqrt(values)) @ vectors.T

    def log_prob(self, y: ArrayLike) -> np.ndarray:
        """Joint log density at ``y`` of shape ``(N,)`` or ``(…, N)``.

        For a singular covariance: the density on the subspace that carries the distribution, and −∞ off it.
        """
        y = np.asarray(y, dtype=np.float64)
        if y.shape[-1:] != (len(self),):
            raise ValueError(f"y has shape {y.shape}, but its last axis must hold the {len(self)} rows")
        if np.isnan(y).any():
            raise ValueError("y contains NaN: take the joint distribution of the rows with a target first")
        values, vectors = self._eigen
        cutoff = len(self) * np.finfo(np.float64).eps * values.max(initial=0.0)
        carried = values > cutoff
        rotated = (y - self.mean) @ vectors
        # −½ (y−μ)ᵀ C⁺ (y−μ) − ½ log pdet(2πC)
        log_density = -0.5 * np.sum(rotated[..., carried] ** 2 / values[carried], axis=-1)
        log_density = log_density - 0.5 * np.sum(np.log(2 * math.pi * values[carried]))
        scale = np.abs(self.mean).max(initial=0.0) + np.abs(y).max(initial=0.0)
        tolerance = 10 * math.sqrt(cutoff * len(self)) + 1e-13 * scale
        return np.where(np.linalg.norm(rotated[..., ~carried], axis=-1) > tolerance, -np.inf, log_density)

    @cached_property
    def _eigen(self) -> tuple[np.ndarray, np.ndarray]:
        diagonal = np.diag(self.covariance)
        if np.count_nonzero(self.covariance) == np.count_nonzero(diagonal):
            order = np.argsort(diagonal)
            values, vectors = diagonal[order], np.eye(len(self))[:, order]
        else:
            values, vectors = np.linalg.eigh(self.covariance)
        if len(values) and values[0] < -1e-3 * np.abs(values).max():
            raise ValueError(
                f"the covariance is not positive semi-definite: its smallest eigenvalue is {values[0]:.3g}"
            )
        return np.clip(values, 0, None), vectors
