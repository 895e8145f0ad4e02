"""Deep GPs whose inducing values are draws of networks, as estimators."""

from __future__ import annotations

import pickle
from functools import partial

import numpy as np
import pytest
import torch
from scipy.stats import norm

from candid import DeepGPClassifier, DeepGPRegressor, load, make_gp
from candid.estimators import fitting as fitting_module
from candid.families import DrawnPredictor
from candid.weights import Full, Implicit
from fragile import FragileCheckpoint, Interrupted

few = {"n_sites": 4, "n_inducing": 15, "max_epochs": 30, "random_state": 0}
quick = partial(make_gp, "ipvi-dgp", **few)
VARIANTS = {
    "deep": {"hidden_widths": (2,)},
    "single": {"hidden_widths": ()},
    "cold": {"hidden_widths": (2,), "init": "kmeans", "max_epochs": 60},
    "network": {"hidden_widths": (2,), "features": (8, 3), "init": "kmeans", "max_epochs": 60},
}


@pytest.fixture(scope="module", params=VARIANTS)
def gp(request, table):
    return quick(**VARIANTS[request.param]).fit(*table)


def test_what_is_learned(gp):
    """From a warm start, a normal part besides; from a cold one, networks alone, from the prior."""
    layers = gp._fitted.problem.family
    for layer in getattr(layers, "inner", layers).layers:
        weights = layer.weights
        assert isinstance(weights, Implicit)
        assert weights.learned == (gp.init == "warm")
        assert weights.n_draws == 4
        assert any(parameter.any() for parameter in weights.generator.shift.slopes[-1:])
        assert weights.critic.slope.any()
        if not weights.learned:
            assert torch.equal(weights.normal.lower, torch.eye(15).expand_as(weights.normal.lower))
            assert not weights.normal.mean.any()


def test_predictions_are_mixtures_of_draws(gp, new_rows):
    X, y = new_rows
    p = gp.predict_distribution(X)
    inner = gp.predictor_.inner
    assert isinstance(getattr(inner, "inner", inner), DrawnPredictor)
    assert p.means.shape == (40, 32)
    np.testing.assert_allclose(gp.quadrature_weights_, np.full(32, 1 / 32))
    np.testing.assert_allclose(gp.predict(X), p.mean)
    np.testing.assert_allclose(np.sqrt(np.diag(gp.predict(X, return_cov=True)[1])), p.std)
    assert p.log_prob(y).mean() > norm(200, 25).logpdf(y).mean()


def test_a_file_holds_draws_and_no_networks(gp, new_rows, tmp_path):
    gp.save(tmp_path / "model.candid")
    again = load(tmp_path / "model.candid")
    for one, other in zip(*(model.predict(new_rows[0], return_std=True) for model in (gp, again)), strict=True):
        assert np.array_equal(one, other)
    assert not any(part in name for name in again.predictor_.state_dict() for part in ("generator", "critic"))
    copied = pickle.loads(pickle.dumps(gp))
    assert np.array_equal(copied.predict(new_rows[0]), gp.predict(new_rows[0]))


def test_it_is_as_good_as_a_deep_gp(table, new_rows):
    """Whose posterior is nearly normal on this table."""
    X, y = new_rows
    scores = {}
    for name in ("dgp", "ipvi-dgp"):
        fitted = make_gp(name, **few, hidden_widths=(2,)).fit(*table)
        scores[name] = -fitted.predict_distribution(X).log_prob(y).mean()
        assert isinstance(fitted._fitted.problem.family.weights, Full if name == "dgp" else Implicit)
    assert scores["ipvi-dgp"] == pytest.approx(scores["dgp"], abs=0.05)
    assert scores["ipvi-dgp"] < -norm(y.mean(), y.std()).logpdf(y).mean() - 0.5


def test_an_interrupted_fit_goes_on(table, new_rows, tmp_path, monkeypatch):
    options = {"hidden_widths": (2,), "batch_size": 50, "max_epochs": 4}
    expected = quick(**options).fit(*table)
    real = fitting_module.checkpoint_of
    monkeypatch.setattr(fitting_module, "checkpoint_of", lambda *args: FragileCheckpoint(real(*args).path, 5))
    with pytest.raises(Interrupted):
        quick(**options, checkpoint_dir=str(tmp_path)).fit(*table)
    monkeypatch.setattr(fitting_module, "checkpoint_of", real)
    resumed = quick(**options, checkpoint_dir=str(tmp_path)).fit(*table)
    assert np.array_equal(resumed.predict(new_rows[0]), expected.predict(new_rows[0]))


def test_more_rows_go_on_from_where_it_stands(table):
    X, y = table
    gp = quick(hidden_widths=(2,), max_epochs=3).fit(X[:60], y[:60])
    before = gp._fitted.problem.family.weights.critic.slope.detach().clone()
    gp.set_params(max_epochs=0, init="kmeans").partial_fit(X[60:], y[60:])
    assert torch.equal(gp._fitted.problem.family.weights.critic.slope, before)
    assert gp._fitted.problem.family.weights.learned
    with pytest.raises(ValueError, match="covariance has changed"):
        gp.set_params(covariance="full").partial_fit(X[:5], y[:5])


def test_labels(table):
    X, y = table
    gp = make_gp("ipvi-dgp", task="classification", **{**few, "max_epochs": 5}, hidden_widths=(2,))
    assert isinstance(gp, DeepGPClassifier)
    labels = np.where(y > 200, "high", "low")
    assert gp.fit(X, labels).score(X, labels) > 0.8


def test_draws_need_random_sites(table):
    with pytest.raises(ValueError, match=r"covariance='implicit' draws .* use propagation='sampling'"):
        DeepGPRegressor(covariance="implicit").fit(*table)
