"""Deep GPs as estimators: what they are made of, where they start, what they predict, and that they can be kept."""

from __future__ import annotations

import pickle
from functools import partial

import numpy as np
import pytest
import torch
from scipy.special import logsumexp
from scipy.stats import norm
from sklearn.decomposition import PCA
from sklearn.linear_model import LinearRegression

from candid import DeepGPRegressor, SparseGPRegressor, load
from candid.estimators import deep_gp, deep_pace, deep_start
from candid.estimators import fitting as fitting_module
from candid.families import Embedded, Layers, MonteCarlo
from candid.predictive import PredictiveMixture, PredictiveNormal
from candid.priors import LogNormal
from fragile import FragileCheckpoint, Interrupted

quick = partial(DeepGPRegressor, hidden_widths=(2,), n_sites=3, n_inducing=15, max_epochs=20, random_state=0)
VARIANTS = {
    "qr3": {},
    "qr1": {"quadrature": "qr1", "n_sites": 2},
    "sampling": {"propagation": "sampling", "objective": "elbo", "covariance": "full", "beta": 1.0},
    "robust": {"propagation": "sampling", "objective": "robust", "covariance": "full", "beta": 1.0},
    "three": {"hidden_widths": (2, 3), "topology": "both_mean", "skip": True, "max_epochs": 40},
    "input_mean": {"hidden_widths": (2, 2), "topology": "input_mean"},
    "network": {"features": (8, 3)},
    "point": {"covariance": "none", "lr": 0.003, "q_lr": 0.01},
    "cold": {"init": "random", "max_epochs": 60},
}


@pytest.fixture(scope="module", params=VARIANTS)
def gp(request, table):
    return quick(**VARIANTS[request.param]).fit(*table)


def test_it_learns(gp, table, new_rows):
    assert gp.history_[-1]["loss"] <= gp.history_[0]["loss"]
    assert gp.score(*new_rows) > (0.2 if gp.init == "random" else 0.7)
    assert gp.predict_distribution(new_rows[0]).log_prob(new_rows[1]).mean() > norm(200, 25).logpdf(new_rows[1]).mean()


def test_only_a_bound_makes_steps_shorter(table, monkeypatch):
    asked = []

    def pace(n_rows, batch_size, independence):
        asked.append(independence)
        return deep_pace.warm_deep_pace(n_rows, batch_size, independence)

    monkeypatch.setattr(deep_gp, "warm_deep_pace", pace)
    for objective in ("elbo", "predictive"):
        quick(objective=objective, max_epochs=1).fit(*table)
    assert 0 < asked[0] < 1
    assert asked[1] is None


def test_predictions_are_mixtures(gp, new_rows):
    X, y = new_rows
    p = gp.predict_distribution(X)
    assert isinstance(p, PredictiveMixture)
    with torch.no_grad():
        marginal = gp.predictor_.marginal(torch.as_tensor(X))
    mean, variance = marginal.mean[..., 0].numpy(), marginal.variance[..., 0].numpy() + gp.noise_**2
    density = logsumexp(marginal.log_weight.numpy() + norm(mean, np.sqrt(variance)).logpdf(y), axis=0)
    np.testing.assert_allclose(p.log_prob(y), density)
    np.testing.assert_allclose(gp.predict(X), p.mean)
    np.testing.assert_allclose(gp.predict(X, return_std=True)[1], p.std)
    np.testing.assert_allclose(np.sqrt(np.diag(gp.predict(X, return_cov=True)[1])), p.std)
    draws = gp.sample_y(X[:3], 4000, random_state=1)
    np.testing.assert_allclose(draws.mean(1), p.mean[:3], atol=4 * p.std[:3].max() / np.sqrt(4000))
    assert len(marginal.log_weight) == (32 if gp.propagation == "sampling" else (4 if gp.quadrature == "qr1" else 3))


def test_a_file_holds_all_that_predicts(gp, new_rows, tmp_path):
    gp.save(tmp_path / "model.candid")
    again = load(tmp_path / "model.candid")
    for one, other in zip(*(model.predict(new_rows[0], return_std=True) for model in (gp, again)), strict=True):
        assert np.array_equal(one, other)
    assert again.get_params().keys() == gp.get_params().keys()
    assert again.hidden_widths == tuple(gp.hidden_widths)
    copied = pickle.loads(pickle.dumps(gp))
    assert np.array_equal(copied.predict(new_rows[0]), gp.predict(new_rows[0]))


def test_fits_repeat_bit_for_bit(gp, table, new_rows):
    again = type(gp)(**gp.get_params()).fit(*table)
    assert np.array_equal(again.predict(new_rows[0]), gp.predict(new_rows[0]))


@pytest.mark.parametrize("objective", ["predictive", "elbo"])
def test_without_hidden_layers_it_is_a_sparse_gp(table, new_rows, objective):
    """One-layer dspp is ppgpr-mf: at the same length and pace, the very same numbers come out."""
    same = {"objective": objective, "n_inducing": 15, "beta": 0.3, "max_epochs": 12, "lr": 0.02, "q_lr": 0.05}
    same |= {"covariance": "diagonal", "random_state": 3}
    deep = DeepGPRegressor(hidden_widths=(), **same).fit(*table)
    plain = SparseGPRegressor(**same).fit(*table)
    assert isinstance(deep.predict_distribution(new_rows[0]), PredictiveNormal)
    np.testing.assert_allclose(deep.history_[0]["loss"], plain.history_[0]["loss"], rtol=1e-12)
    np.testing.assert_allclose(deep.predict(new_rows[0]), plain.predict(new_rows[0]), rtol=1e-3)
    np.testing.assert_allclose(deep.noise_, plain.noise_, rtol=1e-2)


def test_several_outputs(table, new_rows):
    X, y = table
    pair = quick().fit(X, np.column_stack([y, 3.0 * X[:, 0] + 1.0]))
    p = pair.predict_distribution(new_rows[0])
    assert p.mean.shape == (40, 2)
    assert pair.noise_.shape == (2,)
    assert pair.score(new_rows[0], np.column_stack([new_rows[1], 3.0 * new_rows[0][:, 0] + 1.0])) > 0.7


def test_hidden_layers_start_as_a_regression_and_principal_components(table):
    X, y = table
    gp = quick(max_epochs=0, fixed=("lengthscale",)).fit(X, y)
    family = gp._fitted.problem.family
    assert isinstance(family, Layers)
    x = (X - X.mean(0)) / X.std(0)
    with torch.no_grad():
        first, second = family.layers[0].mean(torch.as_tensor(x).float()).double().numpy().T
    slope = LinearRegression().fit(x, y).coef_
    slope /= np.linalg.norm(slope)
    component = PCA(1).fit_transform(x - np.outer(x @ slope, slope))[:, 0]
    for found, expected in ((first, x @ slope), (second, component)):
        np.testing.assert_allclose(np.abs(np.mean(found * expected / expected.std())), 1.0, atol=1e-4)
        np.testing.assert_allclose(found.std(), 1.0, rtol=1e-4)
    np.testing.assert_allclose(family.layers[0].kernel.amplitude.value.detach(), deep_start.HIDDEN_AMPLITUDE, rtol=1e-5)


@pytest.mark.parametrize(("noise", "loud"), [(0.5, True), (0.0, False)])
def test_random_hidden_values_start_as_loud_as_the_last_layer_can_bear(noise, loud):
    """Beside noise they do not matter; a last layer that follows every ripple without noise cannot bear them."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (120, 1))
    y = np.sin(12 * X[:, 0]) + noise * rng.normal(size=120)
    gp = quick(n_inducing=40, max_epochs=0, **VARIANTS["sampling"]).fit(X, y)
    amplitude = gp._fitted.problem.family.layers[0].kernel.amplitude.value.detach()
    if loud:
        np.testing.assert_allclose(amplitude, deep_start.HIDDEN_AMPLITUDE, rtol=1e-5)
    else:
        assert amplitude.max() < 0.2 * deep_start.HIDDEN_AMPLITUDE


@pytest.mark.parametrize(("objective", "weight"), [("predictive", 0.2), ("elbo", 1.0)])
def test_the_penalty_counts_as_the_objective_has_it(table, objective, weight):
    gp = quick(objective=objective, propagation="sampling", max_epochs=0).fit(*table)
    assert gp._fitted.problem.coefficients == {"kl": weight}


def test_a_layer_may_be_wider_than_its_inputs(table, new_rows):
    gp = quick(hidden_widths=(5,)).fit(*table)
    assert gp.score(*new_rows) > 0.7


@pytest.mark.parametrize("variant", ["sampling", "qr3"])
def test_an_interrupted_fit_goes_on(variant, table, new_rows, tmp_path, monkeypatch):
    options = {**VARIANTS[variant], "batch_size": 50, "max_epochs": 4}
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
    gp = quick(beta=0.1).fit(X[:60], y[:60])
    before = gp._fitted.problem.family.layers[0].points.detach().clone()
    gp.set_params(max_epochs=0).partial_fit(X[60:], y[60:])
    assert torch.equal(gp._fitted.problem.family.layers[0].points, before)
    gp.set_params(max_epochs=3).partial_fit(X[:5], y[:5])
    assert gp._fitted.problem.family.layers[0].points.shape == before.shape
    with pytest.raises(ValueError, match="hidden_widths has changed"):
        gp.set_params(hidden_widths=(3,)).partial_fit(X[:5], y[:5])


@pytest.mark.parametrize("kind", [partial(quick, n_inducing=100), partial(SparseGPRegressor, n_inducing=200)])
def test_training_is_kept_until_there_could_be_twice_as_many_points(kind, table):
    def points():
        family = gp._fitted.problem.family
        return getattr(family, "last", family).points.detach()

    X, y = table
    gp = kind(max_epochs=3).fit(X[:40], y[:40])
    kept = points().clone()
    gp.set_params(max_epochs=0).partial_fit(X[40:70], y[40:70])
    assert torch.equal(points(), kept)
    # Rows that are there already make no place for new points.
    gp.partial_fit(np.repeat(X[:5], 30, axis=0), np.repeat(y[:5], 30))
    assert torch.equal(points(), kept)
    gp.partial_fit(X[70:], y[70:])
    assert points().shape[-2] >= 2 * kept.shape[-2]


@pytest.mark.parametrize("variant", ["qr3", "sampling"])
def test_a_trial_does_not_spoil_a_start(variant, table):
    """At the full rate from the first step on, two epochs made losses several times as large."""
    one, best = (quick(**VARIANTS[variant], n_starts=number, batch_size=25).fit(*table) for number in (1, 3))
    assert best.history_[0]["loss"] <= one.history_[0]["loss"] + 1e-6


def test_the_best_of_several_starts_goes_on(table, monkeypatch):
    built = []
    real = DeepGPRegressor._started
    monkeypatch.setattr(DeepGPRegressor, "_started", lambda gp, *args: built.append(real(gp, *args)) or built[-1])
    gp = quick(n_starts=3, init="random").fit(*table)
    assert len(built) == 3
    rows = fitting_module._tensors(
        gp._fitted.training, gp._fitted.inputs, gp._fitted.targets, torch.device("cpu"), torch.float32
    )
    losses = [problem.standing(rows) for problem in built if problem is not gp._fitted.problem]
    assert len(losses) == 2
    assert gp._fitted.problem.standing(rows) < min(losses)


def test_priors_and_fixed_parameters_reach_all_layers(table):
    gp = quick(max_epochs=2, fixed=("amplitude",), priors={"lengthscale": LogNormal(1.0, 1.0)}).fit(*table)
    first, last = gp._fitted.problem.family.layers
    assert first.kernel.amplitude.fixed
    assert last.kernel.amplitude.fixed
    assert len(gp._fitted.problem.prior.terms) == 2
    only = quick(max_epochs=1, fixed=("hidden.0.kernel.base.lengthscale",)).fit(*table)
    first, last = only._fitted.problem.family.layers
    assert first.kernel.base.lengthscale.fixed
    assert not last.kernel.base.lengthscale.fixed


def test_the_kernel_that_is_shown_is_that_of_the_last_layer(table):
    X, y = table
    gp = quick().fit(X, y)
    last = gp._fitted.problem.family.last.kernel
    torch.testing.assert_close(gp.kernel_.base.lengthscale.value.float(), last.base.lengthscale.value)
    amplitude = last.amplitude.value.double() * float(y.std()) ** 2
    torch.testing.assert_close(gp.kernel_.amplitude.value, amplitude, rtol=1e-5, atol=0)


def test_a_network_is_in_front_of_everything(table):
    gp = quick(**VARIANTS["network"]).fit(*table)
    family = gp._fitted.problem.family
    assert isinstance(family, Embedded)
    assert family.inner.layers[0].points.shape[-1] == 3
    assert gp.kernel_.base.lengthscale.value.shape[-1] == 2


def test_sampling_sites_follow_from_the_seed(table):
    gp = quick(propagation="sampling", n_predict_sites=5, max_epochs=1).fit(*table)
    assert isinstance(gp._fitted.problem.family.rule, MonteCarlo)
    assert gp.predictor_.inner.sites.log_weight().shape == (5, 1)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"hidden_widths": (0,)}, "hidden_widths are the numbers of GPs"),
        ({"hidden_widths": (5, 5), "quadrature": "qr1", "n_sites": 3}, "59049 sites"),
        ({"objective": "vfitc"}, "layers GPs have no objective 'vfitc'.*'predictive' or 'elbo' or 'robust'"),
        ({"topology": "ring"}, "topology"),
        ({"mean": "quadratic"}, "mean"),
    ],
)
def test_mistakes(parameters, message, table):
    with pytest.raises(ValueError, match=message):
        quick(**parameters).fit(*table)


@pytest.mark.parametrize("n_rows", [1, 2, 5])
def test_few_rows(n_rows, table):
    gp = quick(max_epochs=3).fit(table[0][:n_rows], table[1][:n_rows])
    assert np.isfinite(gp.predict(table[0])).all()


def test_columns_that_never_change_and_rows_that_repeat(table):
    X, y = table
    X = np.column_stack([X, np.ones(len(X))])
    gp = quick(max_epochs=3).fit(np.concatenate([X, X]), np.concatenate([y, y]))
    assert np.isfinite(gp.predict(X)).all()
