"""A network with dropout as an estimator: its predictions are mixtures, and everything else is as for GPs."""

from __future__ import annotations

import pickle
from functools import partial

import numpy as np
import pytest
import torch
from scipy.stats import norm
from sklearn.base import clone
from torch import nn

import candid
from candid import NetworkRegressor, SparseGPRegressor, load
from candid.estimators import table_predictor
from candid.metrics import coverage
from candid.predictive import PredictiveMixture

quick = partial(NetworkRegressor, features=(16, 8), n_passes=12, max_epochs=60, lr=0.02, random_state=0)


@pytest.fixture(scope="module")
def net(table):
    return quick().fit(*table)


@pytest.fixture(scope="module")
def pair(table):
    """A model of two outputs."""
    X, y = table
    return quick().fit(X, np.column_stack([y, 3.0 * X[:, 0] + 1.0]))


def passes(model, X) -> np.ndarray:
    """What each of the thinned networks says, (row, output, pass)."""
    with torch.no_grad():
        return model.predictor_.marginal(torch.as_tensor(X)).mean.movedim(0, -1).numpy()


def test_it_has_no_parameters_of_gps():
    parameters = NetworkRegressor().get_params()
    assert not {"kernel", "ard", "mean", "priors", "fixed"} & parameters.keys()
    assert parameters.keys() - SparseGPRegressor().get_params().keys() <= {
        "features",
        "dropout",
        "n_passes",
        "weight_decay",
    }
    with pytest.raises(TypeError, match="kernel"):
        NetworkRegressor(kernel="rbf")


def test_it_learns(net, table, new_rows):
    assert net.score(*table) > 0.8
    assert net.score(*new_rows) > 0.6
    assert not hasattr(net, "kernel_")
    assert net.history_[0]["loss"] > net.history_[-1]["loss"]


def test_moments_by_brute_force(net, new_rows):
    X, _ = new_rows
    each = passes(net, X)[:, 0]
    mean, std = net.predict(X, return_std=True)
    np.testing.assert_allclose(mean, each.mean(-1))
    np.testing.assert_allclose(std, np.sqrt(each.var(-1) + net.noise_**2))
    np.testing.assert_allclose(net.predict(X), mean)
    again, covariance = net.predict(X, return_cov=True)
    np.testing.assert_allclose(again, mean)
    np.testing.assert_allclose(covariance, np.cov(each, bias=True) + net.noise_**2 * np.eye(len(X)))


def test_the_distribution_by_brute_force(net, new_rows):
    X, y = new_rows
    each = passes(net, X)[:, 0]
    p = net.predict_distribution(X)
    assert isinstance(p, PredictiveMixture)
    assert p.means.shape == (len(X), 12)
    densities = norm.pdf(y[:, None], each, net.noise_).mean(-1)
    np.testing.assert_allclose(p.log_prob(y), np.log(densities))
    np.testing.assert_allclose(p.mean, each.mean(-1))
    np.testing.assert_allclose(p.latent_std, each.std(-1))
    np.testing.assert_allclose(p.noise_std, net.noise_)
    np.testing.assert_allclose(p.std, net.predict(X, return_std=True)[1])


def test_noise_of_the_rows_that_are_asked_for(net, pair, new_rows):
    X, _ = new_rows
    noise = np.linspace(0.1, 5.0, len(X))
    np.testing.assert_allclose(net.predict_distribution(X, alpha=noise).noise_std, np.sqrt(noise))
    both = pair.predict_distribution(X, alpha=noise)
    np.testing.assert_allclose(both.noise_std, np.sqrt(np.column_stack([noise, noise])))


def test_several_outputs(pair, new_rows):
    X, _ = new_rows
    each = passes(pair, X)
    p = pair.predict_distribution(X)
    assert p.means.shape == (len(X), 2, 12)
    np.testing.assert_allclose(p.means, each)
    np.testing.assert_allclose(p.std, np.sqrt(each.var(-1) + pair.noise_**2))
    mean, covariance = pair.predict(X, return_cov=True)
    assert covariance.shape == (len(X), len(X), 2)
    for output in range(2):
        noise = pair.noise_[output] ** 2 * np.eye(len(X))
        np.testing.assert_allclose(covariance[..., output], np.cov(each[:, output], bias=True) + noise)
    np.testing.assert_allclose(mean, p.mean)


def test_draws_are_those_of_passes(pair, new_rows):
    """Each draw is one pass, at all rows and for all outputs, plus noise."""
    X = new_rows[0][:15]
    pair = load_copy(pair)
    pair.predictor_.noise_variance.mul_(1e-12)
    draws, each = pair.sample_y(X, 200, random_state=1), passes(pair, X)
    assert draws.shape == (15, 2, 200)
    distance = np.abs(draws[..., :, None] - each[..., None, :]).max(axis=(0, 1))
    nearest = distance.argmin(-1)
    assert distance.min(-1).max() < 1e-3
    assert len(set(nearest)) == 12


def load_copy(model):
    return pickle.loads(pickle.dumps(model))


def test_moments_of_draws(net, new_rows):
    X = new_rows[0][:4]
    draws = net.sample_y(X, 40_000, random_state=0)
    mean, covariance = net.predict(X, return_cov=True)
    scale = np.sqrt(np.diag(covariance))
    np.testing.assert_allclose(draws.mean(1), mean, atol=0.03 * scale.max())
    np.testing.assert_allclose(np.cov(draws), covariance, atol=0.05 * scale.max() ** 2)
    np.testing.assert_array_equal(net.sample_y(X, 3, random_state=2), net.sample_y(X, 3, random_state=2))


def test_long_tables_are_predicted_in_pieces(pair, new_rows, monkeypatch):
    X, _ = new_rows
    whole = pair.predict_distribution(X), pair.predict(X, return_std=True)
    monkeypatch.setattr(table_predictor, "CHUNK_ENTRIES", 7 * 2 * pair.predictor_.inner.n_points)
    assert [part.mean.shape for part in pair.predictor_.stream(torch.as_tensor(X))][:2] == [(12, 7, 2)] * 2
    np.testing.assert_allclose(pair.predict_distribution(X).means, whole[0].means, rtol=1e-12)
    np.testing.assert_allclose(pair.predict(X, return_std=True), whole[1], rtol=1e-12)
    np.testing.assert_allclose(pair.predict(X), whole[1][0], rtol=1e-12)


def test_one_row_and_many(net, new_rows):
    X, _ = new_rows
    alone = np.concatenate([net.predict(row[None]) for row in X])
    np.testing.assert_allclose(alone, net.predict(X), rtol=1e-12)


@pytest.mark.parametrize("parameters", [{}, {"features": "ppgpr", "max_epochs": 1}, {"predict_dtype": "float32"}])
def test_saving_and_loading(parameters, table, new_rows, tmp_path):
    X, y = new_rows
    model = quick(**parameters).fit(*table)
    model.save(tmp_path / "m.candid")
    again = load(tmp_path / "m.candid")
    assert isinstance(again, NetworkRegressor)
    ours, theirs = model.get_params(), again.get_params()
    assert {name: theirs[name] for name in ours} == ours
    first, second = model.predict_distribution(X), again.predict_distribution(X)
    np.testing.assert_array_equal(first.means, second.means)
    np.testing.assert_array_equal(first.log_prob(y), second.log_prob(y))
    assert (again.noise_, again.history_) == (model.noise_, model.history_)
    np.testing.assert_array_equal(load_copy(model).predict(X), model.predict(X))


def test_a_fit_can_be_repeated(net, table, new_rows):
    X, _ = new_rows
    np.testing.assert_array_equal(clone(net).fit(*table).predict(X), net.predict(X))
    assert (quick(random_state=1).fit(*table).predict(X) != net.predict(X)).all()


def test_known_noise(table):
    X, y = table
    model = quick(alpha=16.0).fit(X, y)
    assert model.noise_ == pytest.approx(4.0)
    assert model._fitted.problem.likelihood.noise is None
    model = quick(alpha=np.linspace(1.0, 3.0, len(y))).fit(X, y)
    assert model.noise_ == pytest.approx(np.sqrt(2.0))


def test_without_dropout_there_is_one_function(table):
    X, y = table
    model = quick(dropout=0.0).fit(X, y)
    p = model.predict_distribution(X)
    assert p.means.shape == (len(X), 1)
    assert not p.latent_std.any()


def test_weight_decay_shrinks_the_network(table):
    def size(decay):
        problem = quick(weight_decay=decay).fit(*table)._fitted.problem
        return sum(float(parameter.detach().square().sum()) for parameter in problem.groups()["network"])

    assert size(1.0) < 0.5 * size(0.0)


def test_early_stopping_watches_the_mixture(table):
    model = quick(validation_fraction=0.2, patience=3).fit(*table)
    assert all("validation_nll" in record for record in model.history_)


def test_more_rows_continue_the_training(table, new_rows):
    model = quick().fit(*table)
    before = model.history_[-1]["loss"]
    model.partial_fit(*new_rows)
    assert model.history_[0]["loss"] < before + 1.0
    assert len(model._fitted.training) == 160
    with pytest.raises(ValueError, match="features has changed"):
        model.set_params(features=(4,)).partial_fit(*new_rows)


def test_a_module_of_torch(table, new_rows):
    module = nn.Sequential(nn.Linear(3, 12), nn.SiLU(), nn.Linear(12, 6), nn.SiLU())
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    model = quick(features=module, max_epochs=100).fit(*table)
    assert model.predictor_.inner.network.hidden == [12, 6]
    assert model.score(*new_rows) > 0.5
    assert all(torch.equal(tensor, before[name]) for name, tensor in module.state_dict().items())


def test_the_module_of_a_loaded_model(table, new_rows, tmp_path):
    X, _ = new_rows
    module = nn.Sequential(nn.Linear(3, 6), nn.Tanh())
    model = quick(features=module).fit(*table)
    model.save(tmp_path / "m.candid")
    with pytest.raises(ValueError, match="features="):
        load(tmp_path / "m.candid")
    again = load(tmp_path / "m.candid", features=nn.Sequential(nn.Linear(3, 6), nn.Tanh()))
    np.testing.assert_array_equal(again.predict(X), model.predict(X))


@pytest.mark.parametrize(
    ("parameters", "error", "message"),
    [
        ({"dropout": 1.0}, ValueError, "dropout"),
        ({"n_passes": 0}, ValueError, "n_passes"),
        ({"weight_decay": -1.0}, ValueError, "weight_decay"),
        ({"features": "resnet"}, ValueError, "unknown network 'resnet'"),
        ({"features": ()}, ValueError, "at least one layer"),
        ({"features": nn.Linear(7, 2)}, ValueError, "does not take a table of 3 features"),
        ({"likelihood": "poisson"}, ValueError, "likelihood='gaussian'"),
    ],
)
def test_mistakes(parameters, error, message, table):
    with pytest.raises(error, match=message):
        quick(**parameters).fit(*table)


def test_error_bars_are_honest_where_there_is_data():
    """Noise of standard deviation 0.3 around a sine; and the copies differ more where there is none."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, size=(2000, 1))
    y = np.sin(2 * X[:, 0]) + 0.3 * rng.normal(size=2000)
    model = NetworkRegressor(features=(64, 64), max_epochs=60, random_state=0).fit(X[:1500], y[:1500])
    p = model.predict_distribution(X[1500:])
    assert np.sqrt(np.mean((p.mean - y[1500:]) ** 2)) < 0.36
    assert 0.9 < coverage(y[1500:], p, level=0.95) <= 1.0
    assert 0.25 < p.std.mean() < 0.45
    far = model.predict_distribution(np.array([[8.0]]))
    assert far.latent_std[0] > 3 * p.latent_std.mean()


def test_long_tables_get_more_steps():
    epochs = [NetworkRegressor()._epochs(n) for n in (20, 200, 2000, 20_000, 1_000_000)]
    assert epochs[:2] == [100, 100]
    steps = [epoch * -(-n // 256) for epoch, n in zip(epochs, (20, 200, 2000, 20_000, 1_000_000), strict=True)]
    assert steps == sorted(steps)
    assert 900 < steps[2] < 1100
    assert 4000 <= steps[3] < 4100


def test_the_row_of_the_table(table):
    model = candid.make_gp("mc-dropout", features=(8,), max_epochs=2, n_passes=3, random_state=0).fit(*table)
    assert isinstance(model, NetworkRegressor)
    assert np.isfinite(model.predict(table[0])).all()
