"""Deep GPs for labels: probabilities are mixtures over sites, of two classes or of several."""

from __future__ import annotations

import math
from functools import partial

import numpy as np
import pytest
import torch
from scipy.special import logsumexp
from scipy.stats import norm

from candid import DeepGPClassifier, SparseGPClassifier, load, make_gp
from candid.estimators import deep_pace
from candid.estimators.deep_classifier import SOFTMAX_NODES
from candid.families import Layers
from candid.likelihoods import Bernoulli, Softmax
from candid.predictive import PredictiveBernoulli, PredictiveCategorical

quick = partial(DeepGPClassifier, hidden_widths=(2,), n_sites=3, n_inducing=12, max_epochs=20, random_state=0)
SAMPLED = {"propagation": "sampling", "objective": "elbo", "covariance": "full", "beta": 1.0, "n_predict_sites": 8}
VARIANTS = {
    "logit": {},
    "probit": {"likelihood": "probit"},
    "sampled": SAMPLED,
    "softmax": {"likelihood": "softmax"},
    "sampled softmax": {"likelihood": "softmax", **SAMPLED},
}


@pytest.fixture(scope="module")
def rings():
    """Rows of two features, and which of three rings around the origin they are in."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(240, 2)) * [1.0, 20.0] + [0.0, 300.0]
    radius = np.hypot(X[:, 0], (X[:, 1] - 300) / 20)
    return X, np.array(["near", "middle", "far"])[np.digitize(radius + 0.05 * rng.normal(size=240), [0.8, 1.5])]


@pytest.fixture(scope="module")
def pair(rings):
    return rings[0], rings[1] == "near"


@pytest.fixture(scope="module", params=VARIANTS)
def fitted(request, rings, pair):
    X, y = rings if "softmax" in request.param else pair
    return quick(**VARIANTS[request.param]).fit(X[:160], y[:160]), X[160:], y[160:]


def test_it_learns_what_no_line_separates(fitted):
    gp, X, y = fitted
    assert gp.score(X, y) > 0.85
    assert gp.predict_distribution(X).log_prob(y).mean() > -0.5
    assert gp.history_[-1]["loss"] <= gp.history_[0]["loss"]
    assert isinstance(gp._fitted.problem.family, Layers)
    assert isinstance(gp._fitted.problem.likelihood, Softmax if len(gp.classes_) > 2 else Bernoulli)


def test_probabilities_are_mixed_over_sites(fitted):
    gp, X, _ = fitted
    with torch.no_grad():
        marginal = gp.predictor_.marginal(torch.as_tensor(X))
    assert len(marginal.log_weight) == len(gp.quadrature_weights_) == (8 if gp.propagation == "sampling" else 3)
    np.testing.assert_allclose(gp.quadrature_weights_, marginal.log_weight.exp().flatten())
    p = gp.predict_distribution(X)
    np.testing.assert_allclose(p.probabilities.sum(1), 1.0)
    if gp.likelihood == "probit":
        # Φ(mean/√(1 + variance)) of each site
        mean, variance = marginal.mean[..., 0].numpy(), marginal.variance[..., 0].numpy()
        of_site = norm.logcdf(mean / np.sqrt(1 + variance))
        expected = np.exp(logsumexp(of_site + marginal.log_weight.numpy(), axis=0))
        np.testing.assert_allclose(p.probabilities[:, 1], expected, rtol=1e-6)
    if gp.likelihood == "softmax":
        likelihood = Softmax().at()
        of_site = likelihood.log_class_probabilities(marginal.mean, marginal.variance).exp()
        expected = (marginal.log_weight.exp().unsqueeze(-1) * of_site).sum(0)
        np.testing.assert_allclose(p.probabilities, expected, rtol=1e-6, atol=1e-9)
    assert type(p) is (PredictiveCategorical if len(gp.classes_) > 2 else PredictiveBernoulli)


def test_a_file_holds_all_that_predicts(fitted, tmp_path):
    gp, X, _ = fitted
    gp.save(tmp_path / "model.candid")
    again = load(tmp_path / "model.candid")
    assert np.array_equal(again.predict_proba(X), gp.predict_proba(X))
    assert np.array_equal(again.quadrature_weights_, gp.quadrature_weights_)
    assert np.array_equal(again.classes_, gp.classes_)


def test_fits_repeat_bit_for_bit(fitted, rings, pair):
    gp, X, _ = fitted
    rows, y = rings if len(gp.classes_) > 2 else pair
    again = quick(**{name: getattr(gp, name) for name in ("likelihood", *SAMPLED)}).fit(rows[:160], y[:160])
    assert np.array_equal(again.predict_proba(X), gp.predict_proba(X))


@pytest.mark.parametrize("objective", ["predictive", "elbo"])
def test_without_hidden_layers_it_is_a_sparse_gp(pair, objective, monkeypatch):
    """Where it is trained in the same way."""
    monkeypatch.setattr(deep_pace, "LIMIT", math.inf)
    same = {"objective": objective, "n_inducing": 15, "beta": 0.3, "max_epochs": 12, "lr": 0.02, "q_lr": 0.05}
    same |= {"covariance": "diagonal", "schedule": "cosine", "random_state": 3}
    deep, plain = DeepGPClassifier(hidden_widths=(), **same).fit(*pair), SparseGPClassifier(**same).fit(*pair)
    np.testing.assert_allclose(deep.history_[0]["loss"], plain.history_[0]["loss"], rtol=1e-12)
    np.testing.assert_allclose(deep.predict_proba(pair[0]), plain.predict_proba(pair[0]), atol=1e-3)
    assert np.array_equal(deep.quadrature_weights_, [1.0])


def test_the_objective_is_the_log_of_the_mixture(pair):
    gp = quick(likelihood="probit", beta=0.0, dtype="float64", max_epochs=3).fit(*pair)
    p = gp.predict_distribution(pair[0])
    assert gp.history_[-1]["loss"] == pytest.approx(-p.log_prob(pair[1]).mean(), abs=0.05)


def test_a_network_in_front_of_several_classes(rings, hasty):
    gp = quick(features=(6, 3), max_epochs=5).fit(*rings)
    assert gp.predict_proba(rings[0][:4]).shape == (4, 3)
    assert gp._fitted.problem.likelihood.n_nodes == SOFTMAX_NODES


def test_more_rows_go_on_from_where_it_stands(rings):
    X, y = rings
    gp = quick().fit(X[:200], y[:200])
    before = gp._fitted.problem.family.layers[0].points.detach().clone()
    gp.set_params(max_epochs=0).partial_fit(X[200:], y[200:])
    assert torch.equal(gp._fitted.problem.family.layers[0].points, before)


def test_mistakes(rings):
    with pytest.raises(ValueError, match="likelihood='probit' is for two classes"):
        quick(likelihood="probit").fit(*rings)
    with pytest.raises(ValueError, match=r"no objective 'robust' .*'predictive' or 'elbo'"):
        quick(objective="robust").fit(*rings)


def test_rows_of_the_table_for_labels():
    dspp, dgp = make_gp("dspp", task="classification"), make_gp("dgp", task="classification")
    assert isinstance(dspp, DeepGPClassifier)
    assert (dspp.objective, dspp.quadrature, dspp.n_sites, dspp.beta) == ("predictive", "qr3", 10, 0.05)
    assert (dgp.objective, dgp.propagation, dgp.covariance, dgp.beta) == ("elbo", "sampling", "full", 1.0)
    with pytest.raises(ValueError, match="gamma-dgp is for regression, not for 'classification'"):
        make_gp("gamma-dgp", task="classification")
