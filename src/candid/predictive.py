"""Predictive distributions: what a fitted model says about new rows, in the units of y.

Arrays have shape ``(N,)`` for one output or ``(N, P)`` for several; mixtures carry their sites on one more, last, axis.
Everything here is numpy in float64. Rows and outputs are described by their marginals; only :class:`JointNormal` knows
how rows depend on each other. A standard deviation of zero is allowed and means a point mass, which counts half at its
own position in ``cdf``.

References
----------
Grimit, Gneiting, Berrocal, Johnson (2006): the CRPS of a mixture of normals in closed form.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import cached_property
from typing import Any, Self, final

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import erf, log_ndtr, ndtr, ndtri, ndtri_exp

__all__ = ["JointNormal", "Predictive", "PredictiveMixture", "PredictiveNormal"]

_BLOCK = 1 << 18  # how many numbers a temporary array of a mixture may hold


class _Frozen:
    """Attributes are set once, through ``_set``; arrays are read-only."""

    def _set(self, **attributes: np.ndarray) -> None:
        for array in attributes.values():
            array.flags.writeable = False
        self.__dict__.update(attributes)

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"{type(self).__name__} is immutable: build a new one instead of setting {name!r}")


class Predictive(_Frozen, ABC):
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
        """``Φ⁻¹(F(y))``: standard normal if the predictions are calibrated; accurate far into both tails."""
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
        return self._sample(n, _generator(random_state))

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


@final
class PredictiveNormal(Predictive):
    """A normal distribution for every entry.

    Parameters
    ----------
    mean : array of shape (N,) or (N, P)
    latent_std, noise_std : arrays that broadcast to the shape of ``mean``
    """

    def __init__(self, mean: ArrayLike, latent_std: ArrayLike, noise_std: ArrayLike = 0.0) -> None:
        mean = _own(mean, "mean")
        if mean.ndim not in (1, 2):
            raise ValueError(f"mean must have shape (N,) or (N, P), got {mean.shape}")
        latent_std = _spread(latent_std, "latent_std", mean.shape)
        noise_std = _spread(noise_std, "noise_std", mean.shape)
        self._set(mean=mean, latent_std=latent_std, noise_std=noise_std, std=np.hypot(latent_std, noise_std))

    def _select(self, rows: Any) -> Self:
        return type(self)(self.mean[rows], self.latent_std[rows], self.noise_std[rows])

    def _details(self) -> str:
        return ""

    def _cdf(self, y: np.ndarray) -> np.ndarray:
        return ndtr(self._z_score(y))

    def _log_prob(self, y: np.ndarray) -> np.ndarray:
        return _log_density(y - self.mean, self.std)

    def _crps(self, y: np.ndarray) -> np.ndarray:
        # E|y − X| − ½ E|X − X'|
        return _mean_distance(y - self.mean, self.std) - self.std / math.sqrt(math.pi)

    def _z_score(self, y: np.ndarray) -> np.ndarray:
        return _standardised(y - self.mean, self.std)

    def _quantile(self, level: float) -> np.ndarray:
        return self.mean + self.std * ndtri(level)

    def _sample(self, n: int, rng: np.random.Generator) -> np.ndarray:
        return self.mean + self.std * rng.standard_normal((n, *self.shape))


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
        means = _own(means, "means")
        if means.ndim not in (2, 3) or means.shape[-1] == 0:
            raise ValueError(f"means must have shape (N, J) or (N, P, J) with at least one site, got {means.shape}")
        latent_stds = _spread(latent_stds, "latent_stds", means.shape)
        if np.ndim(noise_std) == means.ndim:
            noise_stds = _spread(noise_std, "noise_std", means.shape)
        else:
            noise_stds = np.broadcast_to(_spread(noise_std, "noise_std", means.shape[:-1])[..., None], means.shape)
        weights = _weights(weights, means.shape)
        self._set(means=means, latent_stds=latent_stds, noise_stds=noise_stds, weights=weights)
        mean = _total(weights, means)
        # Σ ω v  +  Σ ω (μ − Σωμ)²
        within = self._by_rows(lambda site: _total(site.weights, site.latent_stds**2))
        between = self._by_rows(lambda site, mean: _total(site.weights, (site.means - mean[..., None]) ** 2), mean)
        noise_std = np.sqrt(self._by_rows(lambda site: _total(site.weights, site.noise_stds**2)))
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
        return self._by_rows(lambda site, y: _total(site.weights, ndtr(site.standardised(y))), y)

    def _log_prob(self, y: np.ndarray) -> np.ndarray:
        return self._by_rows(
            lambda site, y: _log_mean_exp(_log_density(y[..., None] - site.means, site.stds), site.weights), y
        )

    def _crps(self, y: np.ndarray) -> np.ndarray:
        return self._by_rows(lambda site, y: _mixture_crps(y, site.means, site.stds, site.weights), y)

    def _z_score(self, y: np.ndarray) -> np.ndarray:
        return self._by_rows(lambda site, y: _mixture_score(site.standardised(y), site.weights), y)

    def _quantile(self, level: float) -> np.ndarray:
        return self._by_rows(lambda site: _mixture_quantile(level, site.means, site.stds, site.weights))

    def _sample(self, n: int, rng: np.random.Generator) -> np.ndarray:
        # One uniform number per row picks the site, so that the outputs of a row come from the same one.
        uniform = rng.random((n, len(self)) + (1,) * (len(self.shape) - 1))
        site, cumulative = np.zeros((n, *self.shape), dtype=np.intp), np.zeros(self.shape)
        for j in range(self.means.shape[-1] - 1):
            cumulative += self.weights[..., j]
            site += uniform >= cumulative

        def chosen(values: np.ndarray) -> np.ndarray:
            return np.take_along_axis(values[None], site[..., None], axis=-1)[..., 0]

        stds = np.hypot(chosen(self.latent_stds), chosen(self.noise_stds))
        return chosen(self.means) + stds * rng.standard_normal(site.shape)


class _Sites:
    """Components of a mixture for a block of rows."""

    def __init__(self, mixture: PredictiveMixture, rows: slice) -> None:
        self.means, self.weights = mixture.means[rows], mixture.weights[rows]
        self.latent_stds, self.noise_stds = mixture.latent_stds[rows], mixture.noise_stds[rows]

    @cached_property
    def stds(self) -> np.ndarray:
        return np.hypot(self.latent_stds, self.noise_stds)

    def standardised(self, y: np.ndarray) -> np.ndarray:
        return _standardised(y[..., None] - self.means, self.stds)


@final
class JointNormal(_Frozen):
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
        mean, covariance = _own(mean, "mean"), _own(covariance, "covariance")
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
        noise = _generator(random_state).standard_normal((n, len(self)))
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
        values, vectors = np.linalg.eigh(self.covariance)
        if len(values) and values[0] < -1e-3 * np.abs(values).max():
            raise ValueError(
                f"the covariance is not positive semi-definite: its smallest eigenvalue is {values[0]:.3g}"
            )
        return np.clip(values, 0, None), vectors


def _standardised(distance: np.ndarray, std: np.ndarray) -> np.ndarray:
    """``distance / std``, with the limits ±∞ (and 0 for no distance) where ``std`` is zero."""
    with np.errstate(all="ignore"):
        return np.where(distance == 0, 0.0, distance / std)


def _log_density(distance: np.ndarray, std: np.ndarray) -> np.ndarray:
    z = _standardised(distance, std)
    with np.errstate(all="ignore"):
        # log N(d; 0, σ²) = −½ (d/σ)² − log σ − ½ log 2π
        return np.where(np.isinf(z), -np.inf, -0.5 * z * z - np.log(std) - 0.5 * math.log(2 * math.pi))


def _density(z: np.ndarray) -> np.ndarray:
    with np.errstate(all="ignore"):
        return np.exp(-0.5 * z * z) / math.sqrt(2 * math.pi)


def _mean_distance(mean: np.ndarray, std: np.ndarray) -> np.ndarray:
    z = _standardised(mean, std)
    # E|X| = μ (2Φ(μ/σ) − 1) + 2σ φ(μ/σ) for X ~ N(μ, σ²)
    return mean * erf(z / math.sqrt(2)) + 2 * std * _density(z)


def _total(weights: np.ndarray, values: np.ndarray) -> np.ndarray:
    return np.einsum("...j,...j->...", weights, values)


def _log_mean_exp(log_values: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """``log Σ ω exp(log_values)`` over the last axis."""
    with np.errstate(all="ignore"):
        log_values = log_values + np.log(weights)
        top = log_values.max(axis=-1, keepdims=True)
        top = np.where(np.isfinite(top), top, 0.0)
        return np.log(np.exp(log_values - top).sum(axis=-1)) + top[..., 0]


def _mixture_score(z: np.ndarray, weights: np.ndarray) -> np.ndarray:
    lower = _log_mean_exp(log_ndtr(z), weights)
    upper = _log_mean_exp(log_ndtr(-z), weights)
    # From the smaller tail, whose logarithm keeps its digits.
    return np.where(lower < upper, 1.0, -1.0) * ndtri_exp(np.minimum(lower, upper))


def _mixture_crps(y: np.ndarray, means: np.ndarray, stds: np.ndarray, weights: np.ndarray) -> np.ndarray:
    # Σᵢ ωᵢ E|y − Xᵢ| − ½ Σᵢⱼ ωᵢωⱼ E|Xᵢ − Xⱼ|; the pairs i = j give Σ ωᵢ² σᵢ/√π
    score = _total(weights, _mean_distance(y[..., None] - means, stds)) - _total(weights**2, stds) / math.sqrt(math.pi)
    for i in range(means.shape[-1] - 1):
        first, others = slice(i, i + 1), slice(i + 1, None)
        distances = _mean_distance(
            means[..., first] - means[..., others], np.hypot(stds[..., first], stds[..., others])
        )
        score -= weights[..., i] * _total(weights[..., others], distances)
    return score


def _mixture_quantile(level: float, means: np.ndarray, stds: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Solve ``F(x) = level`` by Newton on the scale of normal scores, inside a bracket that bisection shrinks."""
    if level > 0.5:
        return -_mixture_quantile(1 - level, -means, stds, weights)
    shape, n_sites = means.shape[:-1], means.shape[-1]
    means, stds, weights = (array.reshape(-1, n_sites) for array in (means, stds, weights))
    score = ndtri(level)
    # The quantile of a mixture lies between the quantiles of its components.
    ends = means + stds * score
    low = np.where(weights > 0, ends, np.inf).min(axis=-1)
    high = np.where(weights > 0, ends, -np.inf).max(axis=-1)
    mean = _total(weights, means)
    std = np.sqrt(_total(weights, stds**2 + (means - mean[:, None]) ** 2))
    answer = np.clip(mean + std * score, low, high)
    open_rows = np.flatnonzero(high > low)
    for step in range(200):
        if not open_rows.size:
            break
        x, weight, std = answer[open_rows], weights[open_rows], stds[open_rows]
        z = _standardised(x[:, None] - means[open_rows], std)
        below = _total(weight, ndtr(z))
        left = np.where(below < level, x, low[open_rows])
        right = np.where(below < level, high[open_rows], x)
        low[open_rows], high[open_rows] = left, right
        with np.errstate(all="ignore"):
            # x − (Φ⁻¹(F(x)) − Φ⁻¹(level)) / (d/dx Φ⁻¹(F(x)))
            here = ndtri(below)
            newton = x - (here - score) * _density(here) / _total(weight, _density(z) / std)
        inside = (newton > left) & (newton < right)
        middle = left + (right - left) / 2
        resolved = (np.abs(here - score) <= 1e-8) & (np.abs(newton - x) <= 2 * np.finfo(np.float64).eps * np.abs(x))
        solved = (np.abs(below - level) <= 1e-14 * level) | resolved
        narrow = right - left <= 4 * np.finfo(np.float64).eps * np.maximum(np.abs(left), np.abs(right))
        # Rows that Newton has not solved by now get a bisection at every third step, so the bracket always closes.
        following = np.where(inside & ~narrow & (step < 8 or step % 3 > 0), newton, middle)
        answer[open_rows] = np.where(solved, x, following)
        open_rows = open_rows[~(solved | narrow)]
    return answer.reshape(shape)


def _generator(random_state: Any) -> np.random.Generator:
    if isinstance(random_state, np.random.RandomState):
        random_state = random_state.randint(2**31 - 1, size=4)
    return np.random.default_rng(random_state)


def _own(values: ArrayLike, name: str) -> np.ndarray:
    """A finite float64 array that nobody else can change; read-only input is taken without a copy."""
    array = np.asarray(values, dtype=np.float64)
    if not np.isfinite(array).all():
        raise ValueError(f"{name} contains NaN or infinity: the model's prediction has diverged")
    return array.copy() if array.flags.writeable else array


def _spread(values: ArrayLike, name: str, shape: tuple[int, ...]) -> np.ndarray:
    array = _own(values, name)
    if (array < 0).any():
        raise ValueError(f"{name} is a standard deviation and cannot be negative, got {array.min():.3g}")
    return _broadcast(array, name, shape)


def _broadcast(array: np.ndarray, name: str, shape: tuple[int, ...]) -> np.ndarray:
    try:
        return np.broadcast_to(array, shape)
    except ValueError:
        raise ValueError(f"{name} has shape {array.shape}, which does not broadcast to {shape}") from None


def _weights(weights: ArrayLike | None, shape: tuple[int, ...]) -> np.ndarray:
    n_sites = shape[-1]
    array = np.full(n_sites, 1 / n_sites) if weights is None else _own(weights, "weights")
    if array.shape[-1:] != (n_sites,):
        raise ValueError(f"weights have shape {array.shape}, but their last axis must hold the {n_sites} sites")
    total = array.sum(axis=-1, keepdims=True)
    if (array < 0).any() or not np.allclose(total, 1, rtol=0, atol=1e-5):
        raise ValueError("weights must be non-negative and sum to one over the sites (the last axis)")
    exact = np.allclose(total, 1, rtol=0, atol=1e-14)
    return _broadcast(array if exact else array / total, "weights", shape)
