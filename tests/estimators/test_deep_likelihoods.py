"""Deep GPs with likelihoods other than the normal one, by quadrature at every site."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from scipy.special import expit
from scipy.stats import binom, nbinom, t

from candid import DeepGPRegressor, load
from candid.predictive import PredictiveBinomial, PredictiveNegativeBinomial, PredictiveStudentT

quick = partial(DeepGPRegressor, hidden_widths=(2,), n_sites=3, n_inducing=20, random_state=0)
OBJECTIVES = pytest.mark.parametrize("options", [{}, {"objective": "elbo", "propagation": "sampling"}])


@pytest.fixture(scope="module")
def latent():
    X = np.random.default_rng(0).uniform(-3, 3, size=(300, 2))
    return X, np.sin(2 * X[:, 0]) + 0.5 * X[:, 1]


@OBJECTIVES
def test_outliers(latent, options, tmp_path):
    X, f = latent
    y = 100 + 50 * (f + 0.2 * np.random.default_rng(1).standard_t(2.5, size=300))
    gp = quick(likelihood="student-t", **options).fit(X[:200], y[:200])
    p = gp.predict_distribution(X[200:])
    assert isinstance(p, PredictiveStudentT)
    assert p.log_prob(y[200:]).mean() > t(2.5, 100 + 50 * f[200:], 10).logpdf(y[200:]).mean() - 0.4
    np.testing.assert_allclose(gp.predict(X), gp.predict_distribution(X).mean)
    gp.save(tmp_path / "model.candid")
    assert np.array_equal(load(tmp_path / "model.candid").predict(X), gp.predict(X))


@OBJECTIVES
def test_successes(latent, options):
    X, f = latent
    rng = np.random.default_rng(2)
    trials = rng.integers(1, 15, size=300)
    y = rng.binomial(trials, expit(1.5 * f)).astype(float)
    gp = quick(likelihood="binomial", n_trials=trials[:200], **options).fit(X[:200], y[:200])
    p = gp.predict_distribution(X[200:], n_trials=trials[200:])
    assert isinstance(p, PredictiveBinomial)
    assert p.log_prob(y[200:]).mean() > binom(trials, expit(1.5 * f)).logpmf(y)[200:].mean() - 0.3
    assert not hasattr(gp, "noise_")


@OBJECTIVES
def test_counts(latent, options):
    X, f = latent
    mean = np.exp(f + 2)
    y = np.random.default_rng(3).negative_binomial(3, 3 / (3 + mean)).astype(float)
    gp = quick(likelihood="negative-binomial", **options).fit(X[:200], y[:200])
    p = gp.predict_distribution(X[200:])
    assert isinstance(p, PredictiveNegativeBinomial)
    assert p.log_prob(y[200:]).mean() > nbinom(3, 3 / (3 + mean)).logpmf(y)[200:].mean() - 0.3


def test_mistakes(latent):
    X, f = latent
    with pytest.raises(ValueError, match="is for counts 0, 1, 2"):
        quick(likelihood="negative-binomial").fit(X, f)
    with pytest.raises(ValueError, match="n_trials, the number of trials"):
        quick(likelihood="binomial").fit(X, np.ones(300))
    with pytest.raises(ValueError, match=r"no objective 'robust' .*use objective='predictive' or 'elbo'"):
        quick(likelihood="student-t", objective="robust").fit(X, f)
