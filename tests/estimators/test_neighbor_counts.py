"""Counts from nearest neighbours."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from scipy.special import expit
from scipy.stats import binom, nbinom

from candid import NeighborGPRegressor, load
from candid.predictive import PredictiveBinomial, PredictiveNegativeBinomial

quick = partial(NeighborGPRegressor, n_neighbors=24, random_state=0)


@pytest.fixture(scope="module")
def latent():
    X = np.random.default_rng(0).uniform(-2, 2, size=(300, 2))
    return X, np.sin(2 * X[:, 0]) + 0.7 * X[:, 1]


@pytest.fixture(scope="module")
def successes(latent):
    rng = np.random.default_rng(1)
    trials = rng.integers(1, 60, size=300)
    return latent[0], rng.binomial(trials, expit(1.5 * latent[1] - 1)).astype(float), trials


@pytest.fixture(scope="module")
def binomial(successes):
    X, y, trials = successes
    return quick(likelihood="binomial", n_trials=trials[:200]).fit(X[:200], y[:200])


def test_probabilities_are_found(binomial, successes, latent):
    X, y, trials = successes
    p = binomial.predict_distribution(X[200:], n_trials=trials[200:])
    assert isinstance(p, PredictiveBinomial)
    truth = binom(trials[200:], expit(1.5 * latent[1][200:] - 1)).logpmf(y[200:])
    ignorant = binom(trials[200:], y[:200].sum() / trials[:200].sum()).logpmf(y[200:])
    assert truth.mean() - 0.25 < p.log_prob(y[200:]).mean()
    assert p.log_prob(y[200:]).mean() > ignorant.mean() + 1
    assert not hasattr(binomial, "noise_")


def test_more_rows_and_files(successes, tmp_path):
    """Rows that come later are as good as those that were there."""
    X, y, trials = successes
    gp = quick(likelihood="binomial", n_trials=trials[:40], max_epochs=8).fit(X[:40], y[:40])
    before = gp.predict_distribution(X[200:], n_trials=trials[200:]).log_prob(y[200:]).mean()
    gp.set_params(n_trials=trials[40:200]).partial_fit(X[40:200], y[40:200])
    after = gp.predict_distribution(X[200:], n_trials=trials[200:])
    assert after.log_prob(y[200:]).mean() > before + 0.03
    gp.save(tmp_path / "model.candid")
    again = load(tmp_path / "model.candid").predict_distribution(X[200:], n_trials=trials[200:])
    np.testing.assert_array_equal(again.mean, after.mean)


def test_counts_and_their_scatter_are_found(latent):
    X, f = latent
    mean = np.exp(f + 1)
    y = np.random.default_rng(2).negative_binomial(4, 4 / (4 + mean)).astype(float)
    gp = quick(likelihood="negative-binomial").fit(X[:200], y[:200])
    p = gp.predict_distribution(X[200:])
    assert isinstance(p, PredictiveNegativeBinomial)
    truth = nbinom(4, 4 / (4 + mean[200:])).logpmf(y[200:])
    assert p.log_prob(y[200:]).mean() > truth.mean() - 0.15
    assert 2 < gp.predictor_.observation.concentration.item() < 12
    np.testing.assert_array_equal(gp.predict(X[200:]), p.mean)


def test_held_out_counts_are_neighbours_in_the_end(successes):
    X, y, _ = successes
    gp = quick(likelihood="binomial", n_trials=60, max_epochs=2, validation_fraction=0.2).fit(X[:100], y[:100])
    assert len(gp._inner.rows.x) == 100
    assert np.isfinite(gp.history_[-1]["validation_nll"])


def test_what_does_not_go_together_is_said(successes):
    X, y, _ = successes
    with pytest.raises(ValueError, match="y must not be larger than n_trials"):
        quick(likelihood="binomial", n_trials=1).fit(X, y)
    with pytest.raises(ValueError, match="which needs it"):
        quick(likelihood="binomial").fit(X, y)
    with pytest.raises(ValueError, match="for counts 0, 1, 2"):
        quick(likelihood="negative-binomial").fit(X, y - 0.5)
    with pytest.raises(ValueError, match="does not go with likelihood='negative-binomial'; use objective='loo'"):
        quick(likelihood="negative-binomial", objective="mll").fit(X, y)
