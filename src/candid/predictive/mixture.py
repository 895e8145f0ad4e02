"""A mixture of normals for every entry."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cached_property
from typing import Any, Self, final

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtr

from candid.predictive._checks import own, site_weights, spread
from candid.predictive._mixture_functions import (
    log_mean_exp,
    mixture_crps,
    mixture_quantile,
    mixture_score,
    pick_sites,
    total,
)
from candid.predictive._normal_functions import log_density, standardised
from candid.predictive.base import Predictive

__all__ = ["PredictiveMixture"]

_BLOCK = 1 << 18  # how many numbers a temporary array of a mixture may hold


@final
class PredictiveMixture(Predictive):
    """A mixture of normals for every entry; the components ("sites") are on the last axis.

    Parameters
    ----------
    means, latent_stds : arrays of shape (N, J) or (N, P, J)
    noise_std : array
        Broadcasts to ``(N,)`` or ``(N, P)`` if the sites share their noise. With as many axes as ``means``, the last
        one is that of the sites.
    weights : array that broadcasts to the shape of ``means``, optional
        Sum to one over the sites; equal by default.
    """

    means: np.ndarray
    latent_stds: np.ndarray
    noise_stds: np.ndarray
    weights: np.ndarray

    def __init__(
        self, means: ArrayLike, latent_stds: ArrayLike, noise_std: ArrayLike = 0.0, weights: ArrayLike | None = None
    ) -> None:
        means = own(means, "means")
        if means.ndim not in (2, 3) or means.shape[-1] == 0:
            raise ValueError(f"means must have shape (N, J) or (N, P, J) with at least one site, got {means.shape}")
        latent_stds = spread(latent_stds, "latent_stds", means.shape)
        if np.ndim(noise_std) == means.ndim:
            noise_stds = spread(noise_std, "noise_std", means.shape)
        else:
            noise_stds = np.broadcast_to(spread(noise_std, "noise_std", means.shape[:-1])[..., None], means.shape)
        weights = site_weights(weights, means.shape)
        self._set(means=means, latent_stds=latent_stds, noise_stds=noise_stds, weights=weights)
        mean = total(weights, means)
        # Σ ω v  +  Σ ω (μ − Σωμ)²
        within = self._by_rows(lambda site: total(site.weights, site.latent_stds**2))
        between = self._by_rows(lambda site, mean: total(site.weights, (site.means - mean[..., None]) ** 2), mean)
        noise_std = np.sqrt(self._by_rows(lambda site: total(site.weights, site.noise_stds**2)))
        latent_std = np.sqrt(within + between)
        self._set(mean=mean, latent_std=latent_std, noise_std=noise_std, std=np.hypot(latent_std, noise_std))

    def _by_rows(self, function: Callable[..., np.ndarray], *values: np.ndarray) -> np.ndarray:
        """Apply a function of sites and per-entry values to blocks of rows, so that temporaries stay small."""
        shape = self.means.shape[:-1]
        step = max(1, _BLOCK // max(1, math.prod(self.means.shape[1:])))
        result = np.empty(shape)
        for start in range(0, shape[0], step):
            rows = slice(start, start + step)
            result[rows] = function(_Sites(self, rows), *(value[rows] for value in values))
        return result

    def _select(self, rows: Any) -> Self:
        return type(self)(self.means[rows], self.latent_stds[rows], self.noise_stds[rows], self.weights[rows])

    def _details(self) -> str:
        return f", {self.means.shape[-1]} sites"

    def _cdf(self, y: np.ndarray) -> np.ndarray:
        return self._by_rows(lambda site, y: total(site.weights, ndtr(site.standardised(y))), y)

    def _log_prob(self, y: np.ndarray) -> np.ndarray:
        return self._by_rows(
            lambda site, y: log_mean_exp(log_density(y[..., None] - site.means, site.stds), site.weights), y
        )

    def _crps(self, y: np.ndarray) -> np.ndarray:
        return self._by_rows(lambda site, y: mixture_crps(y, site.means, site.stds, site.weights), y)

    def _z_score(self, y: np.ndarray) -> np.ndarray:
        return self._by_rows(lambda site, y: mixture_score(site.standardised(y), site.weights), y)

    def _quantile(self, level: float) -> np.ndarray:
        return self._by_rows(lambda site: mixture_quantile(level, site.means, site.stds, site.weights))

    def _sample(self, n: int, rng: np.random.Generator) -> np.ndarray:
        mean, latent, noise = pick_sites(self.weights, n, rng, self.means, self.latent_stds, self.noise_stds)
        return mean + np.hypot(latent, noise) * rng.standard_normal(mean.shape)


class _Sites:
    """Components of a mixture for a block of rows."""

    def __init__(self, mixture: PredictiveMixture, rows: slice) -> None:
        self.means, self.weights = mixture.means[rows], mixture.weights[rows]
        self.latent_stds, self.noise_stds = mixture.latent_stds[rows], mixture.noise_stds[rows]

    @cached_property
    def stds(self) -> np.ndarray:
        return np.hypot(self.latent_stds, self.noise_stds)

    def standardised(self, y: np.ndarray) -> np.ndarray:
        return standardised(y[..., None] - self.means, self.stds)
