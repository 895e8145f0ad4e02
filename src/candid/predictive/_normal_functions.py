"""Functions of the normal distribution, with the limits of a point mass where the standard deviation is zero."""

from __future__ import annotations

import math

import numpy as np
from scipy.special import erf

__all__ = ["density", "log_density", "mean_distance", "standardised"]


def standardised(distance: np.ndarray, std: np.ndarray) -> np.ndarray:
    """``distance / std``, with the limits ±∞ (and 0 for no distance) where ``std`` is zero."""
    with np.errstate(all="ignore"):
        return np.where(distance == 0, 0.0, distance / std)


def log_density(distance: np.ndarray, std: np.ndarray) -> np.ndarray:
    z = standardised(distance, std)
    with np.errstate(all="ignore"):
        # log N(d; 0, σ²) = −½ (d/σ)² − log σ − ½ log 2π
        return np.where(np.isinf(z), -np.inf, -0.5 * z * z - np.log(std) - 0.5 * math.log(2 * math.pi))


def density(z: np.ndarray) -> np.ndarray:
    with np.errstate(all="ignore"):
        return np.exp(-0.5 * z * z) / math.sqrt(2 * math.pi)


def mean_distance(mean: np.ndarray, std: np.ndarray) -> np.ndarray:
    z = standardised(mean, std)
    # E|X| = μ (2Φ(μ/σ) − 1) + 2σ φ(μ/σ) for X ~ N(μ, σ²)
    return mean * erf(z / math.sqrt(2)) + 2 * std * density(z)
