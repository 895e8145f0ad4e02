"""What the parameters of fitting do."""

from __future__ import annotations

import math
import pickle
import warnings

import numpy as np
import pytest
import torch
from sklearn.base import clone

from candid import ExactGPRegressor, SparseGPRegressor, datasets, make_gp, metrics
from candid.kernels import RBF, Matern52
from candid.priors import Gamma, HalfNormal, Interval, LogNormal, Normal


def state(gp) -> dict[str, torch.Tensor]:
    return gp.predictor_.state_dict()


def same(first, second) -> bool:
    """Whether two fits are equal to the last bit."""
    ours, theirs = state(first), state(second)
    return ours.keys() == theirs.keys() and all(torch.equal(ours[name], theirs[name]) for name in ours)


def lengthscale(gp) -> np.ndarray:
    return gp.predictor_.inner.kernel.base.lengthscale.value.detach().flatten().numpy()


@pytest.mark.parametrize("name", ["exact", "svgp", "ppgpr-mf", "map"])
def test_a_seed_repeats_a_fit_bit_for_bit(name, table):
    short = {} if name == "exact" else {"n_inducing": 15, "max_epochs": 5, "batch_size": 50}
    first, again = (make_gp(name, random_state=7, **short).fit(*table) for _ in range(2))
    assert same(first, again)
    assert [record["loss"] for record in first.history_] == [record["loss"] for record in again.history_]


def test_another_seed_gives_another_fit(quick, table):
    first, other = (quick(random_state=seed, batch_size=50).fit(*table) for seed in (0, 1))
    assert not same(first, other)


def test_random_state_objects(quick, table):
    first, again = (quick(random_state=np.random.RandomState(3)).fit(*table) for _ in range(2))
    assert same(first, again)


def test_the_order_of_rows_does_not_matter(make, table):
    X, y = table
    order = np.random.default_rng(0).permutation(len(y))
    assert same(make().fit(X, y), make().fit(X[order], y[order]))


def test_a_weight_of_two_is_a_row_that_occurs_twice(make, table):
    X, y = table
    twice = np.arange(len(y)) < 30
    weighted = make().fit(X, y, sample_weight=1.0 + twice)
    repeated = make().fit(np.concatenate([X, X[twice]]), np.concatenate([y, y[twice]]))
    assert same(weighted, repeated)
    assert not same(weighted, make().fit(X, y))


def test_rows_of_weight_zero_do_not_count(make, table):
    X, y = table
    weight = (np.arange(len(y)) % 3 > 0).astype(float)
    assert same(make().fit(X, y, sample_weight=weight), make().fit(X[weight > 0], y[weight > 0]))


def test_heavy_rows_pull_the_fit(make):
    """Of two groups of rows that contradict each other the heavier one wins."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, size=(60, 1))
    y = np.where(np.arange(60) % 2, 1.0, -1.0) + 0.1 * rng.normal(size=60)
    balanced = make().fit(X, y).predict([[0.0]])
    heavy = make().fit(X, y, sample_weight=np.where(np.arange(60) % 2, 20.0, 1.0)).predict([[0.0]])
    assert abs(balanced) < 0.4
    assert heavy > 0.7


def test_several_targets_are_independent_models(make, table, new_rows):
    X, y = table
    noise = np.random.default_rng(3).normal(scale=0.1, size=120)
    Y = np.column_stack([y, -2.0 * y + 5.0, np.cos(X[:, 0]) + noise])
    joint = make().fit(X, Y)
    mean, std = joint.predict(new_rows[0], return_std=True)
    assert mean.shape == std.shape == (40, 3)
    assert joint.noise_.shape == (3,)
    assert joint.predict(new_rows[0], return_cov=True)[1].shape == (40, 40, 3)
    assert joint.sample_y(new_rows[0], 6).shape == (40, 3, 6)
    assert np.isfinite(mean).all()
    assert (std > 0).all()
    # The second target is the first in other units, so both models are the same.
    np.testing.assert_allclose(mean[:, 1], -2.0 * mean[:, 0] + 5.0, rtol=1e-2, atol=0.5)
    single = make().fit(X, Y[:, 2])
    np.testing.assert_allclose(mean[:, 2], single.predict(new_rows[0]), atol=0.1)


def test_one_target_as_a_column(quick, table, new_rows):
    X, y = table
    column, vector = quick().fit(X, y[:, None]), quick().fit(X, y)
    assert column.noise_.shape == (1,)
    assert isinstance(vector.noise_, float)
    np.testing.assert_array_equal(column.predict(new_rows[0])[:, 0], vector.predict(new_rows[0]))


def test_restarts_keep_the_best_run(table):
    X, y = table
    one = ExactGPRegressor(max_epochs=2, random_state=0).fit(X, y)
    many = ExactGPRegressor(max_epochs=2, random_state=0, n_restarts=4).fit(X, y)
    assert many.history_[-1]["loss"] <= one.history_[-1]["loss"]
    losses = []
    for callback_runs in range(1, 5):
        gp = ExactGPRegressor(max_epochs=2, random_state=0, n_restarts=callback_runs).fit(X, y)
        losses.append(gp.history_[-1]["loss"])
    assert losses == sorted(losses, reverse=True)
    assert losses[-1] < losses[0]


def test_patience_stops_and_returns_to_the_best_epoch(quick, table):
    X, y = table
    gp = quick(max_epochs=400, lr=0.3, schedule="constant", validation_fraction=0.3, patience=5).fit(X, y)
    values = [record["validation_nll"] for record in gp.history_]
    assert len(values) < 400
    assert len(values) - 1 - int(np.argmin(values)) == 5
    shorter = quick(max_epochs=400, lr=0.3, schedule="constant", validation_fraction=0.3)
    best_epoch = gp.history_[int(np.argmin(values))]["epoch"]
    shorter.set_params(callbacks=(lambda record: record["epoch"] == best_epoch,)).fit(X, y)
    assert same(gp, shorter)


def test_held_out_rows_are_not_trained_on(table):
    X, y = table
    seen = ExactGPRegressor(validation_fraction=0.25, random_state=0).fit(X, y)
    assert seen.predictor_.inner.n_points == 90
    assert ExactGPRegressor(random_state=0).fit(X, y).predictor_.inner.n_points == 120


def test_a_time_budget_ends_training(table):
    X, y = table
    gp = SparseGPRegressor(max_epochs=10**6, time_budget=0.3, random_state=0)
    gp.fit(X, y)
    assert len(gp.history_) < 10**6
    assert np.isfinite(gp.predict(X)).all()


def test_callbacks_see_every_epoch_and_may_stop(quick, table):
    records = []
    gp = quick(init="kmeans", callbacks=(records.append,)).fit(*table)
    assert [{key: record[key] for key in record if key != "model"} for record in records] == gp.history_
    assert [record["epoch"] for record in records] == list(range(21))
    assert {"epoch", "step", "loss", "lr", "seconds"} <= records[0].keys()
    stopped = quick(init="kmeans", callbacks=(lambda record: record["epoch"] == 3,)).fit(*table)
    assert [record["epoch"] for record in stopped.history_] == [0, 1, 2, 3]


def test_training_improves_the_objective(quick, table):
    losses = [record["loss"] for record in quick(init="kmeans", max_epochs=60, lr=0.05).fit(*table).history_]
    assert losses[-1] < losses[0] - 0.5


def test_a_warm_start_begins_where_a_cold_one_arrives_late(quick, table):
    warm, cold = (quick(init=init, lr=0.01).fit(*table) for init in ("warm", "kmeans"))
    assert warm.history_[0]["loss"] < cold.history_[-1]["loss"]


def test_no_training_leaves_the_warm_start(quick, table, new_rows):
    gp = quick(max_epochs=0).fit(*table)
    assert [record["epoch"] for record in gp.history_] == [0]
    assert gp.score(*new_rows) > 0.8


@pytest.mark.parametrize("init", ["warm", "kmeans", "random"])
def test_inducing_points_number_as_asked(init, quick, table):
    gp = quick(init=init, max_epochs=1).fit(*table)
    assert gp.predictor_.inner.points.shape == (1, 20, 3)


def test_given_inducing_points_are_in_the_units_of_the_table(quick, table):
    X, y = table
    gp = quick(init=X[:12], max_epochs=0).fit(X, y)
    points = gp.predictor_.inner.points[0].numpy() * X.std(0) + X.mean(0)
    np.testing.assert_allclose(points, X[:12], rtol=1e-5)


class TestKnownNoise:
    def test_one_number_for_all_rows(self, make, table):
        gp = make(alpha=9.0).fit(*table)
        assert gp.noise_ == pytest.approx(3.0, rel=1e-6)
        np.testing.assert_allclose(gp.predict_distribution(table[0]).noise_std, 3.0, rtol=1e-6)

    def test_noisy_rows_count_less(self, make):
        rng = np.random.default_rng(0)
        X = rng.uniform(-1, 1, size=(60, 1))
        noisy = np.arange(60) % 2 == 0
        y = np.where(noisy, 3.0, 0.0) + 0.01 * rng.normal(size=60)
        gp = make(alpha=np.where(noisy, 100.0, 0.01)).fit(X, y)
        assert abs(gp.predict([[0.0]])[0]) < 0.3
        assert gp.noise_ == pytest.approx(math.sqrt(50.005), rel=1e-5)

    def test_shapes(self, quick, table):
        X, y = table
        Y = np.column_stack([y, y])
        by_row = np.linspace(1.0, 4.0, 120)
        each = quick(alpha=np.column_stack([by_row, by_row])).fit(X, Y)
        assert same(each, quick(alpha=by_row).fit(X, Y))
        assert same(each, quick(alpha=list(by_row)).fit(X, Y))
        assert same(each, quick(alpha=torch.as_tensor(by_row)).fit(X, Y))

    @pytest.mark.parametrize("shape", [(119,), (120, 2), (120, 1, 1), (2, 120)])
    def test_wrong_shapes(self, shape, quick, table):
        with pytest.raises(ValueError, match="alpha must be a number or have one entry for each of the 120 rows"):
            quick(alpha=np.ones(shape)).fit(*table)

    @pytest.mark.parametrize("alpha", [-1.0, np.full(120, -0.1), np.full(120, np.nan), np.inf])
    def test_impossible_variances(self, alpha, quick, table):
        with pytest.raises(ValueError, match="alpha"):
            quick(alpha=alpha).fit(*table)

    def test_no_noise_at_all_interpolates(self, table):
        X, y = table
        gp = ExactGPRegressor(alpha=0.0).fit(X, y)
        np.testing.assert_allclose(gp.predict(X), y, atol=0.05)


class TestHyperparameters:
    def test_fixed_ones_stay(self, make, table):
        gp = make(kernel=2.0 * RBF(lengthscale=[0.5, 1.0, 2.0]), fixed=("lengthscale",)).fit(*table)
        np.testing.assert_allclose(lengthscale(gp), [0.5, 1.0, 2.0], rtol=1e-6)
        assert float(gp.predictor_.inner.kernel.amplitude.value) != pytest.approx(2.0, rel=1e-3)

    def test_everything_may_be_fixed(self, table):
        gp = ExactGPRegressor(fixed=("lengthscale", "amplitude", "noise", "constant")).fit(*table)
        assert [record["epoch"] for record in gp.history_] == [0]
        assert gp.noise_ == pytest.approx(math.sqrt(0.1) * table[1].std(), rel=1e-5)

    def test_intervals_bound(self, make, table):
        free, bounded = make().fit(*table), make(priors={"lengthscale": Interval(0.2, 0.4)}).fit(*table)
        assert lengthscale(free).max() > 0.4
        assert (lengthscale(bounded) > 0.2).all()
        assert (lengthscale(bounded) < 0.4).all()

    def test_priors_pull(self, make, table):
        strict = make(priors={"lengthscale": LogNormal(median=0.3, spread=0.001)}).fit(*table)
        np.testing.assert_allclose(lengthscale(strict), 0.3, rtol=0.02)

    @pytest.mark.parametrize("prior", [Normal(1.0, 0.5), Gamma(2.0, 2.0), HalfNormal(2.0)], ids=str)
    def test_every_density_trains(self, prior, quick, table, new_rows):
        gp = quick(priors={"lengthscale": prior, "noise": [Interval(1e-4), prior]}).fit(*table)
        assert gp.score(*new_rows) > 0.7

    def test_unknown_names_are_answered_with_the_known_ones(self, kind, table):
        for parameters in ({"fixed": ("lengthscales",)}, {"priors": {"lengthscales": Normal()}}):
            with pytest.raises(ValueError, match=r"no hyper-parameter 'lengthscales'; it has .*lengthscale"):
                kind(**parameters).fit(*table)

    def test_a_prior_must_be_one(self, kind, table):
        with pytest.raises(TypeError, match=r"candid\.priors"):
            kind(priors={"noise": 3.0}).fit(*table)


class TestKernels:
    @pytest.mark.parametrize(
        "name", ["rbf", "matern12", "matern32", "matern52", "rq", "linear", "rbf + linear", "rq * rbf"]
    )
    def test_names(self, name, make, table):
        gp = make(kernel=name).fit(*table)
        assert np.isfinite(gp.predict(table[0])).all()

    def test_an_object_is_not_changed_by_a_fit(self, make, table):
        kernel = 1.5 * Matern52(lengthscale=0.7)
        gp = make(kernel=kernel).fit(*table)
        assert gp.kernel is kernel
        assert repr(kernel) == "1.5 * Matern52(lengthscale=0.7)"
        assert repr(gp.kernel_) != repr(kernel)

    def test_one_lengthscale_for_all_features(self, quick, table):
        assert lengthscale(quick(ard=False).fit(*table)).shape == (1,)
        assert lengthscale(quick(ard=True).fit(*table)).shape == (3,)

    def test_unknown_names(self, kind, table):
        with pytest.raises(ValueError, match="did you mean 'matern52'"):
            kind(kernel="matern53").fit(*table)

    def test_a_linear_mean_extrapolates(self, make):
        X = np.linspace(0, 1, 50)[:, None]
        y = 3.0 * X[:, 0] + 0.01 * np.sin(40 * X[:, 0])
        gp = make(mean="linear", kernel="matern12", fixed=("amplitude",), priors={"lengthscale": Interval(0.01, 0.05)})
        assert gp.fit(X, y).predict([[2.0]])[0] == pytest.approx(6.0, rel=0.05)


def test_clones_and_pickles(model, table, new_rows):
    copy = pickle.loads(pickle.dumps(model))
    assert same(copy, model)
    for ours, theirs in zip(
        model.predict(new_rows[0], return_cov=True), copy.predict(new_rows[0], return_cov=True), strict=True
    ):
        np.testing.assert_array_equal(ours, theirs)
    assert copy.history_ == model.history_
    assert same(clone(model).fit(*table), model)
    with pytest.raises(ValueError, match="not fitted"):
        clone(model).predict(new_rows[0])


def test_fitting_changes_no_parameter(kind, table):
    gp = kind(random_state=0)
    before = dict(gp.get_params())
    gp.fit(*table)
    assert gp.get_params() == before


def test_fitting_prints_nothing_and_warns_of_nothing(kind, table, capfd):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        kind(random_state=0).fit(*table)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("name", ["svgp", "ppgpr-chol", "map"])
def test_double_precision_trains_to_nearly_the_same_on_real_data(name):
    data = datasets.load("diabetes")
    train, test, _ = data.split(seed=0)
    nll = [
        metrics.nll(
            data.y[test],
            make_gp(name, n_inducing=60, dtype=dtype, random_state=0)
            .fit(data.X[train], data.y[train])
            .predict_distribution(data.X[test]),
        )
        for dtype in ("float32", "float64")
    ]
    assert nll[0] == pytest.approx(nll[1], abs=0.01)


def test_threads_are_put_back(quick, table, monkeypatch):
    calls = []
    monkeypatch.setattr(torch, "set_num_threads", calls.append)
    quick(n_threads=2, max_epochs=1).fit(*table)
    # In between, small steps have one.
    assert [calls[0], calls[-1]] == [2, torch.get_num_threads()]
