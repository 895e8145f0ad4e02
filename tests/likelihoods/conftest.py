"""Both averages of a likelihood by adaptive integration."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.integrate import quad


@pytest.fixture
def integrals():
    """E log p(f) and log E p(f) for f ~ N(mean, variance), of a log-density with its features near ``centre``."""
    return _integrals


def _integrals(log_density, mean: float, variance: float, centre: float = 0.0) -> tuple[float, float]:
    if variance == 0:
        return float(log_density(mean)), float(log_density(mean))
    deviation, middle = math.sqrt(variance), (centre - mean) / math.sqrt(variance)

    def log_normal(x):
        return -0.5 * x**2 - 0.5 * math.log(2 * math.pi)

    def log_product(x):
        return log_normal(x) + log_density(mean + deviation * x)

    expected_log = _pieces(lambda x: np.exp(log_normal(x)) * log_density(mean + deviation * x), -12.0, 12.0, middle)
    # Where the product is within 45 nats of its height, seen on a grid that is fine around mean and centre.
    fine = np.sinh(np.linspace(-16, 16, 16_001)) * 1e-3
    grid = np.unique(np.concatenate([np.linspace(-40 - deviation, 40 + deviation, 8001), fine, middle + fine]))
    heights = log_product(grid)
    top = heights.max()
    inside = grid[heights > top - 45]
    step = 2 * np.diff(inside).max(initial=1e-6)
    share = _pieces(
        lambda x: np.exp(log_product(x) - top), inside[0] - step, inside[-1] + step, middle, grid[heights.argmax()]
    )
    return expected_log, float(top + np.log(share))


def _pieces(function, low: float, high: float, *places: float) -> float:
    """The integral over pieces that get smaller towards the given places."""
    marks = [place + side * 10.0**power for place in places for side in (-1, 0, 1) for power in range(-3, 2)]
    ends = np.unique(np.concatenate([np.linspace(low, high, 9), np.clip(marks, low, high)]).round(9))
    return sum(
        quad(function, *piece, epsabs=1e-10, epsrel=1e-10, limit=200)[0]
        for piece in np.column_stack([ends[:-1], ends[1:]])
    )
