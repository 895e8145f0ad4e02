"""What every predictive distribution can be asked."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from candid.predictive._checks import generator

__all__ = ["Frozen", "Predictive"]


class Frozen:
    """Attributes are set once, through ``_set``; arrays are read-only."""

    def _set(self, **attributes: np.ndarray) -> None:
        for array in attributes.values():
            array.flags.writeable = False
        self.__dict__.update(attributes)

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"{type(self).__name__} is immutable: build a new one instead of setting {name!r}")


class Predictive(Frozen, ABC):
    """A distribution for every entry of an ``(N,)`` or ``(N, P)`` array of targets.

    Attributes
    ----------
    mean, std : ndarray
        Moments of a new observation.
    latent_std, noise_std : ndarray
        The two parts of ``std``: uncertainty about the function, and observation noise (``std² = latent² + noise²``).
    """

    mean: np.ndarray
    std: np.ndarray
    latent_std: np.ndarray
    noise_std: np.ndarray

    @property
    def shape(self) -> tuple[int, ...]:
        """``(N,)`` or ``(N, P)``."""
        return self.mean.shape

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: Any) -> Self:
        """The same distribution for some rows: a slice, a mask, row numbers, or one number (which keeps the axis)."""
        if isinstance(rows, tuple):
            raise IndexError("a predictive distribution is indexed by rows only, got several indices")
        return self._select([int(rows)] if isinstance(rows, int | np.integer) else rows)

    def __repr__(self) -> str:
        outputs = f", {self.shape[1]} outputs" if len(self.shape) > 1 else ""
        return f"{type(self).__name__}({len(self)} rows{outputs}{self._details()})"

    def cdf(self, y: ArrayLike) -> np.ndarray:
        """Probability of an observation below ``y`` (one number, or one per entry)."""
        return self._cdf(self._targets(y))

    def log_prob(self, y: ArrayLike) -> np.ndarray:
        """Log density at ``y`` (one number, or one per entry)."""
        return self._log_prob(self._targets(y))

    def crps(self, y: ArrayLike) -> np.ndarray:
        """Continuous ranked probability score ``∫ (F(t) − 1[t ≥ y])² dt``, in the units of y; smaller is better."""
        return self._crps(self._targets(y))

    def z_score(self, y: ArrayLike) -> np.ndarray:
        """``Φ⁻¹(F(y))``: standard normal if the predictions are calibrated; accurate far into both tails.

        Those of Student's t noise are, as far as one in 10⁹ lies beyond ``y``.
        """
        return self._z_score(self._targets(y))

    def quantile(self, q: ArrayLike) -> np.ndarray:
        """Quantiles at probabilities ``0 < q < 1``; an array ``q`` puts its axis before those of ``mean``."""
        levels = np.asarray(q, dtype=np.float64)
        if levels.ndim > 1:
            raise ValueError(f"q must be a number or a one-dimensional array, got shape {levels.shape}")
        if not np.all((levels > 0) & (levels < 1)):
            raise ValueError(f"quantiles need probabilities strictly between 0 and 1, got {q}")
        if levels.ndim == 0:
            return self._quantile(float(levels))
        return np.array([self._quantile(float(level)) for level in levels]).reshape(len(levels), *self.shape)

    def interval(self, level: float = 0.95) -> tuple[np.ndarray, np.ndarray]:
        """Lower and upper end of the central interval that holds an observation with probability ``level``."""
        if not 0 < level < 1:
            raise ValueError(f"the level of an interval lies strictly between 0 and 1, got {level}")
        return self.quantile((1 - level) / 2), self.quantile((1 + level) / 2)

    def sample(self, n: int = 1, random_state: Any = None) -> np.ndarray:
        """``n`` observations for every entry, shape ``(n, N[, P])``; rows are drawn independently.

        ``random_state`` is None, a seed, a ``numpy.random.Generator`` or a ``numpy.random.RandomState``.
        """
        return self._sample(n, generator(random_state))

    def _targets(self, y: ArrayLike) -> np.ndarray:
        values = np.asarray(y, dtype=np.float64)
        if values.ndim == 0:
            values = np.broadcast_to(values, self.shape)
        elif values.shape in {(len(self), 1), (len(self),)} and values.size == math.prod(self.shape):
            values = values.reshape(self.shape)
        if values.shape != self.shape:
            raise ValueError(f"y has shape {values.shape}, but the predictions have shape {self.shape}")
        if np.isnan(values).any():
            raise ValueError("y contains NaN: drop the rows whose target is missing")
        return values

    @abstractmethod
    def _select(self, rows: Any) -> Self: ...

    @abstractmethod
    def _details(self) -> str: ...

    @abstractmethod
    def _cdf(self, y: np.ndarray) -> np.ndarray: ...

    @abstractmethod
    def _log_prob(self, y: np.ndarray) -> np.ndarray: ...

    @abstractmethod
    def _crps(self, y: np.ndarray) -> np.ndarray: ...

    @abstractmethod
    def _z_score(self, y: np.ndarray) -> np.ndarray: ...

    @abstractmethod
    def _quantile(self, level: float) -> np.ndarray: ...

    @abstractmethod
    def _sample(self, n: int, rng: np.random.Generator) -> np.ndarray: ...
