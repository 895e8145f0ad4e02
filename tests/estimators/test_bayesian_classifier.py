"""Labels and counts behind GPs whose parameters are sampled."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import integrate, stats
from scipy.special import expit

import candid
from candid import BayesianGPClassifier, BayesianGPRegressor, make_gp
from candid.engines import Rows

SHORT = {"n_chains": 1, "n_inducing": 8, "burn_in": 30, "n_samples": 5, "thin": 2, "random_state": 0}
TWO_CHAINS = {**SHORT, "n_chains": 2}


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(3)
    X = rng.normal(size=(60, 2)) * [1.0, 20.0] + [0.0, 100.0]
    return X, 2 * np.sin(1.5 * X[:, 0]) + 0.3 * rng.normal(size=60)


@pytest.fixture(scope="module")
def labels(table):
    return np.where(table[1] > 0, "high", "low")


@pytest.fixture(scope="module")
def gp(table, labels):
    return BayesianGPClassifier(**TWO_CHAINS).fit(table[0], labels)


def test_two_classes(gp, table, labels):
    X, _ = table
    assert type(gp._fitted.problem.likelihood).__name__ == "Bernoulli"
    assert gp._fitted.problem.likelihood.link == "probit"
    probabilities = gp.predict_proba(X)
    np.testing.assert_allclose(probabilities.sum(1), 1.0)
    assert gp.score(X, labels) > 0.85
    # Probabilities of samples are averaged: Φ(μ/√(1 + v)) of each.
    with torch.no_grad():
        latent = gp.predictor_.marginal(torch.from_numpy(X))
    each = stats.norm.cdf(latent.mean / torch.sqrt(1 + latent.variance))
    assert each.shape == (10, 60, 1)
    np.testing.assert_allclose(probabilities[:, 1], each.mean(0)[:, 0], rtol=1e-9)


@pytest.mark.parametrize(("link", "function"), [("probit", stats.norm.cdf), ("bernoulli", expit)])
@pytest.mark.parametrize("objective", ["fitc", "vfe"])
def test_data_terms_by_quadrature(link, function, objective, table, labels):
    X, _ = table
    gp = BayesianGPClassifier(likelihood=link, objective=objective, dtype="float64", **SHORT).fit(X, labels)
    problem = gp._fitted.problem.middle()
    x, y = torch.from_numpy(gp._fitted.inputs(X[:5])), torch.from_numpy((labels[:5] == "low").astype(float)[:, None])
    batch = Rows(x, y, torch.ones(5).double()).whole()
    with torch.no_grad():
        term, marginal = float(problem._data_term(batch)[0]), problem.family.evaluate(batch).marginal
    assert not marginal.spread.any()

    def expectation(sign, mean, variance):
        def integrand(f):
            probability = function(sign * f)
            average = probability if objective == "fitc" else np.log(probability)
            return average * stats.norm.pdf(f, mean, np.sqrt(variance))

        reach = 8 * np.sqrt(variance)
        value = integrate.quad(integrand, mean - reach, mean + reach, epsabs=1e-12)[0]
        return np.log(value) if objective == "fitc" else value

    terms = map(expectation, *(part.flatten().tolist() for part in (2 * y - 1, marginal.mean, marginal.residual)))
    assert term == pytest.approx(np.mean(list(terms)), rel=1e-6)


def test_three_classes_deep_and_not(table):
    X, f = table
    y = np.digitize(f, [-1, 1])
    for widths in ((), (2,)):
        gp = BayesianGPClassifier(hidden_widths=widths, **TWO_CHAINS).fit(X, y)
        p = gp.predict_distribution(X)
        np.testing.assert_allclose(p.probabilities.sum(1), 1.0)
        assert gp.score(X, y) > 0.6
        assert gp.samples_["u"].shape == (2, 5, 3, 8)
        assert gp.kernel_.base.lengthscale.value.shape == (3, 1, 2)
    assert gp.samples_["hidden.0.u"].shape == (2, 5, 2, 8)


def test_files_more_rows_and_samples(gp, table, labels, tmp_path):
    X, _ = table
    gp.save(tmp_path / "model")
    loaded = candid.load(tmp_path / "model")
    assert np.array_equal(loaded.predict_proba(X), gp.predict_proba(X))
    assert loaded.classes_.tolist() == ["high", "low"]
    few = BayesianGPClassifier(hidden_widths=("D",), **SHORT).fit(X[:40], labels[:40])
    before = few.predict_proba(X)
    few.partial_fit(X[40:], labels[40:])
    assert not np.array_equal(few.predict_proba(X), before)
    pytest.importorskip("arviz")
    assert gp.to_inference_data(X[:3]).posterior["f"].shape == (2, 5, 3)


def test_a_fit_that_was_killed_goes_on_bit_for_bit(table, labels, tmp_path, monkeypatch):
    monkeypatch.setattr("candid.engines.checkpoint.SHARE_OF_TIME", 1e9)

    class Stop(Exception): ...

    def stop(record) -> None:
        if record.get("samples", 0) >= 2:
            raise Stop

    options = {**SHORT, "validation_fraction": 0.2, "batch_size": 16}
    broken = BayesianGPClassifier(checkpoint_dir=str(tmp_path), callbacks=(stop,), **options)
    with pytest.raises(Stop):
        broken.fit(table[0], labels)
    resumed = BayesianGPClassifier(checkpoint_dir=str(tmp_path), **options).fit(table[0], labels)
    whole = BayesianGPClassifier(**options).fit(table[0], labels)
    assert np.array_equal(whole.predict_proba(table[0]), resumed.predict_proba(table[0]))
    assert np.isfinite(whole.history_[-1]["validation_nll"])


@pytest.mark.parametrize("name", ["bsgp", "sghmc-gp", "sghmc-dgp", "mcmc-svgp"])
def test_rows_of_the_table(name, table, labels):
    few = {**SHORT, "burn_in": 4, "n_samples": 2, "max_epochs": 2}
    for recipe in ("candid", "paper"):
        gp = make_gp(name, recipe=recipe, task="classification", **few)
        assert isinstance(gp, BayesianGPClassifier)
        np.testing.assert_allclose(gp.fit(table[0], labels).predict_proba(table[0]).sum(1), 1.0)


def test_more_classes_than_a_likelihood_has(table):
    X, f = table
    with pytest.raises(ValueError, match="likelihood='probit' is for two classes"):
        BayesianGPClassifier(likelihood="probit", **SHORT).fit(X, np.digitize(f, [-1, 1]))


@pytest.mark.parametrize("widths", [(), (2,)])
@pytest.mark.parametrize(
    ("likelihood", "learned"),
    [("student-t", {"scale", "freedom"}), ("negative-binomial", {"concentration"}), ("binomial", set())],
)
def test_other_likelihoods(likelihood, learned, widths, table):
    X, f = table
    rng = np.random.default_rng(1)
    y = {
        "student-t": f + rng.standard_t(2, size=60),
        "negative-binomial": rng.poisson(np.exp(f)),
        "binomial": rng.binomial(9, expit(f)),
    }[likelihood]
    trials = {"n_trials": 9} if likelihood == "binomial" else {}
    everything = ("u", "theta", "z", "noise")
    gp = BayesianGPRegressor(
        likelihood=likelihood, hidden_widths=widths, sample=everything, **trials, **TWO_CHAINS
    ).fit(X, y)
    assert learned <= gp.samples_.keys()
    p = gp.predict_distribution(X)
    assert np.isfinite(p.log_prob(y)).all()
    assert np.corrcoef(p.mean, f)[0, 1] > 0.6
    draws = gp.sample_y(X[:2], 4000)
    np.testing.assert_allclose(np.median(draws, 1), p[:2].quantile(0.5), atol=0.35 * p[:2].std.max())


def test_freedom_that_is_given_is_not_sampled(table):
    gp = BayesianGPRegressor(likelihood="student-t", freedom=4.0, sample=("u", "noise"), **TWO_CHAINS)
    assert gp.fit(*table).samples_.keys() == {"u", "scale"}
    assert gp.predictor_.observation.freedom.item() == pytest.approx(4.0)
    assert np.isfinite(gp.predict(table[0], return_std=True)[1]).all()
