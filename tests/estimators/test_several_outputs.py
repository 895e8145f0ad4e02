"""Several targets: mixtures of shared latent functions, and entries that were not observed."""

from __future__ import annotations

import numpy as np
import pandas
import pytest
from scipy.stats import multivariate_normal
from sklearn.base import clone
from sklearn.utils.estimator_checks import check_regressor_multioutput

import candid.estimators.fitting as fitting_module
from candid import DeepGPRegressor, ExactGPRegressor, NeighborGPRegressor, SparseGPRegressor, load
from candid.metrics import nll, nll_scorer
from candid.predictive import PredictiveCorrelated, PredictiveNormal
from fragile import FragileCheckpoint, Interrupted

QUICK = {"random_state": 0, "verbose": False}
MODELS = {
    "predictive": SparseGPRegressor(n_inducing=20, max_epochs=10, covariance="diagonal", **QUICK),
    "elbo": SparseGPRegressor(objective="elbo", beta=1.0, n_inducing=20, max_epochs=10, **QUICK),
    "neighbours": NeighborGPRegressor(n_neighbors=12, max_epochs=5, **QUICK),
    "deep": DeepGPRegressor(hidden_widths=(2,), n_inducing=15, n_sites=3, max_epochs=5, **QUICK),
}


@pytest.fixture(scope="module")
def table():
    """Two outputs in very different units that are nearly the same function, the second seldom observed."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-3, 3, size=(120, 2)) * [1.0, 20.0]
    f = np.sin(2 * X[:, 0]) + 0.03 * X[:, 1]
    noise = 0.1 * rng.normal(size=(120, 2))
    Y = np.column_stack([f, 0.9 * f - 0.2]) + noise
    return X, Y * [1.0, 1000.0] + [5.0, 0.0]


@pytest.fixture(scope="module")
def gaps(table):
    """The second output is missing wherever the first feature is positive."""
    X, Y = table
    Y = Y.copy()
    Y[X[:, 0] > 0, 1] = np.nan
    return X, Y


@pytest.fixture(scope="module")
def fitted(gaps):
    both = ("independent", "coregionalised")
    return {
        name: {outputs: clone(model).set_params(outputs=outputs).fit(*gaps) for outputs in both}
        for name, model in MODELS.items()
    }


@pytest.fixture(params=MODELS)
def pair(request, fitted):
    return fitted[request.param]["independent"], fitted[request.param]["coregionalised"]


def test_what_is_missing_is_learned_from_the_other_output(pair, table):
    X, Y = table
    missing = X[:, 0] > 0
    apart, together = (np.abs(model.predict(X)[missing, 1] - Y[missing, 1]).mean() for model in pair)
    assert together < 300
    assert together < 0.6 * apart


def test_predictions_agree_with_each_other(pair, table):
    X, Y = table
    for model, kind in zip(pair, (PredictiveNormal, PredictiveCorrelated), strict=True):
        p = model.predict_distribution(X[:30])
        assert p.shape == (30, 2)
        assert isinstance(p, kind) or model.__class__ is DeepGPRegressor
        mean, std = model.predict(X[:30], return_std=True)
        np.testing.assert_allclose(mean, p.mean, rtol=1e-6)
        np.testing.assert_allclose(std, p.std, rtol=1e-6)
        np.testing.assert_allclose(model.predict(X[:30]), p.mean, rtol=1e-6)
        np.testing.assert_allclose(p.noise_std[0], model.noise_, rtol=1e-6)
        assert nll_scorer(model, X[:30], Y[:30]) == pytest.approx(-nll(Y[:30], p))
        assert model.sample_y(X[:3], 7).shape == (3, 2, 7)


def test_joint_predictions(pair, table):
    X, _ = table
    apart, together = pair
    assert apart.predict(X[:3], return_cov=True)[1].shape == (3, 3, 2)
    # One row sees the same neighbours alone and together with itself.
    mean, covariance = together.predict(X[:1], return_cov=True)
    p = together.predict_distribution(X[:1])
    np.testing.assert_allclose(mean, p.mean, rtol=1e-6)
    np.testing.assert_allclose(covariance[0, 0], p.covariance[0], rtol=1e-5)
    mean, covariance = together.predict(X[:3], return_cov=True)
    assert covariance.shape == (3, 3, 2, 2)
    draws = together.sample_y(X[:3], 40_000)
    scale = np.sqrt(np.einsum("nnpp->np", covariance))
    np.testing.assert_allclose(draws.mean(-1) / scale, mean / scale, atol=0.03)
    found = np.cov(draws.reshape(6, -1)).reshape(3, 2, 3, 2).transpose(0, 2, 1, 3)
    unit = scale[:, None, :, None] * scale[None, :, None, :]
    np.testing.assert_allclose(found / unit, covariance / unit, atol=0.05)
    correlation = covariance[1, 1, 0, 1] / np.sqrt(covariance[1, 1, 0, 0] * covariance[1, 1, 1, 1])
    assert abs(correlation) > 1e-3


def test_files_and_attributes(pair, table, tmp_path):
    for model in pair:
        model.save(tmp_path / "model.candid")
        again = load(tmp_path / "model.candid")
        p, q = (some.predict_distribution(table[0][:9]) for some in (model, again))
        np.testing.assert_array_equal(p.quantile(0.8), q.quantile(0.8))
        np.testing.assert_array_equal(p.log_prob(table[1][:9]), q.log_prob(table[1][:9]))
        np.testing.assert_array_equal(again.noise_, model.noise_)
    assert not hasattr(pair[0], "mixing_")
    assert pair[1].mixing_.shape == (2, 2)
    np.testing.assert_array_equal(again.mixing_, pair[1].mixing_)


def test_densities_are_of_all_outputs_together(fitted, table):
    p = fitted["predictive"]["coregionalised"].predict_distribution(table[0][:4])
    expected = [multivariate_normal(*row).logpdf(y) for *row, y in zip(p.mean, p.covariance, table[1][:4], strict=True)]
    np.testing.assert_allclose(p.log_prob(table[1][:4]), expected)


def test_units_do_not_matter(table):
    X, Y = table
    model = clone(MODELS["predictive"]).set_params(outputs="coregionalised", max_epochs=3)
    one, other = model.fit(X, Y).predict_distribution(X), clone(model).fit(X, 8 * Y - 16).predict_distribution(X)
    np.testing.assert_allclose(8 * one.mean - 16, other.mean, rtol=1e-3)
    np.testing.assert_allclose(64 * one.covariance, other.covariance, rtol=1e-2)
    np.testing.assert_allclose(nll(Y, one) + np.log(8), nll(8 * Y - 16, other), rtol=1e-3)


def test_fewer_latent_functions_than_outputs(table):
    X, Y = table
    Y = np.column_stack([Y, Y @ [0.5, 0.001]])
    model = clone(MODELS["predictive"]).set_params(outputs="coregionalised", n_latents=1).fit(X, Y)
    assert model.mixing_.shape == (1, 3)
    assert model.kernel_.amplitude.value.shape == (1,)
    assert np.abs(model.predict(X) - Y).mean(0)[0] < 0.15
    with pytest.raises(ValueError, match="4 latent functions need as many outputs"):
        clone(model).set_params(n_latents=4).fit(X, Y)


def test_a_known_noise(gaps):
    alpha = np.full(gaps[1].shape, [0.01, 1e4])
    model = clone(MODELS["predictive"]).set_params(outputs="coregionalised", max_epochs=3, alpha=alpha).fit(*gaps)
    np.testing.assert_allclose(model.noise_, [0.1, 100.0], rtol=1e-5)
    p = model.predict_distribution(gaps[0][:5], alpha=[[4.0, 9.0]] * 5)
    np.testing.assert_allclose(p.noise_std, [[2.0, 3.0]] * 5)


def test_equal_rows_are_one_row_of_their_total_weight(gaps):
    X, Y = gaps
    twice = np.r_[np.arange(120), np.arange(40)]
    model = clone(MODELS["predictive"]).set_params(outputs="coregionalised", max_epochs=3)
    weighted = clone(model).fit(X, Y, 1.0 + (np.arange(120) < 40))
    repeated = clone(model).fit(X[twice], Y[twice])
    assert len(repeated._fitted.training) == 120
    np.testing.assert_array_equal(weighted.predict(X), repeated.predict(X))
    # The same numbers with another entry missing are another row.
    complete = np.flatnonzero(X[:, 0] < 0)[0]
    other = np.vstack([Y, np.where([[True, False]], np.nan, Y[complete])])
    model.set_params(max_epochs=0).fit(np.vstack([X, X[complete]]), other)
    assert len(model._fitted.training) == 121


def test_missing_entries_of_pandas(gaps):
    model, (X, Y) = clone(MODELS["predictive"]).set_params(max_epochs=1), gaps
    nullable = pandas.DataFrame(Y).astype("Float64")
    assert nullable.isna().to_numpy().any()
    expected = clone(model).fit(X, Y).predict(X)
    np.testing.assert_array_equal(model.fit(X, nullable).predict(X), expected)


def test_rows_without_any_target_are_left_out(gaps):
    X, Y = gaps
    model = clone(MODELS["elbo"]).set_params(max_epochs=3)
    empty = np.vstack([Y, [[np.nan, np.nan]] * 5])
    np.testing.assert_array_equal(
        model.fit(X, Y).predict(X), clone(model).fit(np.vstack([X, X[:5] + 1]), empty).predict(X)
    )


@pytest.mark.parametrize("name", ["elbo", "neighbours"])
def test_an_interrupted_fit_goes_on(name, gaps, tmp_path, monkeypatch):
    model = clone(MODELS[name]).set_params(outputs="coregionalised", batch_size=40, max_epochs=3)
    expected = clone(model).fit(*gaps).predict(gaps[0])
    model.set_params(checkpoint_dir=str(tmp_path))
    real = fitting_module.checkpoint_of
    monkeypatch.setattr(fitting_module, "checkpoint_of", lambda *args: FragileCheckpoint(real(*args).path, 5))
    with pytest.raises(Interrupted):
        clone(model).fit(*gaps)
    monkeypatch.setattr(fitting_module, "checkpoint_of", real)
    np.testing.assert_array_equal(clone(model).fit(*gaps).predict(gaps[0]), expected)


def test_more_rows(pair, gaps, table):
    X, Y = gaps
    for model in pair:
        more = clone(model).set_params(max_epochs=2).fit(X[:90], Y[:90])
        more.partial_fit(X[90:], Y[90:])
        assert len(more._fitted.training) == 120
        assert np.isfinite(more.predict(X)).all()
    # Where all targets were there before, it is a fit of all rows.
    first, rest = slice(None, 60), slice(60, None)
    complete = clone(pair[0]).fit(table[0][first], table[1][first]).partial_fit(X[rest], Y[rest])
    at_once = clone(pair[0]).fit(np.r_[table[0][first], X[rest]], np.r_[table[1][first], Y[rest]])
    np.testing.assert_array_equal(complete.predict(X), at_once.predict(X))


@pytest.mark.parametrize("name", ["predictive", "neighbours"])
def test_rows_that_are_held_out_may_have_gaps(name, gaps):
    model = clone(MODELS[name]).set_params(outputs="coregionalised", validation_fraction=0.2, patience=2, max_epochs=2)
    model.fit(*gaps)
    assert all(np.isfinite(record["validation_nll"]) for record in model.history_)
    assert np.isfinite(model.predict(gaps[0])).all()


@pytest.mark.parametrize("kind", [SparseGPRegressor, NeighborGPRegressor, DeepGPRegressor])
def test_scikit_learn(kind):
    check_regressor_multioutput(kind.__name__, kind(outputs="coregionalised", max_epochs=2))


def test_one_target_is_nothing_to_mix(table):
    X, Y = table
    model = clone(MODELS["predictive"]).set_params(max_epochs=2)
    plain, mixed = (clone(model).set_params(outputs=o).fit(X, Y[:, 0]) for o in ("independent", "coregionalised"))
    np.testing.assert_array_equal(plain.predict(X), mixed.predict(X))
    assert isinstance(mixed.predict_distribution(X), PredictiveNormal)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"outputs": "coregionalised", "likelihood": "student-t"}, "is for normal noise"),
        ({"n_latents": 2}, "n_latents is for outputs='coregionalised'"),
        ({"outputs": "coregionalised", "objective": "sgpr"}, "use objective='elbo' or 'predictive'"),
        ({"likelihood": "coregionalised"}, "say outputs='coregionalised'"),
    ],
)
def test_combinations_that_do_not_exist(parameters, message, table):
    with pytest.raises(ValueError, match=message):
        clone(MODELS["predictive"]).set_params(**parameters).fit(*table)


def test_gaps_that_no_model_can_take(table):
    X, Y = table
    model = clone(MODELS["predictive"])
    single, never, nothing = Y[:, 0].copy(), Y.copy(), np.full_like(Y, np.nan)
    single[3], never[:, 1] = np.nan, np.nan
    with pytest.raises(ValueError, match="Input y contains NaN"):
        model.fit(X, single)
    with pytest.raises(ValueError, match="Input y contains NaN"):
        model.fit(X, single[:, None])
    with pytest.raises(ValueError, match="NaN in every row of column 1"):
        model.fit(X, never)
    with pytest.raises(ValueError, match="nothing to learn from"):
        model.fit(X, nothing)
    gappy, infinite = Y.copy(), Y.copy()
    gappy[0, 0], infinite[0, 0], infinite[1, 1] = np.nan, np.inf, np.nan
    with pytest.raises(ValueError, match="Input y contains infinity"):
        model.fit(X, infinite)
    with pytest.raises(ValueError, match="Input y contains NaN"):
        ExactGPRegressor().fit(X, gappy)
    with pytest.raises(ValueError, match="Input y contains NaN"):
        clone(model).set_params(likelihood="student-t").fit(X, gappy)
    with pytest.raises(ValueError, match="'partly-observed'"):
        clone(model).set_params(objective="sgpr").fit(X, gappy)


@pytest.mark.parametrize("objective", ["mll", "vecchia", "swsgp", "alc"])
def test_what_needs_leave_one_out_densities(objective, table, gaps):
    model = clone(MODELS["neighbours"]).set_params(objective=objective)
    with pytest.raises(ValueError, match=f"'{objective}' does not go with missing entries of y; use objective='loo'"):
        model.fit(*gaps)
    with pytest.raises(ValueError, match=r"does not go with outputs='coregionalised'; use objective='loo'"):
        model.set_params(outputs="coregionalised").fit(*table)


@pytest.mark.parametrize("outputs", ["independent", "coregionalised"])
@pytest.mark.parametrize(
    "change", [lambda Y: np.column_stack([Y[:, 0], 2 * Y[:, 0]]), lambda Y: np.column_stack([Y[:, 0], np.ones(len(Y))])]
)
def test_targets_that_determine_each_other_or_are_constant(outputs, change, table):
    X, Y = table[0], change(table[1])
    p = clone(MODELS["predictive"]).set_params(outputs=outputs, max_epochs=5).fit(X, Y).predict_distribution(X)
    assert np.isfinite(p.log_prob(Y)).all()
    assert np.abs(p.mean - Y).mean() < 0.3


def test_tables_of_one_and_two_rows(table):
    for name in ("predictive", "neighbours"):
        for n in (1, 2):
            few = clone(MODELS[name]).set_params(outputs="coregionalised").fit(table[0][:n], table[1][:n])
            assert np.isfinite(few.predict(table[0])).all()
