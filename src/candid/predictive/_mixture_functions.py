"""Functions of mixtures of normals; the sites are on the last axis."""

from __future__ import annotations

import numpy as np
from scipy.special import log_ndtr, ndtr, ndtri, ndtri_exp

from candid.predictive._mean_difference import half_mean_difference
from candid.predictive._normal_functions import density, mean_distance, standardised

__all__ = ["log_mean_exp", "mixture_crps", "mixture_quantile", "mixture_score", "pick_sites", "total"]


def total(weights: np.ndarray, values: np.ndarray) -> np.ndarray:
    return np.einsum("...j,...j->...", weights, values)


def log_mean_exp(log_values: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """``log Σ ω exp(log_values)`` over the last axis."""
    with np.errstate(all="ignore"):
        log_values = log_values + np.log(weights)
        top = log_values.max(axis=-1, keepdims=True)
        top = np.where(np.isfinite(top), top, 0.0)
        return np.log(np.exp(log_values - top).sum(axis=-1)) + top[..., 0]


def pick_sites(weights: np.ndarray, n: int, rng: np.random.Generator, *values: np.ndarray) -> list[np.ndarray]:
    """``n`` times the values (…, site) of one site for each entry.

    One uniform number for each row picks the site, so that the outputs of a row come from the same one.
    """
    shape = weights.shape[:-1]
    uniform = rng.random((n, shape[0]) + (1,) * (len(shape) - 1))
    site, cumulative = np.zeros((n, *shape), dtype=np.intp), np.zeros(shape)
    for j in range(weights.shape[-1] - 1):
        cumulative += weights[..., j]
        site += uniform >= cumulative
    return [np.take_along_axis(value[None], site[..., None], axis=-1)[..., 0] for value in values]


def mixture_score(z: np.ndarray, weights: np.ndarray) -> np.ndarray:
    lower = log_mean_exp(log_ndtr(z), weights)
    upper = log_mean_exp(log_ndtr(-z), weights)
    # From the smaller tail, whose logarithm keeps its digits.
    return np.where(lower < upper, 1.0, -1.0) * ndtri_exp(np.minimum(lower, upper))


def mixture_crps(y: np.ndarray, means: np.ndarray, stds: np.ndarray, weights: np.ndarray) -> np.ndarray:
    # Σᵢ ωᵢ E|y − Xᵢ| − ½ E|X − X′|
    return total(weights, mean_distance(y[..., None] - means, stds)) - half_mean_difference(means, stds, weights)


def mixture_quantile(level: float, means: np.ndarray, stds: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Solve ``F(x) = level`` by Newton on the scale of normal scores, inside a bracket that bisection shrinks."""
    if level > 0.5:
        return -mixture_quantile(1 - level, -means, stds, weights)
    shape, n_sites = means.shape[:-1], means.shape[-1]
    means, stds, weights = (array.reshape(-1, n_sites) for array in (means, stds, weights))
    score = ndtri(level)
    # The quantile of a mixture lies between the quantiles of its components.
    ends = means + stds * score
    low = np.where(weights > 0, ends, np.inf).min(axis=-1)
    high = np.where(weights > 0, ends, -np.inf).max(axis=-1)
    mean = total(weights, means)
    std = np.sqrt(total(weights, stds**2 + (means - mean[:, None]) ** 2))
    answer = np.clip(mean + std * score, low, high)
    open_rows = np.flatnonzero(high > low)
    for step in range(200):
        if not open_rows.size:
            break
        x, weight, std = answer[open_rows], weights[open_rows], stds[open_rows]
        z = standardised(x[:, None] - means[open_rows], std)
        below = total(weight, ndtr(z))
        left = np.where(below < level, x, low[open_rows])
        right = np.where(below < level, high[open_rows], x)
        low[open_rows], high[open_rows] = left, right
        with np.errstate(all="ignore"):
            # x − (Φ⁻¹(F(x)) − Φ⁻¹(level)) / (d/dx Φ⁻¹(F(x)))
            here = ndtri(below)
            newton = x - (here - score) * density(here) / total(weight, density(z) / std)
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
