from __future__ import annotations

import numpy as np
import pytest
from scipy.special import ndtri

from candid.metrics import calibration_curve, wasserstein_to_normal, z_scores
from candid.predictive import PredictiveMixture, PredictiveNormal


def test_scores_of_a_normal():
    p = PredictiveNormal([1.0, -2.0], [3.0, 0.0], [4.0, 2.0])
    np.testing.assert_allclose(z_scores([11.0, -100.0], p), [2.0, -49.0], rtol=1e-14)


def test_scores_of_a_mixtures_own_samples_are_standard_normal():
    rng = np.random.default_rng(0)
    p = PredictiveMixture(3 * rng.normal(size=(5000, 4)), 0.2 + rng.random((5000, 4)), 0.1, rng.dirichlet(np.ones(4)))
    z = z_scores(p.sample(1, random_state=1)[0], p)
    assert wasserstein_to_normal(z) < 0.03
    assert wasserstein_to_normal(2 * z) > 0.5


def test_wasserstein_of_one_point_is_its_mean_distance():
    # E|X| = √(2/π) for X ~ N(0, 1)
    assert wasserstein_to_normal([0.0]) == pytest.approx(np.sqrt(2 / np.pi), rel=1e-14)
    assert wasserstein_to_normal([50.0]) == pytest.approx(50.0, rel=1e-14)


def test_wasserstein_of_normal_quantiles_vanishes():
    z = ndtri((np.arange(20_000) + 0.5) / 20_000)
    assert 0 < wasserstein_to_normal(z) < 3e-4
    assert wasserstein_to_normal(z + 0.7) == pytest.approx(0.7, abs=1e-6)


def test_wasserstein_takes_weights_outputs_and_any_order():
    rng = np.random.default_rng(1)
    z, count = rng.normal(size=(40, 2)), np.arange(40) % 4
    expected = wasserstein_to_normal(np.repeat(z, count, axis=0).ravel())
    assert wasserstein_to_normal(z, sample_weight=count) == pytest.approx(expected, rel=1e-10)
    assert wasserstein_to_normal(z[::-1]) == pytest.approx(wasserstein_to_normal(z), rel=1e-12)


def test_infinite_scores_are_infinitely_far():
    assert wasserstein_to_normal([0.0, np.inf]) == np.inf
    assert np.isfinite(wasserstein_to_normal([0.0, np.inf], sample_weight=[1, 0]))


def test_calibration_curve_of_three_points():
    p = PredictiveNormal(np.zeros(3), 1.0)
    levels, observed = calibration_curve(ndtri([0.9, 0.2, 0.4]), p)
    np.testing.assert_allclose(levels, [0.2, 0.4, 0.9], rtol=1e-12)
    np.testing.assert_allclose(observed, [1 / 3, 2 / 3, 1.0], rtol=1e-12)
    grid, read = calibration_curve(ndtri([0.9, 0.2, 0.4]), p, levels=[0.0, 0.3, 0.5, 1.0], sample_weight=[2, 1, 1])
    np.testing.assert_array_equal(grid, [0.0, 0.3, 0.5, 1.0])
    np.testing.assert_allclose(read, [0.0, 0.25, 0.5, 1.0], rtol=1e-12)


def test_calibration_curve_shows_overconfidence():
    y = np.random.default_rng(2).normal(size=(3000, 2))
    _, honest = calibration_curve(y, PredictiveNormal(np.zeros((3000, 2)), 1.0), levels=[0.1, 0.9])
    np.testing.assert_allclose(honest, [0.1, 0.9], atol=0.02)
    _, bold = calibration_curve(y, PredictiveNormal(np.zeros((3000, 2)), 0.3), levels=[0.1, 0.9])
    assert bold[0] > 0.3
    assert bold[1] < 0.7


def test_bad_scores_are_refused():
    with pytest.raises(ValueError, match="NaN"):
        wasserstein_to_normal([np.nan])
    with pytest.raises(ValueError, match="at least one row"):
        wasserstein_to_normal([])
    with pytest.raises(ValueError, match="y has shape"):
        z_scores([0.0], PredictiveNormal(np.zeros(3), 1.0))
