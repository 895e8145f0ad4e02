"""Mean distances of two draws from mixtures of many normals, against sums over pairs and closed forms."""

from __future__ import annotations

import math

import numpy as np
import pytest

from candid.predictive import PredictiveMixture
from candid.predictive import _mean_difference as mean_difference
from candid.predictive._mean_difference import half_mean_difference


def mixtures(spread: float, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Two entries of 400 sites, some of which are much wider than others."""
    rng = np.random.default_rng(seed)
    means, stds = spread * rng.normal(size=(2, 400)), np.exp(rng.uniform(-1, 4, (2, 400)))
    weights = rng.random((2, 400)) * stds**-3.0
    return means, stds, weights / weights.sum(-1, keepdims=True)


def as_pairs(means: np.ndarray, stds: np.ndarray, weights: np.ndarray) -> np.ndarray:
    # E|D| = δ erf(δ/√2τ) + τ√(2/π) exp(−δ²/2τ²) for D ~ N(δ, τ²)
    gap, width = means[..., :, None] - means[..., None, :], np.hypot(stds[..., :, None], stds[..., None, :])
    erf = np.vectorize(math.erf)
    distance = gap * erf(gap / width / 2**0.5) + width * (2 / math.pi) ** 0.5 * np.exp(-0.5 * (gap / width) ** 2)
    return 0.5 * np.einsum("ni,nij,nj->n", weights, distance, weights)


@pytest.mark.parametrize("spread", [0.0, 0.5, 2.0])
def test_integral_is_the_sum_over_pairs(spread, monkeypatch):
    parts = mixtures(spread)
    expected = as_pairs(*parts)
    monkeypatch.setattr(mean_difference, "_over_pairs", None)
    np.testing.assert_allclose(half_mean_difference(*parts), expected, rtol=1e-9)


def test_equal_sites_are_one_normal():
    # ½ E|X − X′| = σ/√π
    means, stds, weights = np.full((1, 1000), 1e3), np.full((1, 1000), 0.1), np.full((1, 1000), 1e-3)
    np.testing.assert_allclose(half_mean_difference(means, stds, weights), 0.1 / math.sqrt(math.pi), rtol=1e-9)


@pytest.mark.parametrize("narrow", [0.0, 1e-9])
def test_narrow_sites_go_by_pairs(narrow):
    # Of N points a distance of one apart, two are (N² − 1)/3N apart on average.
    means, weights = np.arange(300.0)[None], np.full((1, 300), 1 / 300)
    difference = half_mean_difference(means, np.full((1, 300), narrow), weights)
    np.testing.assert_allclose(difference, (300**2 - 1) / (6 * 300), rtol=1e-8)


def test_crps_of_many_sites():
    means, stds, weights = mixtures(0.5)
    y = np.array([0.3, -40.0])
    mixture = PredictiveMixture(means, stds, 0.0, weights)
    draws = [mixture.sample(200_000, random_state=seed) for seed in (0, 1)]
    expected = np.abs(draws[0] - y).mean(0) - 0.5 * np.abs(draws[0] - draws[1]).mean(0)
    np.testing.assert_allclose(mixture.crps(y), expected, rtol=0.01, atol=0.01)
