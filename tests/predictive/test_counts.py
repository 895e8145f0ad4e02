"""Predictive distributions of counts, against sums over counts and draws."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import binom, nbinom, norm

from candid.predictive import PredictiveBinomial, PredictiveNegativeBinomial

LOCATION, DEVIATION = np.array([[0.3], [-1.0], [2.0]]), np.array([[0.7], [0.01], [1.5]])
SIZES = {PredictiveBinomial: np.array([9, 4, 12]), PredictiveNegativeBinomial: np.array([2.5, 1.0, 4.0])}


@pytest.fixture(params=SIZES)
def counts(request):
    return request.param(LOCATION, DEVIATION, SIZES[request.param])


def masses(counts, last: int) -> np.ndarray:
    """Probabilities of 0, …, last in each row, (row, count)."""
    return np.exp([counts.log_prob(float(k)) for k in range(last + 1)]).T


def given(counts, row: int):
    """The distribution of a count given f."""
    size = float(counts.size[row, 0])
    if isinstance(counts, PredictiveBinomial):
        return lambda f: binom(size, 1 / (1 + np.exp(-f)))
    return lambda f: nbinom(size, 1 / (1 + np.exp(f)))


def test_probabilities_are_averages_over_f(counts):
    for row in range(3):
        at, mean, deviation = given(counts, row), LOCATION[row, 0], DEVIATION[row, 0]
        for k in (0, 2, 4):
            expected = quad(
                lambda f, at=at, k=k, m=mean, s=deviation: at(f).pmf(k) * norm(m, s).pdf(f),
                mean - 9 * deviation,
                mean + 9 * deviation,
                epsabs=1e-12,
            )[0]
            assert np.exp(counts.log_prob(float(k))[row]) == pytest.approx(expected, rel=1e-6)


def test_moments_are_those_of_the_probabilities():
    p = PredictiveBinomial(LOCATION, DEVIATION, SIZES[PredictiveBinomial])
    mass, k = masses(p, 12), np.arange(13)
    np.testing.assert_allclose(mass.sum(1), 1.0, rtol=1e-8)
    np.testing.assert_allclose(p.mean, mass @ k, rtol=1e-7)
    np.testing.assert_allclose(p.std**2, mass @ k**2 - (mass @ k) ** 2, rtol=1e-6)
    p = PredictiveNegativeBinomial(LOCATION[:2], DEVIATION[:2], SIZES[PredictiveNegativeBinomial][:2])
    mass, k = masses(p, 600), np.arange(601)
    np.testing.assert_allclose(p.mean, mass @ k, rtol=1e-4)
    np.testing.assert_allclose(p.std**2, mass @ k**2 - (mass @ k) ** 2, rtol=1e-2)
    np.testing.assert_allclose(p.std**2, p.latent_std**2 + p.noise_std**2)


def test_distribution_functions_add_up_probabilities(counts):
    below = np.cumsum(masses(counts, 15), axis=1)
    for k in (0, 3, 15):
        np.testing.assert_allclose(counts.cdf(float(k)), below[:, k], rtol=0, atol=1e-6)
        np.testing.assert_allclose(counts.cdf(k + 0.5), below[:, k], rtol=0, atol=1e-6)
    np.testing.assert_array_equal(counts.cdf(-1.0), 0.0)


@pytest.mark.parametrize("level", [0.01, 0.3, 0.5, 0.9, 0.99])
def test_quantiles_are_the_smallest_counts_that_reach_their_level(counts, level):
    quantile = counts.quantile(level)
    assert (quantile == np.floor(quantile)).all()
    assert (counts.cdf(quantile) >= level).all()
    assert (counts.cdf(quantile - 1) < level).all()


def test_many_trials_and_a_wide_latent_value():
    """Given f the count is nearly certain, so the distribution of the share is that of σ(f)."""
    p = PredictiveBinomial(np.zeros((1, 1)), np.ones((1, 1)), 1e6)
    np.testing.assert_allclose(p.cdf(np.array([1e6 / (1 + np.exp(-0.5))])), norm.cdf(0.5), atol=2e-3)


def test_what_cannot_be_counted_has_no_probability(counts):
    for y in (-1.0, 1.5):
        assert (counts.log_prob(y) == -np.inf).all()
    assert PredictiveBinomial(LOCATION, DEVIATION, 3).log_prob(4.0).max() == -np.inf


def test_crps_is_the_mean_distance_less_half_the_mean_distance_of_two(counts):
    counts = counts[:2]
    mass, k = masses(counts, 400), np.arange(401)
    y = np.array([2.0, 0.0])
    own = np.abs(k[:, None] - k)
    expected = (mass * np.abs(k - y[:, None])).sum(1) - 0.5 * np.einsum("ni,nj,ij->n", mass, mass, own)
    np.testing.assert_allclose(counts.crps(y), expected, rtol=2e-3)


def test_draws(counts):
    draws = counts.sample(20_000, random_state=0)
    assert draws.shape == (20_000, 3)
    for k in (0.0, 3.0):
        np.testing.assert_allclose((draws <= k).mean(0), counts.cdf(k), atol=0.015)
    np.testing.assert_array_equal(draws, counts.sample(20_000, random_state=0))


def test_z_scores_of_draws_are_nearly_normal():
    p = PredictiveNegativeBinomial(np.full((4000, 1), 3.0), np.full((4000, 1), 0.5), 5.0)
    z = p.z_score(p.sample(1, random_state=1)[0])
    assert abs(z.mean()) < 0.05
    assert z.std() == pytest.approx(1.0, abs=0.05)


def test_sites_are_mixed():
    first, second = (PredictiveNegativeBinomial([[m]], [[0.4]], 3.0) for m in (0.0, 1.5))
    both = PredictiveNegativeBinomial([[0.0, 1.5]], [[0.4, 0.4]], 3.0, [0.25, 0.75])
    for k in (0.0, 5.0):
        expected = 0.25 * np.exp(first.log_prob(k)) + 0.75 * np.exp(second.log_prob(k))
        np.testing.assert_allclose(np.exp(both.log_prob(k)), expected)
    np.testing.assert_allclose(both.mean, 0.25 * first.mean + 0.75 * second.mean)


def test_rows_outputs_and_repr():
    p = PredictiveBinomial(np.zeros((4, 2, 1)), np.ones((4, 2, 1)), [3, 8])
    assert p.shape == (4, 2)
    assert p[1:3].shape == (2, 2)
    assert repr(p) == "PredictiveBinomial(4 rows, 2 outputs)"
    np.testing.assert_array_equal(p[[2]].mean, p.mean[[2]])
    with pytest.raises(ValueError, match="trials must be positive"):
        PredictiveBinomial([[0.0]], [[1.0]], 0)


HEAVY = {
    "most counts are few": PredictiveNegativeBinomial([[1.0]], [[1.5]], 0.3),
    "hundreds": PredictiveNegativeBinomial([[2.0]], [[0.7]], 20.0),
    "many trials": PredictiveBinomial([[0.3]], [[0.05]], 2000),
}


@pytest.mark.parametrize("y", [0.0, 7.0, 130.0, 1200.0])
@pytest.mark.parametrize("counts", HEAVY.values(), ids=HEAVY)
def test_crps_of_long_ranges_is_the_sum_over_all_counts(counts, y):
    """Where there are more counts than places at which F is computed."""
    below = counts.cdf(0.0), *(counts.cdf(float(k)) for k in range(1, 3000))
    expected = np.square(np.ravel(below) - (np.arange(3000) >= y)).sum()
    np.testing.assert_allclose(counts.crps(y), expected, rtol=2e-3)


def test_crps_of_a_row_does_not_depend_on_others():
    both = PredictiveNegativeBinomial([[0.0], [14.0]], [[0.3], [0.3]], [2.0, 2.0])
    np.testing.assert_allclose(both.crps([3.0, 1e6]), [both[:1].crps([3.0])[0], both[1:].crps([1e6])[0]])


def test_what_no_count_can_be_is_as_far_away_as_it_is(counts):
    np.testing.assert_allclose(counts.crps(-5.0) - counts.crps(0.0), 5.0)
