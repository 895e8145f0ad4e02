"""What the parameters of SparseGPRegressor mean."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

import candid
from candid import SparseGPRegressor, make_gp
from candid.methods import METHODS

RNG = np.random.default_rng(0)
X = RNG.normal(size=(300, 3))
Y = np.sin(2 * X[:, 0]) + 0.3 * X[:, 1] + 0.1 * RNG.normal(size=300)
SPARSE = [name for name, row in METHODS.items() if row.estimator == "SparseGPRegressor"]


def fitted(**parameters) -> SparseGPRegressor:
    return SparseGPRegressor(**{"n_inducing": 15, "max_epochs": 3, "random_state": 0, **parameters}).fit(X, Y)


def made(name: str, **parameters) -> SparseGPRegressor:
    """A method with few inducing points, and a small network if it has one."""
    small = {
        "n_inducing": 15,
        "random_state": 0,
        **({"features": (8, 4)} if "features" in METHODS[name].parameters else {}),
    }
    return make_gp(name, **small, **parameters).fit(X, Y)


@pytest.mark.parametrize("name", SPARSE)
@pytest.mark.parametrize("init", ["warm", "kmeans", "random"])
def test_training_improves_the_methods_own_objective(name, init, hasty):
    gp = made(name, max_epochs=15, init=init, validation_fraction=0.0, patience=None)
    start, end = gp.history_[0], gp.history_[-1]
    assert (start["epoch"], start["step"]) == (0, 0)
    assert end["loss"] < start["loss"]


@pytest.mark.parametrize("name", SPARSE)
def test_a_warm_start_is_better_than_a_cold_one(name, monkeypatch):
    monkeypatch.setattr("candid.engines.small_model.EPOCHS", 25)
    warm, cold = (made(name, max_epochs=0, init=init) for init in ("warm", "kmeans"))
    assert warm.history_[0]["loss"] < cold.history_[0]["loss"] - 0.3


@pytest.mark.parametrize("decouple", ["inducing", "orthogonal"])
def test_the_mean_has_inducing_points_of_its_own(decouple):
    family = fitted(decouple=decouple, n_mean_inducing=25)._fitted.problem.family
    assert family.points.shape == (1, 15, 3)
    assert family.mean_points.shape == (1, 25, 3)
    family = fitted(decouple=decouple)._fitted.problem.family
    assert family.mean_points.shape == (1, 15, 3)


def test_points_that_others_determine_do_not_move(monkeypatch):
    start = fitted(max_epochs=0)._fitted.problem.family.points
    for independence, moved in ((0.0, False), (1.0, True)):
        monkeypatch.setattr("candid.estimators.sparse_gp.least_independence", lambda family, share=independence: share)
        family = fitted()._fitted.problem.family
        assert bool((family.points != start).any()) is moved
        assert not torch.equal(family.weights.mean, fitted(max_epochs=0)._fitted.problem.family.weights.mean)


@pytest.mark.parametrize(("coupled", "decoupled"), [("svgp", "dcsvgp"), ("ppgpr-chol", "dcppgpr")])
def test_decoupled_kernels_start_at_the_coupled_solution(coupled, decoupled):
    one, two = (
        make_gp(name, n_inducing=15, max_epochs=0, random_state=0, dtype="float64").fit(X, Y).predict_distribution(X)
        for name in (coupled, decoupled)
    )
    np.testing.assert_allclose(two.mean, one.mean, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(two.std, one.std, rtol=1e-6)


def test_the_mean_has_lengthscales_of_its_own_and_shares_the_rest():
    family = fitted(decouple="kernel", kernel="rq", max_epochs=10)._fitted.problem.family
    own, shared = family.mean_kernel, family.kernel.unit
    assert not torch.allclose(own.lengthscale.value, shared.lengthscale.value)
    assert own.alpha is shared.alpha
    family = fitted(decouple="kernel", decoupled=("alpha",), kernel="rq")._fitted.problem.family
    assert family.mean_kernel.lengthscale is family.kernel.unit.lengthscale


def test_the_kernel_of_the_mean_in_the_units_of_the_table():
    gp = fitted(decouple="kernel", max_epochs=5)
    own = gp._fitted.problem.family.mean_kernel
    lengths = own.lengthscale.value.detach().double() * torch.as_tensor(X.std(0))
    torch.testing.assert_close(gp.mean_kernel_.lengthscale.value, lengths)
    torch.testing.assert_close(gp.mean_kernel_.diagonal(torch.as_tensor(X[:2])), torch.ones(1, 2).double())
    assert not hasattr(gp.set_params(decouple=None).fit(X, Y), "mean_kernel_")


def test_a_large_weight_of_omega_drives_the_kernels_together():
    def distance(weight: float) -> float:
        gp = fitted(decouple="kernel", objective="elbo", omega_weight=weight, lr=0.05, max_epochs=60)
        family = gp._fitted.problem.family
        ratio = family.mean_kernel.lengthscale.value / family.kernel.unit.lengthscale.value
        # Of the first feature: the function depends on it the most.
        return abs(float(ratio.detach().log()[..., 0]))

    assert distance(1e4) < 0.2 * distance(0.0)


def test_omega_is_not_computed_at_weight_zero():
    assert not fitted(decouple="kernel", omega_weight=0.0)._fitted.problem.family.with_omega


@pytest.mark.parametrize("whiten", ["mean", "covariance"])
def test_decoupled_kernels_are_saved_and_go_on(whiten, tmp_path):
    gp = fitted(decouple="kernel", whiten=whiten, max_epochs=5)
    gp.save(tmp_path / "model.candid")
    np.testing.assert_array_equal(candid.load(tmp_path / "model.candid").predict(X), gp.predict(X))
    own = gp._fitted.problem.family.mean_kernel.lengthscale.value.clone()
    gp.set_params(max_epochs=0).partial_fit(X[:20], Y[:20])
    family = gp._fitted.problem.family
    torch.testing.assert_close(family.mean_kernel.lengthscale.value, own)
    assert family.mean_kernel.lengthscale is not family.kernel.unit.lengthscale


def test_given_points_are_those_of_the_variance():
    family = fitted(
        decouple="inducing", init=X[:7], n_mean_inducing=12, max_epochs=0, standardize=False
    )._fitted.problem.family
    np.testing.assert_allclose(family.points[0].detach().numpy(), X[:7], rtol=1e-6)
    assert family.mean_points.shape == (1, 12, 3)


@pytest.mark.parametrize(("objective", "weight"), [("predictive", 0.2), ("elbo", 1.0), ("vfitc", 1.0), ("robust", 1.0)])
def test_the_penalty_counts_as_the_objective_has_it(objective, weight):
    """A bound without its KL, or with a fifth of it, is no bound."""
    assert fitted(objective=objective, max_epochs=0)._fitted.problem.coefficients["kl"] == weight
    assert fitted(objective=objective, max_epochs=0, beta=0.7)._fitted.problem.coefficients["kl"] == 0.7


def test_natural_gradients_are_refused_where_they_are_not_defined():
    for parameters in (
        {"objective": "predictive"},
        {"objective": "elbo", "covariance": "diagonal"},
        {"objective": "elbo", "decouple": "orthogonal"},
    ):
        with pytest.raises(ValueError, match="use optimizer='adam'"):
            fitted(optimizer="natural", **parameters)


def test_a_bound_without_penalty_can_be_trained():
    gp = fitted(objective="elbo", beta=0.0)
    assert np.isfinite(gp.predict(X, return_std=True)).all()


def test_gamma_matters_and_is_above_one():
    first, second = (fitted(objective="robust", gamma=gamma).predict(X) for gamma in (1.01, 1.3))
    assert not np.allclose(first, second)
    with pytest.raises(ValueError, match="gamma"):
        fitted(objective="robust", gamma=1.0)


@pytest.mark.parametrize("objective", ["sgpr", "fitc"])
def test_objectives_of_all_rows(objective):
    gp = fitted(objective=objective)
    assert gp._fitted.problem.family.points.dtype == torch.float64
    with pytest.raises(ValueError, match="leave covariance='full'"):
        fitted(objective=objective, covariance="diagonal")
    with pytest.raises(ValueError, match="decoupled GPs have no objective"):
        fitted(objective=objective, decouple="inducing")


def test_objectives_of_all_rows_have_a_longest_table(monkeypatch):
    monkeypatch.setattr("candid.estimators.sparse_gp.COLLAPSED_MOST_ROWS", 200)
    with pytest.raises(ValueError, match="use mini-batches"):
        fitted(objective="sgpr")


def test_the_collapsed_bound_is_where_svgp_ends():
    """At equal hyper-parameters and points: sgpr's evidence is the best ELBO."""
    sgpr = fitted(objective="sgpr", max_epochs=0, dtype="float64")
    svgp = fitted(objective="elbo", beta=1.0, max_epochs=0, dtype="float64")
    assert sgpr.history_[0]["loss"] == pytest.approx(svgp.history_[0]["loss"], abs=1e-6)


def test_callbacks_see_the_model_of_the_moment():
    seen = []

    def watch(record):
        seen.append((record["epoch"], record["model"]().marginal(torch.as_tensor(X)).mean[:, 0].numpy()))

    gp = fitted(callbacks=(watch,))
    assert [epoch for epoch, _ in seen] == [0, 1, 2, 3]
    np.testing.assert_allclose(seen[-1][1], gp.predict(X), rtol=1e-9)
    assert not np.allclose(seen[0][1], seen[-1][1])
    assert all("model" not in record for record in gp.history_)


def test_a_callback_can_end_the_fit_before_it_begins():
    gp = fitted(callbacks=(lambda record: record["epoch"] == 0,))
    assert [record["epoch"] for record in gp.history_] == [0]


def test_seconds_count_from_the_beginning_of_the_fit():
    history = fitted().history_
    assert history[0]["seconds"] > 0
    assert all(a["seconds"] <= b["seconds"] for a, b in itertools.pairwise(history))


def test_a_gpytorch_kernel_is_saved_without_its_code(tmp_path):
    gpytorch = pytest.importorskip("gpytorch")
    kernel = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel(ard_num_dims=2, active_dims=(0, 1)))
    gp = fitted(kernel=kernel)
    gp.save(tmp_path / "model.candid")
    again = candid.load(tmp_path / "model.candid", kernel=kernel)
    np.testing.assert_array_equal(again.predict(X), gp.predict(X))
    with pytest.raises(ValueError, match="kernel="):
        candid.load(tmp_path / "model.candid")
