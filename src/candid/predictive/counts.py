"""Counts for every entry, given a normal latent value: binomial and negative binomial, with a logistic link."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable
from itertools import pairwise
from typing import Any, Self, final

import numpy as np
import torch
from numpy.typing import ArrayLike
from scipy.special import betainc, expit, ndtri
from torch import Tensor

from candid.likelihoods.counts import BinomialRows, NegativeBinomialRows
from candid.predictive._checks import broadcast, own, site_weights, spread
from candid.predictive._mixture_functions import log_mean_exp, pick_sites, total
from candid.predictive.base import Predictive

__all__ = ["PredictiveBinomial", "PredictiveCounts", "PredictiveNegativeBinomial"]

# Averages over the latent value: from so many to so many evenly spaced nodes, within so many standard deviations.
LEAST_NODES, MOST_NODES, REACH = 96, 2048, 6.5
# Numbers that a temporary array may hold.
BLOCK = 1 << 20
# Between the quantiles of this level and one minus it the CRPS knows F at the first counts, so many, at so many spaced
# evenly, and at so many with growing steps; between these it takes a line.
TAIL, CRPS_COUNTS = 1e-6, 128


class PredictiveCounts(Predictive):
    """A distribution of counts 0, 1, … for every entry; with several sites, a mixture of such.

    ``cdf`` is the probability of a count up to ``y``, ``log_prob`` the logarithm of the probability of ``y``, and
    quantiles are the smallest counts that reach their level. In ``z_score`` the count itself counts half.

    Attributes
    ----------
    locations, deviations, weights : ndarray of shape (N, J) or (N, P, J)
        Mean and standard deviation of the latent value of each site, and what the sites count.
    """

    locations: np.ndarray
    deviations: np.ndarray
    size: np.ndarray
    weights: np.ndarray

    def __init__(
        self, locations: ArrayLike, deviations: ArrayLike, size: ArrayLike, weights: ArrayLike | None = None
    ) -> None:
        locations = own(locations, "locations")
        if locations.ndim not in (2, 3) or locations.shape[-1] == 0:
            raise ValueError(f"locations must have shape (N, J) or (N, P, J), got {locations.shape}")
        deviations, weights = spread(deviations, "deviations", locations.shape), site_weights(weights, locations.shape)
        given = own(size, self._size_name)
        given = (
            given
            if given.ndim == locations.ndim
            else broadcast(given, self._size_name, locations.shape[:-1])[..., None]
        )
        size = broadcast(given, self._size_name, locations.shape)
        if (size <= 0).any():
            raise ValueError(f"{self._size_name} must be positive")
        self._set(locations=locations, deviations=deviations, size=size, weights=weights)
        first, second, noise = self._moments()
        mean = total(weights, first)
        latent = np.sqrt(np.maximum(total(weights, second) - mean**2, 0.0))
        noise = np.sqrt(total(weights, noise))
        self._set(mean=mean, latent_std=latent, noise_std=noise, std=np.hypot(latent, noise))

    _size_name: str

    @abstractmethod
    def _moments(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Of each site, over f: E m, E m² and E v, where m and v are mean and variance of the count given f."""

    @abstractmethod
    def _tail(self, y: np.ndarray, f: np.ndarray, size: np.ndarray) -> np.ndarray:
        """Probability of a count up to y ≥ 0, given f."""

    @abstractmethod
    def _log_mass(self, y: Tensor, mean: Tensor, variance: Tensor, size: Tensor) -> Tensor:
        """log E p(y|f)."""

    @abstractmethod
    def _possible(self, y: np.ndarray) -> np.ndarray: ...

    @abstractmethod
    def _observe(self, f: np.ndarray, size: np.ndarray, rng: np.random.Generator) -> np.ndarray: ...

    def _average(self, function: Callable[..., np.ndarray], *values: np.ndarray) -> np.ndarray:
        """E g(f, …) of each site, where g sees a last axis of nodes."""
        # Given f, a relative change of counts of 1/√size is noise: nodes are closer together than that.
        wanted = 2 * REACH * float(self.deviations.max(initial=0.0)) * math.sqrt(float(self.size.max(initial=1.0)))
        n_nodes = int(np.clip(wanted, LEAST_NODES, MOST_NODES))
        x = REACH * (2 * (np.arange(n_nodes) + 0.5) / n_nodes - 1)
        weight = np.exp(-0.5 * x**2)
        weight /= weight.sum()
        result = np.empty(self.locations.shape)
        step = max(1, BLOCK // (n_nodes * max(1, math.prod(self.locations.shape[1:]))))
        for start in range(0, len(result), step):
            rows = slice(start, start + step)
            f = self.locations[rows, ..., None] + self.deviations[rows, ..., None] * x
            result[rows] = function(f, *(value[rows, ..., None] for value in values)) @ weight
        return result

    def _select(self, rows: Any) -> Self:
        return type(self)(self.locations[rows], self.deviations[rows], self.size[rows], self.weights[rows])

    def _details(self) -> str:
        sites = self.locations.shape[-1]
        return f", {sites} sites" if sites > 1 else ""

    def _log_prob(self, y: np.ndarray) -> np.ndarray:
        possible = self._possible(y)
        at_sites = np.where(possible, y, 0.0)[..., None]
        parts = (at_sites, self.locations, self.deviations**2, self.size)
        logs = self._log_mass(*(torch.from_numpy(np.array(part)) for part in parts)).numpy()
        return np.where(possible, log_mean_exp(logs, self.weights), -np.inf)

    def _cdf(self, y: np.ndarray) -> np.ndarray:
        counts = np.floor(y)
        at_sites = np.broadcast_to(np.maximum(counts, 0.0)[..., None], self.locations.shape)
        below = self._average(lambda f, k, size: self._tail(k, f, size), at_sites, self.size)
        return np.where(counts < 0, 0.0, np.clip(total(self.weights, below), 0.0, 1.0))

    def _z_score(self, y: np.ndarray) -> np.ndarray:
        middle = self._cdf(y) - 0.5 * np.exp(self._log_prob(y))
        return ndtri(np.clip(middle, 1e-300, 1 - 1e-16))

    def _crps(self, y: np.ndarray) -> np.ndarray:
        # Σ_k (F(k) − 1[k ≥ y])² over all whole numbers; F is zero before the first count and one from the last one on
        first, last, observed = self._quantile(TAIL), self._quantile(1 - TAIL), np.ceil(y)
        score = np.maximum(first - observed, 0.0) + np.maximum(observed - last, 0.0)
        edges = _edges(first, last, np.clip(observed, first, last))
        for (low, high), (at_low, at_high) in zip(pairwise(edges), pairwise(map(self._cdf, edges)), strict=True):
            step = (low >= observed).astype(float)
            score += _squares_on_line(at_low - step, at_high - step, high - low)
        return score

    def _quantile(self, level: float) -> np.ndarray:
        low, high = np.full(self.shape, -1.0), np.ceil(self.mean + 4 * self.std) + 1
        while (short := self._cdf(high) < level).any():
            high = np.where(short, 2 * high, high)
        # F(low) < level ≤ F(high)
        while (high - low > 1).any():
            middle = np.floor((low + high) / 2)
            enough = self._cdf(middle) >= level
            low, high = np.where(enough, low, middle), np.where(enough, middle, high)
        return high

    def _sample(self, n: int, rng: np.random.Generator) -> np.ndarray:
        mean, std, size = pick_sites(self.weights, n, rng, self.locations, self.deviations, self.size)
        return self._observe(mean + std * rng.standard_normal(mean.shape), size, rng).astype(np.float64)


def _edges(first: np.ndarray, last: np.ndarray, between: np.ndarray) -> np.ndarray:
    """Some counts of each entry, in order; all of them if they are few."""
    number, width = np.arange(CRPS_COUNTS).reshape(-1, *(1,) * first.ndim), last - first
    share = number / (CRPS_COUNTS - 1)
    counts = np.concatenate([np.minimum(number, width), share * width, np.expm1(share * np.log1p(width))])
    return np.sort(np.concatenate([first + counts.round(), between[None]]), axis=0)


def _squares_on_line(start: np.ndarray, stop: np.ndarray, count: np.ndarray) -> np.ndarray:
    """Σ (a + s i)² for i = 0, …, n − 1, where a + s n is ``stop``."""
    slope = (stop - start) / np.maximum(count, 1.0)
    # n a² + a s n(n − 1) + s² n(n − 1)(2n − 1)/6
    pairs = count * (count - 1)
    return count * start**2 + start * slope * pairs + slope**2 * pairs * (2 * count - 1) / 6


@final
class PredictiveBinomial(PredictiveCounts):
    """Successes out of a number of trials, each a success with probability σ(f).

    Parameters
    ----------
    locations, deviations : arrays of shape (N, J) or (N, P, J)
        Mean and standard deviation of f at each site.
    trials : array
        Broadcasts to ``(N,)`` or ``(N, P)``, or to ``locations`` if it has as many axes.
    weights : array that broadcasts to the shape of ``locations``, optional
        Sum to one over the sites; equal by default.
    """

    _size_name = "trials"

    def __init__(
        self, locations: ArrayLike, deviations: ArrayLike, trials: ArrayLike, weights: ArrayLike | None = None
    ) -> None:
        super().__init__(locations, deviations, trials, weights)

    def _moments(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        share = self._average(expit)
        square = self._average(lambda f: expit(f) ** 2)
        return self.size * share, self.size**2 * square, self.size * (share - square)

    def _tail(self, y: np.ndarray, f: np.ndarray, size: np.ndarray) -> np.ndarray:
        # F(y) = I_{1−p}(n − y, y + 1)
        return np.where(y >= size, 1.0, betainc(np.maximum(size - y, 0.5), y + 1, expit(-f)))

    def _log_mass(self, y: Tensor, mean: Tensor, variance: Tensor, size: Tensor) -> Tensor:
        return BinomialRows(size).log_expected_density(y, mean, variance)

    def _possible(self, y: np.ndarray) -> np.ndarray:
        return (y >= 0) & (y == np.floor(y)) & (y <= self.size.min(axis=-1))

    def _observe(self, f: np.ndarray, size: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        return rng.binomial(size.astype(np.int64), expit(f))


@final
class PredictiveNegativeBinomial(PredictiveCounts):
    """Counts with mean r·exp(f) and variance mean + mean²/r, where r is the concentration.

    Parameters
    ----------
    locations, deviations : arrays of shape (N, J) or (N, P, J)
        Mean and standard deviation of f at each site.
    concentration : array
        Broadcasts to ``(N,)`` or ``(N, P)``, or to ``locations`` if it has as many axes.
    weights : array that broadcasts to the shape of ``locations``, optional
        Sum to one over the sites; equal by default.
    """

    _size_name = "concentration"

    def __init__(
        self, locations: ArrayLike, deviations: ArrayLike, concentration: ArrayLike, weights: ArrayLike | None = None
    ) -> None:
        super().__init__(locations, deviations, concentration, weights)

    def _moments(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        # E exp(f) and E exp(2f)
        first = self.size * np.exp(self.locations + 0.5 * self.deviations**2)
        second = self.size**2 * np.exp(2 * self.locations + 2 * self.deviations**2)
        return first, second, first + second / self.size

    def _tail(self, y: np.ndarray, f: np.ndarray, size: np.ndarray) -> np.ndarray:
        # F(y) = I_{1−p}(r, y + 1)
        return betainc(size, y + 1, expit(-f))

    def _log_mass(self, y: Tensor, mean: Tensor, variance: Tensor, size: Tensor) -> Tensor:
        return NegativeBinomialRows(size).log_expected_density(y, mean, variance)

    def _possible(self, y: np.ndarray) -> np.ndarray:
        return (y >= 0) & (y == np.floor(y))

    def _observe(self, f: np.ndarray, size: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        return rng.negative_binomial(size, expit(-f))
