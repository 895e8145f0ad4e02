"""GPs of nearest neighbours: what their own parameters do."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import torch

import candid.estimators.fitting as fitting_module
from candid import ExactGPRegressor, NeighborGPRegressor, load
from candid.estimators import neighbors
from candid.kernels import Deep, Matern52
from fragile import FragileCheckpoint, Interrupted

OBJECTIVES = ["loo", "mll", "vecchia"]
WITHOUT_A_NETWORK = ["swsgp", "alc"]
quick = partial(NeighborGPRegressor, n_neighbors=12, max_epochs=6, random_state=0)


def same(first, second) -> bool:
    ours, theirs = first.predictor_.state_dict(), second.predictor_.state_dict()
    return ours.keys() == theirs.keys() and all(torch.equal(ours[name], theirs[name]) for name in ours)


def nll(gp, X, y) -> float:
    return -gp.predict_distribution(X).log_prob(y).mean()


@pytest.fixture(params=OBJECTIVES)
def objective(request):
    return request.param


class TestFits:
    @pytest.mark.parametrize("start", [{}, {"init": "cold", "lr": 0.1, "max_epochs": 60}], ids=["warm", "cold"])
    def test_it_learns(self, objective, start, table, new_rows):
        gp = quick(objective=objective, **start).fit(*table)
        assert gp.history_[-1]["loss"] < gp.history_[0]["loss"] + 1e-6
        # Nearly as well as all rows together.
        assert nll(gp, *new_rows) < nll(ExactGPRegressor().fit(*table), *new_rows) + 0.1

    def test_with_all_rows_as_neighbours_it_predicts_as_the_exact_gp(self, objective, table, new_rows):
        known = {"kernel": 2.0 * Matern52(lengthscale=[0.8, 1.5, 4.0]), "fixed": ("amplitude", "lengthscale", "noise")}
        gp = quick(objective=objective, n_neighbors=500, mean="zero", **known).fit(*table)
        exact = ExactGPRegressor(mean="zero", **known).fit(*table)
        found, expected = (model.predict(new_rows[0], return_cov=True) for model in (gp, exact))
        np.testing.assert_allclose(found[0], expected[0], rtol=1e-6)
        np.testing.assert_allclose(found[1], expected[1], rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(
            gp.predict(new_rows[0], return_std=True)[1], exact.predict(new_rows[0], return_std=True)[1], rtol=1e-6
        )

    @pytest.mark.parametrize("n_rows", [1, 2, 3, 15])
    def test_short_tables(self, objective, n_rows, table):
        X, y = (part[:n_rows] for part in table)
        mean, std = quick(objective=objective).fit(X, y).predict(table[0], return_std=True)
        assert np.isfinite(mean).all()
        assert (std > 0).all()

    def test_one_neighbour(self, objective, table):
        assert np.isfinite(quick(objective=objective, n_neighbors=1).fit(*table).predict(table[0])).all()

    def test_one_feature_and_constant_columns(self, objective, table):
        X, y = table
        narrow = quick(objective=objective).fit(X[:, :1], y)
        assert np.isfinite(narrow.predict(X[:, :1])).all()
        padded = np.column_stack([X, np.full(len(y), 7.0)])
        assert quick(objective=objective).fit(padded, y).score(padded, y) > 0.8

    def test_many_rows_start_from_a_few_neighbours(self, monkeypatch, table, new_rows):
        monkeypatch.setattr("candid.estimators.start.FEW_ROWS", 50)
        assert nll(quick().fit(*table), *new_rows) < nll(ExactGPRegressor().fit(*table), *new_rows) + 0.1

    def test_steps_grow_with_the_table(self):
        warm, cold = NeighborGPRegressor(), NeighborGPRegressor(init="cold")
        assert [warm._epochs(n) * -(-n // 128) for n in (100, 1280, 12_800, 1_280_000)] == [20, 70, 600, 10_000]
        assert cold._epochs(128) == 1500

    def test_a_budget_of_time(self, table):
        gp = quick(time_budget=0.5, max_epochs=100_000).fit(*table)
        assert gp.history_[-1]["seconds"] < 5.0

    def test_known_noise_of_each_row(self, objective, table):
        alpha = np.linspace(1.0, 20.0, 120)
        gp = quick(objective=objective, alpha=alpha, validation_fraction=0.2).fit(*table)
        inner = gp.predictor_.inner
        # Every row has its own noise, those that were held out too.
        noise = inner.noise[:, 0].numpy() * table[1].std() ** 2
        np.testing.assert_allclose(np.sort(noise), alpha, rtol=1e-5)

    def test_double_precision(self, objective, table, new_rows):
        single, double = (quick(objective=objective, dtype=dtype).fit(*table) for dtype in ("float32", "float64"))
        assert nll(single, *new_rows) == pytest.approx(nll(double, *new_rows), abs=0.01)


class TestTwins:
    def test_they_are_neighbours_of_each_other(self, table):
        """With known parameters, the starting loss is that of the table with both."""
        X, y = table[0][:20], table[1][:20]
        options = {"fixed": ("lengthscale", "amplitude", "noise", "constant"), "standardize": False, "init": "cold"}
        options |= {"dtype": "float64", "n_neighbors": 100}
        y = (y - y.mean()) / y.std()
        X = (X - X.mean(0)) / X.std(0)
        gp = quick(**options).fit(np.repeat(X, 2, axis=0), np.repeat(y, 2))
        kernel, noise = gp._fitted.problem.family.kernel, gp.noise_**2
        with torch.no_grad():
            K = kernel(torch.as_tensor(np.repeat(X, 2, axis=0)))[0].numpy()
        inverse = np.linalg.inv(K + noise * np.eye(40))
        variance = 1 / np.diag(inverse)
        residual = variance * (inverse @ np.repeat(y, 2))
        expected = 0.5 * np.mean(np.log(2 * np.pi * variance) + residual**2 / variance)
        assert gp.history_[0]["loss"] == pytest.approx(expected, rel=1e-8)

    def test_of_a_longer_table(self, objective, table, monkeypatch):
        """Longer tables keep all rows: nearly nothing changes."""
        X, y = (np.repeat(part, 2, axis=0) for part in table)
        cold = {"init": "cold", "max_epochs": 1}
        short = quick(objective=objective, n_neighbors=300, dtype="float64", **cold).fit(X, y)
        monkeypatch.setattr("candid.estimators.inputs.MOST_SORTED", 100)
        long = quick(objective=objective, n_neighbors=300, dtype="float64", **cold).fit(X, y)
        assert long.predictor_.inner.rows.x.shape[0] == 240
        assert short.predictor_.inner.rows.x.shape[0] == 120
        assert long.history_[0]["loss"] == pytest.approx(short.history_[0]["loss"], rel=1e-6)


class TestNumberOfNeighbours:
    def test_as_given(self, table):
        assert quick(n_neighbors=9).fit(*table).n_neighbors_ == 9

    def test_chosen_by_held_out_rows(self, table, monkeypatch):
        monkeypatch.setattr(neighbors, "CANDIDATES", (1, 10, 30))
        gp = quick(n_neighbors="auto").fit(*table)
        trials = [quick(n_neighbors=k, validation_fraction=0.1) for k in (1, 10, 30)]
        seed = int(np.random.RandomState(0).randint(2**31 - 1))
        reached = [trial.set_params(random_state=seed).fit(*table).history_[-1]["validation_nll"] for trial in trials]
        best = trials[int(np.argmin(reached))]
        assert same(gp, best)
        assert gp.n_neighbors_ == best.n_neighbors != 1
        assert gp.n_neighbors == "auto"
        assert [record["loss"] for record in gp.history_] == [record["loss"] for record in best.history_]
        # All rows are there to predict from.
        assert gp.predictor_.inner.rows.x.shape[0] == 120

    @pytest.mark.parametrize("objective", ["loo", "swsgp"])
    def test_more_rows_keep_the_number(self, objective, table, monkeypatch):
        monkeypatch.setattr(neighbors, "CANDIDATES", (5, 10))
        X, y = table
        gp = quick(objective=objective, n_neighbors="auto", max_epochs=2).fit(X[:80], y[:80])
        before = gp.n_neighbors_
        assert gp.partial_fit(X[80:], y[80:]).n_neighbors_ == before

    @pytest.mark.parametrize(("n_rows", "expected"), [(1, [32]), (33, [32]), (34, [32, 64]), (100, [32, 64, 128])])
    def test_no_more_candidates_than_needed(self, n_rows, expected, monkeypatch):
        tried = []

        def fit(self, table, start):
            tried.append(self.n_neighbors)
            self.history_ = [{"loss": 0.0}]
            return self

        monkeypatch.setattr(neighbors.LikelihoodChoice, "_train", fit)
        X = np.arange(float(n_rows))[:, None]
        NeighborGPRegressor(n_neighbors="auto").fit(X, X[:, 0])
        assert tried == expected


class TestOrdering:
    @pytest.mark.parametrize("ordering", ["pca", "maxmin", "random"])
    def test_by_name(self, ordering, table, new_rows):
        gp = quick(objective="vecchia", ordering=ordering).fit(*table)
        assert gp.score(*new_rows) > 0.8

    def test_of_the_table_as_it_is_given(self, table):
        X, y = table
        order = np.random.default_rng(0).permutation(120)
        gp = quick(objective="vecchia", ordering=order).fit(X, y)
        family = gp._fitted.problem.family
        x = (X - X.mean(0)) / X.std(0)
        np.testing.assert_allclose(family.rows.x[family.rows.order].numpy(), x[order], atol=1e-5)
        # The same rows in another sequence, and the same order of them.
        again = quick(objective="vecchia", ordering=np.arange(120)).fit(X[order], y[order])
        assert same(gp, again)
        assert not same(gp, quick(objective="vecchia", ordering=order[::-1].copy()).fit(X, y))

    def test_rows_of_weight_zero_and_held_out_rows_have_no_place(self, table):
        X, y = table
        weight = (np.arange(120) % 4 > 0).astype(float)
        order = np.random.default_rng(0).permutation(120)
        gp = quick(objective="vecchia", ordering=order, validation_fraction=0.2).fit(X, y, weight)
        assert len(gp._fitted.problem.family.rows.order) == 72

    def test_new_rows_have_no_order(self, table):
        X, y = table
        gp = quick(objective="vecchia", ordering=np.arange(80)[::-1].copy()).fit(X[:80], y[:80])
        assert gp.partial_fit(X[80:], y[80:]).predictor_.inner.rows.x.shape[0] == 120

    @pytest.mark.parametrize("ordering", [np.arange(119), np.zeros(120), np.arange(120) + 1, np.eye(120)])
    def test_what_is_no_order(self, ordering, table):
        with pytest.raises(ValueError, match="each of the indices 0 to 119 of the 120 rows once"):
            quick(objective="vecchia", ordering=ordering).fit(*table)

    def test_it_survives_a_file(self, table, tmp_path):
        order = np.random.default_rng(0).permutation(120)
        gp = quick(objective="vecchia", ordering=order, max_epochs=1).fit(*table)
        gp.save(tmp_path / "model.candid")
        again = load(tmp_path / "model.candid")
        np.testing.assert_array_equal(again.ordering, order)
        assert same(again.fit(*table), gp)


class TestSearch:
    def test_exact(self, table):
        assert quick().fit(*table).search_ == {"kind": "exact", "recall": 1.0}

    def test_a_long_table_has_a_graph(self, table, monkeypatch):
        monkeypatch.setattr("candid.families.searched.MOST_COMPARED", 100)
        assert quick().fit(*table).search_["kind"] == "hnsw"
        assert quick(objective="vecchia").fit(*table).search_["kind"] == "exact"
        assert quick(features=(4, 2)).fit(*table).search_["kind"] == "exact"

    def test_by_a_graph(self, table, new_rows, tmp_path):
        gp = quick(search="hnsw").fit(*table)
        assert gp.search_["kind"] == "hnsw"
        assert 0.9 < gp.search_["recall"] <= 1.0
        assert gp.score(*new_rows) > 0.8
        gp.save(tmp_path / "model.candid")
        again = load(tmp_path / "model.candid")
        assert again.search_ == gp.search_
        np.testing.assert_array_equal(again.predict(new_rows[0]), gp.predict(new_rows[0]))


class TestRowsThatWereHeldOut:
    def test_they_join_when_training_is_over(self, objective, table):
        gp = quick(objective=objective, validation_fraction=0.3, patience=3, max_epochs=10).fit(*table)
        inner = gp.predictor_.inner
        assert inner.rows.x.shape == (120, 3)
        assert len(gp._fitted.training) == 84
        places = {tuple(row) for row in np.round(inner.rows.x.numpy(), 5)}
        x = (table[0] - table[0].mean(0)) / table[0].std(0)
        assert places == {tuple(row) for row in np.round(x, 5)}
        assert "validation_nll" in gp.history_[-1]

    def test_with_their_weights(self, table):
        weight = np.linspace(0.5, 3.0, 120)
        gp = quick(validation_fraction=0.3).fit(*table, sample_weight=weight)
        noise = gp.predictor_.inner.noise[:, 0].numpy() * gp.predictor_.y_scale.item() ** 2
        np.testing.assert_allclose(np.sort(noise), np.sort(gp.noise_**2 / weight), rtol=1e-4)


def test_files_hold_the_training_rows(objective, table, new_rows, tmp_path):
    gp = quick(objective=objective).fit(*table)
    gp.save(tmp_path / "model.candid")
    again = load(tmp_path / "model.candid")
    assert same(again, gp)
    assert again.n_neighbors_ == 12
    for ours, theirs in zip(
        gp.predict(new_rows[0], return_cov=True), again.predict(new_rows[0], return_cov=True), strict=True
    ):
        np.testing.assert_array_equal(ours, theirs)


class TestMoreRows:
    @pytest.mark.parametrize("objective", [*OBJECTIVES, "alc"])
    def test_they_are_predicted_from_without_training(self, objective, table, new_rows):
        X, y = table
        gp = quick(objective=objective).partial_fit(X[:60], y[:60])
        kernel, noise, history = repr(gp.kernel_), gp.noise_, gp.history_
        before = nll(gp, *new_rows)
        assert gp.partial_fit(X[60:], y[60:]) is gp
        assert gp.predictor_.inner.rows.x.shape[0] == 120
        assert nll(gp, *new_rows) < before
        assert (repr(gp.kernel_), gp.noise_, gp.history_) == (kernel, noise, history)

    def test_the_result_is_that_of_the_same_parameters_and_all_rows(self, table, new_rows):
        X, y = table
        known = {"kernel": 2.0 * Matern52(lengthscale=[0.8, 1.5, 4.0]), "fixed": ("amplitude", "lengthscale", "noise")}
        known |= {"mean": "zero", "standardize": False}
        x, t = (X - X.mean(0)) / X.std(0), (y - y.mean()) / y.std()
        weight = np.linspace(0.5, 2.0, 120)
        gp = quick(**known).fit(x[:50], t[:50], weight[:50]).partial_fit(x[50:], t[50:], weight[50:])
        whole = quick(**known).fit(x, t, weight)
        new = (new_rows[0] - X.mean(0)) / X.std(0)
        for ours, theirs in zip(gp.predict(new, return_std=True), whole.predict(new, return_std=True), strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-6, atol=1e-6)

    def test_their_noise_may_be_known(self, table):
        X, y = table
        alpha = np.linspace(1.0, 20.0, 120)
        gp = quick(alpha=alpha[:60]).fit(X[:60], y[:60])
        gp.set_params(alpha=alpha[60:]).partial_fit(X[60:], y[60:])
        noise = gp.predictor_.inner.noise[:, 0].numpy() * gp.predictor_.y_scale.item() ** 2
        np.testing.assert_allclose(np.sort(noise), alpha, rtol=1e-5)
        with pytest.raises(ValueError, match="must be set for all rows of a model"):
            gp.set_params(alpha=None).partial_fit(X[:3], y[:3])

    def test_in_single_precision_and_after_a_file(self, table, new_rows, tmp_path):
        X, y = table
        gp = quick(predict_dtype="float32").fit(X[:60], y[:60]).partial_fit(X[60:], y[60:])
        assert gp.predictor_.inner.dtype == torch.float32
        gp.save(tmp_path / "model.candid")
        np.testing.assert_array_equal(load(tmp_path / "model.candid").predict(new_rows[0]), gp.predict(new_rows[0]))

    def test_points_are_trained_on(self, table, new_rows):
        X, y = table
        gp = quick(objective="swsgp").partial_fit(X[:40], y[:40])
        before, points = nll(gp, *new_rows), gp._fitted.problem.family.points
        gp.partial_fit(X[40:], y[40:])
        assert nll(gp, *new_rows) < before
        assert gp._fitted.problem.family.points.shape == points.shape
        assert len(gp.history_) == 7


KINDS = {
    **{objective: {"objective": objective} for objective in OBJECTIVES},
    "swsgp": {"objective": "swsgp", "n_inducing": 30},
    "graph": {"search": "hnsw", "lr": 0.5},
    "network": {"features": (6, 2), "init": "cold"},
}


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_a_killed_fit_goes_on_bit_for_bit(kind, table, tmp_path, monkeypatch):
    options = {**kind, "batch_size": 40, "refresh": 4, "max_epochs": 3, "dtype": "float64"}
    expected = quick(**options).fit(*table)
    real = fitting_module.checkpoint_of

    def fragile(*args):
        return FragileCheckpoint(real(*args).path, last=5)

    monkeypatch.setattr(fitting_module, "checkpoint_of", fragile)
    with pytest.raises(Interrupted):
        quick(**options, checkpoint_dir=str(tmp_path)).fit(*table)
    assert len(list(tmp_path.iterdir())) == 1
    monkeypatch.setattr(fitting_module, "checkpoint_of", real)
    assert same(quick(**options, checkpoint_dir=str(tmp_path)).fit(*table), expected)
    assert not list(tmp_path.iterdir())


def test_too_many_rows_for_a_joint_prediction(table, monkeypatch):
    gp = quick().fit(*table)
    monkeypatch.setattr("candid.families.nearby_predictor.MOST_TOGETHER", 30)
    with pytest.raises(ValueError, match="ask for fewer rows at a time"):
        gp.sample_y(table[0])
    assert gp.sample_y(table[0][:1]).shape == (1, 1)


class TestPoints:
    def test_it_learns(self, table, new_rows):
        gp = quick(objective="swsgp", n_inducing=60, max_epochs=30).fit(*table)
        assert gp.history_[-1]["loss"] < gp.history_[0]["loss"]
        assert gp._fitted.problem.family.points.shape == (60, 3)
        assert nll(gp, *new_rows) < nll(ExactGPRegressor().fit(*table), *new_rows) + 0.2

    def test_a_cold_start(self, table):
        gp = quick(objective="swsgp", init="cold", n_inducing=30, max_epochs=100, lr=0.03).fit(*table)
        assert gp.history_[-1]["loss"] < gp.history_[0]["loss"] - 0.3
        assert quick(objective="swsgp", init="cold")._epochs(128) == 6400

    def test_the_weight_of_the_penalty(self, table):
        gp = quick(objective="swsgp", n_inducing=60, max_epochs=0).fit(*table)
        assert gp._fitted.problem.coefficients == {"kl": 5.0}
        assert gp.set_params(beta=1.0).fit(*table)._fitted.problem.coefficients == {"kl": 1.0}

    @pytest.mark.parametrize("n_rows", [1, 2, 15])
    def test_short_tables(self, n_rows, table):
        X, y = (part[:n_rows] for part in table)
        mean, std = quick(objective="swsgp").fit(X, y).predict(table[0], return_std=True)
        assert np.isfinite(mean).all()
        assert (std > 0).all()

    def test_files(self, table, new_rows, tmp_path):
        gp = quick(objective="swsgp").fit(*table)
        gp.save(tmp_path / "model.candid")
        again = load(tmp_path / "model.candid")
        assert same(again, gp)
        np.testing.assert_array_equal(again.predict(new_rows[0]), gp.predict(new_rows[0]))
        assert again.sample_y(new_rows[0], 2).shape == (40, 2)


class TestDesigns:
    @pytest.mark.parametrize("init", ["warm", "cold"])
    def test_predictions(self, init, table, new_rows):
        gp = quick(objective="alc", init=init).fit(*table)
        assert gp.score(*new_rows) > 0.8
        assert nll(gp, *new_rows) < nll(ExactGPRegressor().fit(*table), *new_rows) + 0.2
        # Nothing is trained.
        assert [record["epoch"] for record in gp.history_] == [0]

    def test_a_cold_start_has_one_lengthscale(self, table):
        gp = quick(objective="alc", init="cold").fit(*table)
        lengths = gp._fitted.problem.family.kernel.base.lengthscale.value.detach()
        assert lengths.unique().numel() == 1
        fixed = quick(objective="alc", init="cold", fixed=("lengthscale", "noise")).fit(*table)
        assert fixed._fitted.problem.likelihood.noise.value.item() == pytest.approx(0.1)

    @pytest.mark.parametrize("n_rows", [1, 2, 15])
    def test_short_tables(self, n_rows, table):
        X, y = (part[:n_rows] for part in table)
        mean, std = quick(objective="alc").fit(X, y).predict(table[0], return_std=True)
        assert np.isfinite(mean).all()
        assert (std > 0).all()

    def test_files_and_joint_predictions(self, table, new_rows, tmp_path):
        gp = quick(objective="alc", validation_fraction=0.2).fit(*table)
        gp.save(tmp_path / "model.candid")
        again = load(tmp_path / "model.candid")
        assert same(again, gp)
        assert again.predictor_.inner.rows.x.shape[0] == 120
        mean, covariance = again.predict(new_rows[0], return_cov=True)
        ours = gp.predict(new_rows[0], return_std=True)
        np.testing.assert_allclose(mean, ours[0])
        np.testing.assert_allclose(np.sqrt(np.diag(covariance)), ours[1])


@pytest.mark.usefixtures("hasty")
class TestNetworks:
    def test_it_learns_behind_one(self, objective, table, new_rows):
        options = {"objective": objective, "features": (8, 2), "validation_fraction": 0.2, "patience": 50}
        gp = quick(**{**options, "max_epochs": 40, "lr": 0.01}).fit(*table)
        assert gp.history_[-1]["loss"] < gp.history_[0]["loss"]
        assert gp.score(*new_rows) > 0.5
        assert isinstance(gp.kernel_, Deep)
        # All rows are there, as features.
        inner = gp.predictor_.inner.inner
        assert inner.rows.x.shape == (120, 2)
        assert gp.n_neighbors_ == 12

    @pytest.mark.parametrize("objective", ["loo", "vecchia"])
    def test_neighbours_follow_the_features_of_a_short_table(self, objective, table):
        gp = quick(objective=objective, features=(4, 2), max_epochs=0)
        every = [gp.fit(table[0][:n], table[1][:n])._fitted.problem.family.refresh_every for n in (30, 120)]
        assert every == [1, 3]
        assert gp.set_params(refresh=2).fit(*table)._fitted.problem.family.refresh_every == 2
        assert quick(objective=objective).fit(*table)._fitted.problem.family.refresh_every == 50

    def test_rows_far_from_each_other_do_not_share_features(self):
        rng = np.random.default_rng(0)
        X = rng.uniform(-2, 2, (200, 2))
        f = np.sin(2 * X[:, 0]) + 0.5 * X[:, 1]
        gp = NeighborGPRegressor(features=(8, 2), n_neighbors=16, random_state=0)
        gp.fit(X, f + 0.1 * rng.normal(size=200))
        assert np.sqrt(np.mean((gp.predict(X) - f) ** 2)) < 0.2

    def test_the_network_moves_and_decays(self, table):
        def weights(weight_decay):
            gp = quick(features=(8, 2), init="cold", weight_decay=weight_decay, max_epochs=20, lr=0.05).fit(*table)
            return sum(float(p.detach().square().sum()) for p in gp._fitted.problem.family.kernel.network.parameters())

        assert weights(3.0) < 0.9 * weights(0.0)

    def test_as_the_kernel(self, table):
        one = quick(kernel=Deep((8, 2), 1.0 * Matern52()), max_epochs=2).fit(*table)
        assert isinstance(one.kernel_, Deep)
        with pytest.raises(ValueError, match="in front of all of the kernel"):
            quick(kernel=Deep((8, 2), 1.0 * Matern52()) + Matern52()).fit(*table)

    @pytest.mark.parametrize("other", WITHOUT_A_NETWORK)
    def test_not_everywhere(self, other, table):
        with pytest.raises(ValueError, match=r"SparseGPRegressor\(features=\.\.\.\)"):
            quick(objective=other, features=(8, 2)).fit(*table)

    def test_files_and_more_rows(self, table, new_rows, tmp_path):
        X, y = table
        gp = quick(features=(8, 2), max_epochs=2).fit(X[:60], y[:60]).partial_fit(X[60:], y[60:])
        assert gp.predictor_.inner.inner.rows.x.shape == (120, 2)
        gp.save(tmp_path / "model.candid")
        again = load(tmp_path / "model.candid")
        np.testing.assert_array_equal(again.predict(new_rows[0]), gp.predict(new_rows[0]))
        assert same(again, gp)

    def test_batch_normalisation(self, table, new_rows):
        gp = quick(features="dc", max_epochs=4).fit(*table)
        assert np.isfinite(gp.predict(new_rows[0])).all()


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"objective": "elbo"}, "'objective' parameter .*'loo'"),
        ({"n_neighbors": 0}, "'n_neighbors' parameter"),
        ({"n_neighbors": "many"}, "'n_neighbors' parameter .*'auto'"),
        ({"ordering": "alphabetical"}, "'ordering' parameter .*'maxmin'"),
        ({"search": "guess"}, "'search' parameter .*'hnsw'"),
        ({"refresh": 0}, "'refresh' parameter"),
        ({"init": "hot"}, "'init' parameter"),
        ({"objective": "vecchia", "search": "hnsw"}, "use search='exact', or objective='loo'"),
    ],
)
def test_parameters_that_make_no_sense(parameters, message, table):
    with pytest.raises(ValueError, match=message):
        NeighborGPRegressor(**parameters).fit(*table)
