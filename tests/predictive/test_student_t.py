"""A normal latent value with Student's t noise, against numerical convolution and draws."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import norm, t

from candid.predictive import PredictiveStudentT

MEAN, STD, SCALE, FREEDOM = 1.0, 0.8, 0.5, 3.5


@pytest.fixture
def p():
    return PredictiveStudentT([[MEAN]], [[STD]], SCALE, FREEDOM)


def convolved(function) -> float:
    """E g(f) over f."""
    return quad(
        lambda f: function(f) * norm(MEAN, STD).pdf(f), MEAN - 9 * STD, MEAN + 9 * STD, epsabs=1e-13, limit=200
    )[0]


@pytest.mark.parametrize("y", [-3.0, 0.9, 2.0, 30.0, 1e4])
def test_densities(p, y):
    expected = convolved(lambda f: t(FREEDOM, f, SCALE).pdf(y))
    assert np.exp(p.log_prob(y)[0]) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("y", [-20.0, -3.0, 0.9, 2.0, 30.0])
def test_distribution_function_and_scores(p, y):
    expected = convolved(lambda f: t(FREEDOM, f, SCALE).cdf(y))
    assert p.cdf(y)[0] == pytest.approx(expected, abs=1e-7)
    assert p.z_score(y)[0] == pytest.approx(norm.ppf(expected), abs=1e-3)


def test_moments(p):
    assert p.mean[0] == MEAN
    assert p.latent_std[0] == pytest.approx(STD)
    assert p.noise_std[0] == pytest.approx(t(FREEDOM, 0, SCALE).std())
    assert p.std[0] == pytest.approx(np.hypot(STD, t(FREEDOM, 0, SCALE).std()))


def test_quantiles_and_intervals(p):
    np.testing.assert_allclose(p.cdf(p.quantile(0.3)), 0.3, atol=1e-10)
    low, high = p.interval(0.9)
    np.testing.assert_allclose(p.cdf(high) - p.cdf(low), 0.9, atol=1e-9)


def test_draws_and_crps(p):
    draws = p.sample(200_000, random_state=0)[:, 0]
    np.testing.assert_allclose(np.quantile(draws, [0.1, 0.5, 0.9]), p.quantile([0.1, 0.5, 0.9])[:, 0], atol=0.02)
    other = p.sample(200_000, random_state=1)[:, 0]
    expected = np.abs(draws - 2.0).mean() - 0.5 * np.abs(draws - other).mean()
    assert p.crps(2.0)[0] == pytest.approx(expected, abs=0.01)


def test_many_degrees_of_freedom_are_normal():
    p = PredictiveStudentT([[MEAN]], [[STD]], SCALE, 900.0)
    near = norm(MEAN, np.hypot(STD, SCALE))
    np.testing.assert_allclose(p.cdf(2.0), near.cdf(2.0), atol=1e-3)
    np.testing.assert_allclose(p.quantile(0.05), near.ppf(0.05), atol=5e-3)


def test_sites_outputs_and_rows():
    means = np.arange(12.0).reshape(3, 2, 2)
    p = PredictiveStudentT(means, np.ones_like(means), [0.5, 1.0], [3.0, 5.0], [0.3, 0.7])
    assert p.shape == (3, 2)
    assert repr(p) == "PredictiveStudentT(3 rows, 2 outputs, 2 sites)"
    alone = [PredictiveStudentT(means[..., [j]], np.ones((3, 2, 1)), [0.5, 1.0], [3.0, 5.0]) for j in (0, 1)]
    expected = 0.3 * np.exp(alone[0].log_prob(4.0)) + 0.7 * np.exp(alone[1].log_prob(4.0))
    np.testing.assert_allclose(np.exp(p.log_prob(4.0)), expected)
    np.testing.assert_allclose(p.cdf(4.0), 0.3 * alone[0].cdf(4.0) + 0.7 * alone[1].cdf(4.0))
    np.testing.assert_array_equal(p[1].mean, p.mean[[1]])


def test_without_a_variance_it_is_refused():
    with pytest.raises(ValueError, match="more than two degrees of freedom"):
        PredictiveStudentT([[0.0]], [[1.0]], 1.0, 2.0)
