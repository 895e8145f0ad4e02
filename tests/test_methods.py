"""The table of methods, and the estimators that its rows make."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from sklearn.base import clone

import candid
from candid import ExactGPRegressor, NeighborGPRegressor, NetworkRegressor, SparseGPRegressor, make_gp
from candid.methods import METHODS, Composition, check_compatible, compatible, find_method, methods
from candid.objectives import EVIDENCES, ROW_OBJECTIVES

# Objective, covariance of q(u), decoupling, and the weight of the penalty in the published protocol.
PUBLISHED = {
    "map": ("elbo", "none", None, 1.0),
    "svgp": ("elbo", "full", None, 1.0),
    "gamma-robust": ("robust", "full", None, 1.0),
    "vfitc": ("vfitc", "full", None, 0.3),
    "fitc-svgp": ("fitc_elbo", "full", None, 1.0),
    "od-svgp": ("elbo", "full", "orthogonal", 0.3),
    "ppgpr-delta": ("predictive", "none", None, 1.0),
    "ppgpr-mf": ("predictive", "diagonal", None, 0.05),
    "ppgpr-chol": ("predictive", "full", None, 0.05),
    "ppgpr-mfd": ("predictive", "diagonal", "inducing", 0.05),
    "od-ppgpr": ("predictive", "full", "orthogonal", 0.05),
}
COLLAPSED = ("sgpr", "fitc")
# Rows of the paper on decoupled conditionals.
CONDITIONAL = {"dcsvgp": "elbo", "dcppgpr": "predictive"}
# Those with networks, and what is decoupled in them.
DEEP = {"dkl": None, "dcdkl": "features", "meandkl": "features"}
NETWORKS = {f"{plain}-{suffix}": decouple for suffix, decouple in DEEP.items() for plain in ("svgp", "ppgpr")}
NETWORKS |= {"nnsvgp": "mean", "nnppgpr": "mean"}
# Those of nearest neighbours, and their objectives.
NEIGHBOURS = {"loo-k": "loo", "mll-k": "mll", "vecchia": "vecchia"}
# Families that the table knows by another name than that of their class.
FAMILIES = {"Dropout": "network"}


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 2))
    return X, np.sin(X[:, 0]) + 0.1 * rng.normal(size=60)


def test_the_public_table_is_the_table():
    rows = candid.methods()
    assert rows == methods() == tuple(METHODS.values())
    assert [row.name for row in rows] == list(METHODS)
    assert {"exact", *COLLAPSED, *PUBLISHED, *CONDITIONAL, *NETWORKS, *NEIGHBOURS, "mc-dropout"} == set(METHODS)


def test_the_table_prints_one_line_for_each_method():
    lines = str(methods()).splitlines()
    assert len(lines) == len(METHODS)
    for line, row in zip(lines, methods(), strict=True):
        assert line.startswith(row.name)
        assert row.summary in line
        assert row.cost in line
    assert repr(methods()) == str(methods())


@pytest.mark.parametrize("row", METHODS.values(), ids=METHODS)
def test_every_row_is_complete_and_consistent(row):
    assert METHODS[row.name] is row
    assert row.summary
    assert row.cost
    assert "(20" in row.paper
    assert row.tasks == ("regression",)
    assert row.made_of.objective in ROW_OBJECTIVES or row.made_of.objective in EVIDENCES
    assert compatible(row.made_of.family, row.made_of.objective, "gaussian")
    assert set(row.made_of.steppers) <= {"all", "weights", "points", "network", "rest"}


def by_adam(made_of: Composition) -> Composition:
    """The papers do with plain Adam."""
    steppers = {group: "adam" if kind in ("natural", "damped") else kind for group, kind in made_of.steppers.items()}
    return replace(made_of, steppers=steppers)


@pytest.mark.parametrize("recipe", ["candid", "paper"])
@pytest.mark.parametrize("name", METHODS)
def test_every_row_makes_an_estimator_that_fits(name, recipe, table):
    X, y = table
    few = {"max_epochs": 3}
    short = {"exact": {}, **dict.fromkeys([*NEIGHBOURS, "mc-dropout"], few)}.get(name, {"n_inducing": 10, **few})
    gp = make_gp(name, recipe=recipe, task="regression", random_state=0, **short)
    row = find_method(name)
    assert type(gp).__name__ == row.estimator
    assert gp._composition() == (row.made_of if recipe == "candid" else by_adam(row.made_of))
    assert clone(gp).get_params() == gp.get_params()
    mean, std = gp.fit(X, y).predict(X, return_std=True)
    assert np.isfinite(mean).all()
    assert (std > 0).all()
    problem = gp._fitted.problem
    assert problem.objective == row.made_of.objective
    assert FAMILIES.get(type(problem.family).__name__, type(problem.family).__name__.lower()) == row.made_of.family
    if row.made_of.weights is not None:
        assert type(problem.family.weights).__name__.lower() == row.made_of.weights


@pytest.mark.parametrize("name", PUBLISHED)
def test_the_published_protocol(name):
    gp = make_gp(name, recipe="paper")
    assert isinstance(gp, SparseGPRegressor)
    assert (gp.objective, gp.covariance, gp.decouple, gp.beta) == PUBLISHED[name]
    assert (gp.kernel, gp.ard, gp.mean) == ("matern52", True, "zero")
    assert (gp.n_inducing, gp.init) == (1000, "kmeans")
    assert (gp.batch_size, gp.max_epochs, gp.lr, gp.q_lr, gp.schedule) == (1000, 400, 0.01, 0.01, "step")
    assert gp.optimizer == "adam"
    assert gp.standardize
    assert gp.patience is None


@pytest.mark.parametrize("name", CONDITIONAL)
def test_the_published_protocol_of_decoupled_conditionals(name):
    gp = make_gp(name, recipe="paper")
    assert (gp.objective, gp.covariance, gp.decouple) == (CONDITIONAL[name], "full", "kernel")
    assert (gp.kernel, gp.ard, gp.mean, gp.init) == ("rbf", False, "zero", "random")
    assert (gp.batch_size, gp.max_epochs, gp.lr, gp.q_lr, gp.schedule) == (1024, 300, 0.005, 0.005, "thirds")
    assert (gp.optimizer, gp.decoupled, gp.whiten, gp.omega_weight) == ("adam", ("lengthscale",), "mean", 0.001)


@pytest.mark.parametrize("name", NETWORKS)
def test_rows_with_networks(name):
    for gp in (make_gp(name), make_gp(name, recipe="paper")):
        assert (gp.features, gp.decouple, gp.inducing_space) == ("dc", NETWORKS[name], "input")
        assert gp.covariance_features == (None if "meandkl" in name else "same")
        assert gp.objective == ("elbo" if "svgp" in name else "predictive")
    assert (gp.kernel, gp.ard, gp.init, gp.max_epochs, gp.weight_decay) == ("rbf", False, "random", 300, 0.0)
    assert make_gp(name).validation_fraction > 0


@pytest.mark.parametrize("name", NEIGHBOURS)
def test_the_published_protocol_of_neighbours(name):
    gp = make_gp(name, recipe="paper")
    assert isinstance(gp, NeighborGPRegressor)
    assert (gp.objective, gp.n_neighbors, gp.init) == (NEIGHBOURS[name], "auto", "cold")
    assert (gp.kernel, gp.ard, gp.mean) == ("matern52", True, "constant")
    assert (gp.batch_size, gp.lr, gp.schedule) == (128, 0.03, "quarters")
    assert make_gp(name).get_params() == NeighborGPRegressor(objective=NEIGHBOURS[name]).get_params()


def test_the_published_protocol_of_dropout():
    net = make_gp("mc-dropout", recipe="paper")
    assert isinstance(net, NetworkRegressor)
    assert (net.features, net.dropout, net.n_passes) == ("ppgpr", 0.1, 50)
    assert (net.batch_size, net.max_epochs, net.lr, net.schedule) == (1000, 200, 0.01, "step")
    assert net.standardize
    assert make_gp("mc-dropout").get_params() == NetworkRegressor().get_params()


def test_the_published_exact_model():
    gp = make_gp("exact", recipe="paper")
    assert isinstance(gp, ExactGPRegressor)
    assert (gp.kernel, gp.mean) == ("matern52", "zero")


@pytest.mark.parametrize("name", COLLAPSED)
def test_collapsed_methods(name):
    for gp in (make_gp(name, recipe="paper"), make_gp(name)):
        assert (gp.objective, gp.covariance, gp.decouple) == (name, "full", None)
    assert make_gp(name, recipe="paper").init == "kmeans"


@pytest.mark.parametrize("name", [*COLLAPSED, *PUBLISHED])
def test_our_recipe_starts_warm_and_keeps_the_method(name):
    gp, published = make_gp(name), make_gp(name, recipe="paper")
    for parameter in ("objective", "covariance", "decouple"):
        assert getattr(gp, parameter) == getattr(published, parameter)
    assert gp.init == "warm"
    defaults = SparseGPRegressor().get_params()
    changed = {key for key, value in gp.get_params().items() if value != defaults[key]}
    assert changed <= {"objective", "covariance", "decouple", "beta", "gamma", "q_lr"}


def test_overrides_win_over_the_recipe():
    gp = make_gp("svgp", recipe="paper", n_inducing=7, beta=0.3, objective="predictive")
    assert (gp.n_inducing, gp.beta, gp.objective) == (7, 0.3, "predictive")


@pytest.mark.parametrize(
    ("typo", "suggestion"), [("sgvp", "svgp"), ("ppgpr_mf", "ppgpr-mf"), ("ppgpr-full", "ppgpr"), ("Exact", "exact")]
)
def test_a_name_with_a_typo_is_answered_with_the_nearest(typo, suggestion):
    with pytest.raises(ValueError, match=rf"no method '{typo}'; did you mean .*{suggestion}"):
        make_gp(typo)


def test_a_name_that_is_like_no_other_is_answered_with_all():
    with pytest.raises(ValueError, match="known are exact, sgpr, fitc, map, svgp"):
        make_gp("zzzzzz")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"recipe": "mine"}, "recipe must be 'candid' or 'paper', got 'mine'"),
        ({"task": "classification"}, "svgp is for regression, not for 'classification'"),
        ({"n_induced": 5}, "SparseGPRegressor has no parameter 'n_induced'; it has .*n_inducing"),
    ],
)
def test_other_mistakes(options, message):
    with pytest.raises(ValueError, match=message):
        make_gp("svgp", **options)


def test_compatible_triples():
    assert compatible("inducing", "elbo", "gaussian")
    assert compatible("inducing", "predictive", "gaussian")
    assert compatible("exact", "marginal_likelihood", "gaussian")
    assert not compatible("exact", "elbo", "gaussian")
    assert not compatible("inducing", "marginal_likelihood", "gaussian")
    assert not compatible("inducing", "elbo", "dice")
    assert not compatible("teapot", "elbo", "gaussian")


def test_an_illegal_triple_names_the_nearest_legal_choice():
    check_compatible("inducing", "elbo", "gaussian")
    with pytest.raises(ValueError, match=r"no objective 'elbo' .*use objective='marginal_likelihood'"):
        check_compatible("exact", "elbo", "gaussian")
    with pytest.raises(ValueError, match=r"'dice' likelihood; use likelihood='gaussian'"):
        check_compatible("inducing", "elbo", "dice")
