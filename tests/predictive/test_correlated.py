from __future__ import annotations

import numpy as np
import pytest
from scipy.special import logsumexp
from scipy.stats import multivariate_normal

from candid.metrics import nll
from candid.predictive import PredictiveCorrelated, PredictiveMixture, PredictiveNormal

N, P, J = 4, 3, 2


def parts(seed=0, n_sites=J):
    rng = np.random.default_rng(seed)
    roots = rng.standard_normal((N, n_sites, P, P))
    covariances = np.moveaxis(roots @ np.swapaxes(roots, -1, -2), 1, -1)
    weights = rng.dirichlet(np.ones(n_sites))
    return rng.standard_normal((N, P, n_sites)), covariances, rng.random((N, P)) + 0.3, weights


def naive_log_prob(y, means, covariances, noise, weights, outputs=(0, 1, 2)):
    outputs, rows = list(outputs), []
    for n in range(N):
        totals = [covariances[n, ..., j] + np.diag(noise[n] ** 2) for j in range(len(weights))]
        terms = [
            multivariate_normal(means[n, outputs, j], total[np.ix_(outputs, outputs)]).logpdf(y[n, outputs])
            for j, total in enumerate(totals)
        ]
        rows.append(logsumexp(terms, b=weights))
    return np.array(rows)


@pytest.mark.parametrize("n_sites", [1, 2])
def test_the_density_is_that_of_all_outputs_together(n_sites):
    given = parts(n_sites=n_sites)
    y = np.random.default_rng(1).standard_normal((N, P))
    p = PredictiveCorrelated(*given)
    np.testing.assert_allclose(p.log_prob(y), naive_log_prob(y, *given))
    assert nll(y, p) == pytest.approx(-p.log_prob(y).mean() / P)


def test_one_number_is_one_for_every_entry():
    p = PredictiveCorrelated(*parts())
    np.testing.assert_array_equal(p.log_prob(0.3), p.log_prob(np.full((N, P), 0.3)))


def test_an_output_that_is_not_known_is_left_out():
    given, y = parts(), np.random.default_rng(2).standard_normal((N, P))
    expected = naive_log_prob(y, *given, outputs=(0, 2))
    y[:, 1] = np.nan
    np.testing.assert_allclose(PredictiveCorrelated(*given).log_prob(y), expected)


def test_without_correlation_it_is_the_product_of_the_outputs():
    mean, std, noise = np.zeros((N, P)), np.full((N, P), 0.8), np.full((N, P), 0.5)
    y = np.random.default_rng(3).standard_normal((N, P))
    p, plain = PredictiveCorrelated(mean, std[..., None] ** 2 * np.eye(P), noise), PredictiveNormal(mean, std, noise)
    np.testing.assert_allclose(p.log_prob(y), plain.log_prob(y).sum(1))
    assert nll(y, p, scale=2.0) == pytest.approx(nll(y, plain, scale=2.0))


def test_marginals_are_those_of_a_mixture():
    means, covariances, noise, weights = parts()
    p = PredictiveCorrelated(means, covariances, noise, weights)
    stds = np.sqrt(np.einsum("nppj->npj", covariances))
    plain, y = PredictiveMixture(means, stds, noise, weights), np.full((N, P), 0.4)
    for name in ("mean", "std", "latent_std", "noise_std"):
        np.testing.assert_allclose(getattr(p, name), getattr(plain, name))
    for name in ("cdf", "crps", "z_score"):
        np.testing.assert_allclose(getattr(p, name)(y), getattr(plain, name)(y))
    np.testing.assert_allclose(p.quantile([0.1, 0.7]), plain.quantile([0.1, 0.7]))
    np.testing.assert_allclose(np.einsum("npp->np", p.covariance), plain.std**2)
    assert repr(p) == "PredictiveCorrelated(4 rows, 3 outputs, 2 sites)"


def test_draws_have_the_covariance():
    p = PredictiveCorrelated(*parts())
    draws = p.sample(60_000, random_state=0)
    np.testing.assert_allclose(draws.mean(0), p.mean, atol=0.05)
    for n in range(N):
        np.testing.assert_allclose(np.cov(draws[:, n].T), p.covariance[n], atol=0.25, rtol=0.05)


def test_some_rows():
    p = PredictiveCorrelated(*parts())
    np.testing.assert_allclose(p[1:3].covariance, p.covariance[1:3])
    assert len(p[2]) == 1


def test_shapes_that_do_not_fit():
    with pytest.raises(ValueError, match="covariances of shape"):
        PredictiveCorrelated(np.zeros((4, 3)), np.zeros((4, 2, 2)))
    with pytest.raises(ValueError, match="the predictions have shape"):
        PredictiveCorrelated(*parts()).log_prob(np.zeros((3, 3)))
