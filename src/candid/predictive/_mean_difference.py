"""How far two draws from a mixture of normals are apart; the sites are on the last axis."""

from __future__ import annotations

import math

import numpy as np
from scipy.special import ndtr

from candid.predictive._normal_functions import mean_distance

__all__ = ["half_mean_difference"]

# Up to so many sites, pairs of them are few.
FEW_SITES = 256
# Steps of the integral: at most so wide, and at the mean of each site at most this share of its standard deviation.
WIDEST, SHARE = 0.2, 0.38
# Sites of so much less weight than the largest do not make steps shorter.
LIGHT = 1e-6
# Sites that add no more than this share to the spread do not make the integral longer; others it covers up to so many
# standard deviations.
NEGLIGIBLE, REACH = 1e-15, 7.5
# How many numbers a temporary array may hold.
BLOCK = 1 << 18


def half_mean_difference(means: np.ndarray, stds: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """``½ E|X − X′|`` of independent X and X′, for each entry."""
    shape, n_sites = means.shape[:-1], means.shape[-1]
    if n_sites <= FEW_SITES:
        return _over_pairs(means, stds, weights)
    rows = zip(*(part.reshape(-1, n_sites) for part in (means, stds, weights)), strict=True)
    return np.array([_of_many(*row) for row in rows]).reshape(shape)


def _over_pairs(means: np.ndarray, stds: np.ndarray, weights: np.ndarray) -> np.ndarray:
    # ½ Σᵢⱼ ωᵢωⱼ E|Xᵢ − Xⱼ|, where the pairs i = j give Σ ωᵢ² σᵢ/√π
    half = np.sum(weights**2 * stds, axis=-1) / math.sqrt(math.pi)
    for i in range(means.shape[-1] - 1):
        first, others = slice(i, i + 1), slice(i + 1, None)
        distances = mean_distance(means[..., first] - means[..., others], np.hypot(stds[..., first], stds[..., others]))
        half += weights[..., i] * np.sum(weights[..., others] * distances, axis=-1)
    return half


def _of_many(means: np.ndarray, stds: np.ndarray, weights: np.ndarray) -> float:
    """Of one entry: as an integral, unless that takes so many points that pairs, which cost more, are faster."""
    if stds.min() == 0:
        return float(_over_pairs(means, stds, weights))
    distances = means - weights @ means
    heavy = weights > LIGHT * weights.max()
    width = stds[heavy].min()
    # x = width · sinh(u) has steps dx/du = √(width² + x²): dense among the sites, and wider and wider beyond them.
    step = min(WIDEST, SHARE * (stds[heavy] / np.hypot(width, distances[heavy])).min())
    size = weights * (np.abs(distances) + stds)
    furthest = (np.abs(distances) + REACH * stds)[size > NEGLIGIBLE * size.sum()].max()
    n_steps = math.ceil(math.asinh(furthest / width) / step)
    if n_steps > len(means):
        return float(_over_pairs(means, stds, weights))
    u = step * np.arange(-n_steps, n_steps + 1)
    x = width * np.sinh(u)
    # ½ E|X − X′| = ∫ F(x)(1 − F(x)) dx, by the trapezoidal rule in u: it converges exponentially, as F is smooth.
    tail = _tails(x, distances, stds, weights)
    return float(step * np.sum(tail * (1 - tail) * width * np.cosh(u)))


def _tails(x: np.ndarray, means: np.ndarray, stds: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """F(x) for negative x and 1 − F(x) for others, so that both ends keep their digits."""
    side = np.where(x < 0, 1.0, -1.0)[:, None]
    blocks = np.array_split(np.arange(len(x)), math.ceil(len(x) * len(means) / BLOCK))
    with np.errstate(over="ignore"):
        return np.concatenate([ndtr(side[block] * (x[block, None] - means) / stds) @ weights for block in blocks])
