"""Regression with likelihoods other than the normal one."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from scipy.special import expit
from scipy.stats import binom, nbinom, t

from candid import DeepGPRegressor, SparseGPClassifier, SparseGPRegressor, load
from candid.metrics import nll_scorer
from candid.predictive import PredictiveBinomial, PredictiveNegativeBinomial, PredictiveStudentT

quick = partial(SparseGPRegressor, n_inducing=25, random_state=0)


@pytest.fixture(scope="module")
def latent():
    rng = np.random.default_rng(0)
    X = rng.uniform(-3, 3, size=(400, 2))
    return X, np.sin(2 * X[:, 0]) + 0.5 * X[:, 1]


@pytest.fixture(scope="module")
def outliers(latent):
    noise = 0.2 * np.random.default_rng(1).standard_t(2.5, size=400)
    return latent[0], 100 + 50 * (latent[1] + noise)


@pytest.fixture(scope="module")
def successes(latent):
    rng = np.random.default_rng(2)
    trials = rng.integers(1, 15, size=400)
    return latent[0], rng.binomial(trials, expit(1.5 * latent[1])).astype(float), trials


@pytest.fixture(scope="module")
def counts(latent):
    mean = np.exp(latent[1] + 2)
    return latent[0], np.random.default_rng(3).negative_binomial(3, 3 / (3 + mean)).astype(float)


OBJECTIVES = pytest.mark.parametrize(("objective", "beta"), [("elbo", 1.0), ("predictive", 0.2)])


@OBJECTIVES
def test_students_noise_is_found(objective, beta, outliers, latent):
    X, y = outliers
    gp = quick(objective=objective, beta=beta, likelihood="student-t").fit(X[:300], y[:300])
    p = gp.predict_distribution(X[300:])
    assert isinstance(p, PredictiveStudentT)
    truth = t(2.5, 100 + 50 * latent[1][300:], 10).logpdf(y[300:])
    normal = quick(objective=objective, beta=beta).fit(X[:300], y[:300])
    assert p.log_prob(y[300:]).mean() > truth.mean() - 0.25
    assert p.log_prob(y[300:]).mean() > normal.predict_distribution(X[300:]).log_prob(y[300:]).mean() + 0.05
    assert gp.predictor_.observation.scale.item() == pytest.approx(10, rel=0.3)
    mean, std = gp.predict(X[300:], return_std=True)
    np.testing.assert_allclose(mean, p.mean)
    np.testing.assert_allclose(std, p.std)
    np.testing.assert_allclose(np.hypot(p.latent_std, gp.noise_), p.std)


def test_degrees_of_freedom_can_be_given(outliers):
    gp = quick(likelihood="student-t", freedom=3.0, max_epochs=5).fit(*outliers)
    assert gp.predictor_.observation.freedom.item() == pytest.approx(3.0)


@OBJECTIVES
def test_successes(objective, beta, successes, latent):
    X, y, trials = successes
    gp = quick(objective=objective, beta=beta, likelihood="binomial", n_trials=trials[:300]).fit(X[:300], y[:300])
    p = gp.predict_distribution(X[300:], n_trials=trials[300:])
    assert isinstance(p, PredictiveBinomial)
    truth = binom(trials, expit(1.5 * latent[1])).logpmf(y)[300:]
    assert p.log_prob(y[300:]).mean() > truth.mean() - 0.1
    assert not hasattr(gp, "noise_")
    with pytest.raises(ValueError, match=r"new rows have to say theirs: predict_distribution\(X, n_trials=...\)"):
        gp.predict(X)


def test_one_number_of_trials(latent):
    X, f = latent
    y = np.random.default_rng(4).binomial(6, expit(f)).astype(float)
    gp = quick(objective="elbo", beta=1.0, likelihood="binomial", n_trials=6, max_epochs=20).fit(X, y)
    each = quick(objective="elbo", beta=1.0, likelihood="binomial", n_trials=np.full(400, 6), max_epochs=20).fit(X, y)
    np.testing.assert_allclose(gp.predict(X), each.predict_distribution(X, n_trials=6).mean, rtol=0, atol=1e-4)
    assert np.abs(gp.predict(X) - 6 * expit(f)).mean() < 0.3
    draws = gp.sample_y(X[:5], 3000, random_state=0)
    np.testing.assert_allclose(draws.mean(1), gp.predict(X[:5]), atol=0.15)
    assert draws.max() <= 6


@OBJECTIVES
def test_counts(objective, beta, counts, latent):
    X, y = counts
    gp = quick(objective=objective, beta=beta, likelihood="negative-binomial").fit(X[:300], y[:300])
    p = gp.predict_distribution(X[300:])
    assert isinstance(p, PredictiveNegativeBinomial)
    mean = np.exp(latent[1] + 2)
    truth = nbinom(3, 3 / (3 + mean)).logpmf(y)[300:]
    assert p.log_prob(y[300:]).mean() > truth.mean() - 0.1
    assert gp.predictor_.observation.concentration.item() == pytest.approx(3.0, rel=0.4)
    found, std = gp.predict(X[300:], return_std=True)
    np.testing.assert_array_equal(found, p.mean)
    np.testing.assert_array_equal(std, p.std)
    assert nll_scorer(gp, X[300:], y[300:]) == pytest.approx(p.log_prob(y[300:]).mean())
    with pytest.raises(ValueError, match="counts have no joint normal distribution"):
        gp.predict(X, return_cov=True)


def test_polya_gamma_variables_are_for_counts_too(counts, successes):
    gp = quick(objective="polya_gamma", beta=1.0, likelihood="negative-binomial", max_epochs=10).fit(*counts)
    other = quick(objective="elbo", beta=1.0, likelihood="negative-binomial", max_epochs=10).fit(*counts)
    assert np.abs(gp.predict(counts[0]) / other.predict(counts[0]) - 1).mean() < 0.1


@pytest.mark.parametrize(("concentration", "bias", "scatter"), [(0.3, 0.4, 0.8), (1, 0.2, 0.4), (20, 0.05, 0.15)])
def test_large_counts_start_where_they_are(concentration, bias, scatter, latent):
    """Around a thousand, where rounds with Pólya–Gamma variables get nowhere, and where logarithms are skewed."""
    X, mean = latent[0], np.exp(latent[1] + 7)
    y = np.random.default_rng(4).negative_binomial(concentration, concentration / (concentration + mean)).astype(float)
    gp = quick(likelihood="negative-binomial", max_epochs=0).fit(X[:300], y[:300])
    off = np.log(gp.predict(X[300:]) / mean[300:])
    assert abs(off.mean()) < bias
    assert off.std() < scatter


@pytest.mark.parametrize("likelihood", ["student-t", "negative-binomial"])
def test_several_targets_and_files(likelihood, counts, tmp_path):
    X, y = counts
    gp = quick(likelihood=likelihood, max_epochs=2).fit(X, np.column_stack([y, y[::-1]]))
    gp.save(tmp_path / "model.candid")
    again = load(tmp_path / "model.candid")
    p, q = (model.predict_distribution(X[:7]) for model in (gp, again))
    assert p.shape == (7, 2)
    np.testing.assert_array_equal(p.quantile(0.8), q.quantile(0.8))
    assert gp.sample_y(X[:4], 6).shape == (4, 2, 6)


def test_units_of_students_noise(outliers):
    """y in other units is the same model in other units."""
    X, y = outliers
    one, other = (quick(likelihood="student-t", max_epochs=5).fit(X, values) for values in (y, 1000 * y - 7))
    np.testing.assert_allclose(other.predict(X), 1000 * one.predict(X) - 7, rtol=1e-3, atol=10)
    np.testing.assert_allclose(other.noise_, 1000 * one.noise_, rtol=1e-3)


def test_held_out_rows_have_trials_of_their_own(successes):
    X, y, trials = successes
    gp = quick(likelihood="binomial", n_trials=trials, validation_fraction=0.2, patience=2, max_epochs=4).fit(X, y)
    assert 0 < gp.history_[-1]["validation_nll"] < 3


def test_partial_fit_with_trials(successes):
    X, y, trials = successes
    gp = quick(likelihood="binomial", n_trials=trials[:100], max_epochs=3).fit(X[:100], y[:100])
    gp.set_params(n_trials=trials[100:]).partial_fit(X[100:], y[100:])
    assert len(gp._fitted.training) == 400


@pytest.mark.parametrize(
    ("options", "y", "message"),
    [
        ({"likelihood": "student-t", "alpha": 0.1}, [1.0, 2.0, 3.0], "alpha is a variance of normal noise"),
        ({"likelihood": "binomial"}, [0.0, 1.0, 2.0], "likelihood='binomial', which needs it"),
        ({"n_trials": 3}, [0.0, 1.0, 2.0], "is for likelihood='binomial'"),
        ({"likelihood": "binomial", "n_trials": 1}, [0.0, 1.0, 2.0], "must not be larger than n_trials"),
        ({"likelihood": "binomial", "n_trials": [2, 0, 2]}, [0.0, 0.0, 2.0], "one trial at least"),
        ({"likelihood": "binomial", "n_trials": [2, 2]}, [0.0, 0.0, 2.0], "one entry for each of the 3 rows"),
        ({"likelihood": "negative-binomial"}, [0.0, 1.5, 2.0], "is for counts 0, 1, 2"),
        ({"likelihood": "negative-binomial"}, [0.0, -1.0, 2.0], "is for counts 0, 1, 2"),
        ({"likelihood": "student-t", "objective": "sgpr"}, [0.0, -1.0, 2.0], "no objective 'sgpr'"),
        (
            {"likelihood": "poisson"},
            [0.0, 1.0, 2.0],
            "'poisson' likelihood; use likelihood='gaussian' or 'student-t'",
        ),
        ({"likelihood": "bernoulli"}, [0.0, 1.0, 0.0], "no 'bernoulli' likelihood; .* a classifier"),
    ],
    ids=str,
)
def test_what_does_not_go_together(options, y, message):
    with pytest.raises(ValueError, match=message):
        quick(**options).fit(np.arange(3.0)[:, None], y)


@pytest.mark.parametrize("kind", [SparseGPRegressor, DeepGPRegressor])
@pytest.mark.parametrize(("likelihood", "n_trials"), [("negative-binomial", None), ("binomial", 10)])
def test_rare_counts_are_predicted_to_be_rare(kind, likelihood, n_trials):
    """Logits of counts plus one half would say several times as many."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(150, 2)), (rng.random(150) < 0.05).astype(float)
    gp = kind(likelihood=likelihood, n_trials=n_trials, n_inducing=10, max_epochs=3, random_state=0).fit(X, y)
    assert gp.predict(X).mean() == pytest.approx(y.mean(), rel=0.1)


def test_only_binomial_counts_have_trials(latent):
    gp = quick(max_epochs=1).fit(*latent)
    with pytest.raises(ValueError, match="n_trials is for binomial counts"):
        gp.predict_distribution(latent[0], n_trials=3)


def test_labels_that_are_rare():
    rng = np.random.default_rng(1)
    X, y = rng.normal(size=(150, 2)), rng.random(150) < 0.05
    gp = SparseGPClassifier(n_inducing=10, max_epochs=3, random_state=0).fit(X, y)
    assert gp.predict_proba(X)[:, 1].mean() == pytest.approx(y.mean(), rel=0.1)
