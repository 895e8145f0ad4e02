"""A normal distribution for every entry."""

from __future__ import annotations

import math
from typing import Any, Self, final

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtr, ndtri

from candid.predictive._checks import own, spread
from candid.predictive._normal_functions import log_density, mean_distance, standardised
from candid.predictive.base import Predictive

__all__ = ["PredictiveNormal"]


@final
class PredictiveNormal(Predictive):
    """A normal distribution for every entry.

    Parameters
    ----------
    mean : array of shape (N,) or (N, P)
    latent_std, noise_std : arrays that broadcast to the shape of ``mean``
    """

    def __init__(self, mean: ArrayLike, latent_std: ArrayLike, noise_std: ArrayLike = 0.0) -> None:
        mean = own(mean, "mean")
        if mean.ndim not in (1, 2):
            raise ValueError(f"mean must have shape (N,) or (N, P), got {mean.shape}")
        latent_std = spread(latent_std, "latent_std", mean.shape)
        noise_std = spread(noise_std, "noise_std", mean.shape)
        self._set(mean=mean, latent_std=latent_std, noise_std=noise_std, std=np.hypot(latent_std, noise_std))

    def _select(self, rows: Any) -> Self:
        return type(self)(self.mean[rows], self.latent_std[rows], self.noise_std[rows])

    def _details(self) -> str:
        return ""

    def _cdf(self, y: np.ndarray) -> np.ndarray:
        return ndtr(self._z_score(y))

    def _log_prob(self, y: np.ndarray) -> np.ndarray:
        return log_density(y - self.mean, self.std)

    def _crps(self, y: np.ndarray) -> np.ndarray:
        # E|y − X| − ½ E|X − X'|
        return mean_distance(y - self.mean, self.std) - self.std / math.sqrt(math.pi)

    def _z_score(self, y: np.ndarray) -> np.ndarray:
        return standardised(y - self.mean, self.std)

    def _quantile(self, level: float) -> np.ndarray:
        return self.mean + self.std * ndtri(level)

    def _sample(self, n: int, rng: np.random.Generator) -> np.ndarray:
        return self.mean + self.std * rng.standard_normal((n, *self.shape))
