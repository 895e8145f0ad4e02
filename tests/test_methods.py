"""The table of methods, and the estimators that its rows make."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from sklearn.base import clone

import candid
from candid import (
    BayesianGPRegressor,
    DeepGPRegressor,
    ExactGPRegressor,
    NeighborGPClassifier,
    NeighborGPRegressor,
    NetworkRegressor,
    SparseGPClassifier,
    SparseGPRegressor,
    make_gp,
)
from candid.families import Embedded, Posterior
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
# Others that see their neighbourhood only.
LOCAL = ("loo-k-dkl", "swsgp", "alc")
# Deep GPs: objective, covariance of q(u), number of sites, and the weight of the penalty in the published protocol.
LAYERS = {
    "dgp": ("elbo", "full", 10, 1.0),
    "gamma-dgp": ("robust", "full", 10, 1.0),
    "bpdgp": ("predictive", "full", 32, 0.2),
    "dspp-qr1": ("predictive", "diagonal", 3, 0.05),
    "dspp-qr2": ("predictive", "diagonal", 3, 0.05),
    "dspp-qr3": ("predictive", "diagonal", 10, 0.05),
    "dspp-gh": ("predictive", "diagonal", 3, 0.05),
    "nn-dgp": ("elbo", "full", 10, 1.0),
    "nn-dspp": ("predictive", "diagonal", 10, 0.2),
}
# Those that are sampled: objective, and what is sampled.
SAMPLED = {
    "bsgp": ("fitc", ("u", "theta", "z")),
    "sghmc-gp": ("fitc", ("u",)),
    "sghmc-dgp": ("fitc", ("u",)),
    "mcmc-svgp": ("vfe", ("u", "theta", "noise")),
}
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
    assert {
        "exact",
        *COLLAPSED,
        *PUBLISHED,
        *CONDITIONAL,
        *NETWORKS,
        *NEIGHBOURS,
        *LOCAL,
        *LAYERS,
        *SAMPLED,
        "ipvi-dgp",
        "mc-dropout",
        "pgvi",
    } == set(METHODS)


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
    assert row.tasks in (("regression",), ("regression", "classification"), ("classification",))
    assert row.made_of.objective in ROW_OBJECTIVES or row.made_of.objective in EVIDENCES
    likelihoods = {"regression": "gaussian", "classification": "bernoulli"}
    assert all(compatible(row.made_of.family, row.made_of.objective, likelihoods[task]) for task in row.tasks)
    groups = {"all", "weights", "points", "sites", "network", "likelihood", "hidden_means"}
    groups |= {"generator", "critic", "rest"}
    assert set(row.made_of.steppers) <= groups


def by_adam(made_of: Composition) -> Composition:
    """The papers do with plain Adam."""
    steppers = {group: "adam" if kind in ("natural", "damped") else kind for group, kind in made_of.steppers.items()}
    return replace(made_of, steppers=steppers)


@pytest.mark.parametrize("recipe", ["candid", "paper"])
@pytest.mark.parametrize("name", [name for name, row in METHODS.items() if "regression" in row.tasks])
def test_every_row_makes_an_estimator_that_fits(name, recipe, table, hasty):
    X, y = table
    few = {"max_epochs": 3}
    short = {"exact": {}, **dict.fromkeys([*NEIGHBOURS, *LOCAL, "mc-dropout"], few)}.get(
        name, {"n_inducing": 10, **few}
    )
    if name in SAMPLED:
        short |= {"burn_in": 5, "n_samples": 3, "thin": 2}
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
    # A network may be in front of it, or it may be several chains.
    family = problem.family.inner if isinstance(problem.family, (Embedded, Posterior)) else problem.family
    assert FAMILIES.get(type(family).__name__, type(family).__name__.lower()) == row.made_of.family
    if row.made_of.weights is not None:
        assert type(family.weights).__name__.lower() == row.made_of.weights


@pytest.mark.parametrize(
    "name",
    [
        name
        for name, row in METHODS.items()
        if {"SparseGPClassifier", "DeepGPClassifier"} & {row.classifier, row.estimator}
    ],
)
def test_rows_for_classification_make_a_classifier(name, table):
    X, y = table
    row = find_method(name)
    for recipe in ("candid", "paper"):
        few = {} if name in (*NEIGHBOURS, *LOCAL) else {"n_inducing": 8}
        gp = make_gp(name, recipe=recipe, task="classification", random_state=0, max_epochs=1, **few)
        assert type(gp).__name__ == row.estimator_for("classification")
        # The published method moves q(u) along natural gradients, too.
        as_published = row.made_of if name == "pgvi" else by_adam(row.made_of)
        assert gp._composition() == (row.made_of if recipe == "candid" else as_published)
    if not any(part in name for part in ("dkl", "nn")):
        probabilities = gp.fit(X, np.where(y > 0, "high", "low")).predict_proba(X)
        np.testing.assert_allclose(probabilities.sum(1), 1.0)
        assert type(gp._fitted.problem.likelihood).__name__ == "Bernoulli"


def test_a_name_may_stand_for_a_row_of_another_name():
    assert find_method("dspp") is METHODS["dspp-qr3"]
    assert make_gp("dspp").get_params() == make_gp("dspp-qr3").get_params()
    assert "dspp" not in METHODS


def test_a_method_for_one_task_needs_not_say_which():
    assert isinstance(make_gp("pgvi"), SparseGPClassifier)
    assert isinstance(make_gp("svgp"), SparseGPRegressor)
    with pytest.raises(ValueError, match="pgvi is for classification, not for 'regression'"):
        make_gp("pgvi", task="regression")


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


def test_the_published_protocol_of_neighbours_for_classes():
    gp = make_gp("loo-k", recipe="paper", task="classification")
    assert (gp.objective, gp.n_neighbors, gp.init, gp.kernel, gp.ard) == ("loo", "auto", "cold", "matern52", True)
    assert (gp.mean, gp.batch_size, gp.lr, gp.schedule, gp.beta) == ("zero", 128, 0.03, "quarters", 1.0)
    assert make_gp("loo-k", task="classification").get_params() == NeighborGPClassifier().get_params()


def test_other_neighbours():
    deep = make_gp("loo-k-dkl")
    assert (deep.objective, deep.features, deep.validation_fraction, deep.patience) == ("loo", "dc", 0.1, 100)
    points, published = make_gp("swsgp"), make_gp("swsgp", recipe="paper")
    assert points.get_params() == NeighborGPRegressor(objective="swsgp").get_params()
    assert (published.n_inducing, published.beta, published.init, published.n_neighbors) == (
        10_000,
        1.0,
        "cold",
        "auto",
    )
    designs, published = make_gp("alc"), make_gp("alc", recipe="paper")
    assert designs.get_params() == NeighborGPRegressor(objective="alc").get_params()
    assert (published.kernel, published.mean, published.n_neighbors, published.init) == ("rbf", "zero", 64, "cold")
    assert not find_method("alc").made_of.steppers


@pytest.mark.parametrize("name", LAYERS)
def test_the_published_protocol_of_deep_gps(name):
    gp = make_gp(name, recipe="paper")
    assert isinstance(gp, DeepGPRegressor)
    assert (gp.objective, gp.covariance, gp.n_sites, gp.beta) == LAYERS[name]
    grid = name in ("dspp-qr1", "dspp-qr2", "dspp-gh")
    assert (gp.kernel, gp.ard, gp.mean, gp.hidden_widths) == ("matern52", True, "constant", (4,) if grid else (5,))
    assert (gp.n_inducing, gp.init, gp.n_starts, gp.n_predict_sites) == (300, "kmeans", 3, 32)
    assert (gp.batch_size, gp.max_epochs, gp.lr, gp.q_lr, gp.schedule) == (1000, 400, 0.01, 0.01, "step")
    assert (gp.optimizer, gp.features) == ("adam", "dspp" if name.startswith("nn-") else None)
    assert gp.propagation == ("sampling" if gp.objective != "predictive" or name == "bpdgp" else "quadrature")


def test_the_published_protocol_of_implicit_posteriors():
    gp = make_gp("ipvi-dgp", recipe="paper")
    assert isinstance(gp, DeepGPRegressor)
    assert (gp.objective, gp.covariance, gp.propagation, gp.beta) == ("elbo", "implicit", "sampling", 1.0)
    assert (gp.kernel, gp.ard, gp.mean, gp.init, gp.n_inducing, gp.n_starts) == ("rbf", True, "zero", "kmeans", 128, 1)
    assert (gp.batch_size, gp.max_epochs, gp.lr, gp.schedule) == (10_000, 20_000, 0.0025, "constant")
    # Generators have a hundredth of the rate of q(u).
    assert (gp.q_lr, gp.optimizer, make_gp("ipvi-dgp").init) == (0.01, "adam", "warm")


@pytest.mark.parametrize("name", SAMPLED)
def test_the_published_protocol_of_samplers(name):
    gp = make_gp(name, recipe="paper")
    assert isinstance(gp, BayesianGPRegressor)
    assert (gp.objective, gp.sample) == SAMPLED[name]
    assert (gp.kernel, gp.ard, gp.mean, gp.init, gp.n_inducing) == ("rbf", True, "zero", "kmeans", 100)
    assert (gp.batch_size, gp.max_steps, gp.lr, gp.schedule) == (1000, 10_000, 0.01, "constant")
    assert (gp.n_samples, gp.thin, gp.step_size, gp.n_chains) == (256, 32, 0.01, 1)
    assert gp.optimizer == ("window" if name in ("sghmc-gp", "sghmc-dgp") else "adam")
    assert gp.hidden_widths == (("D",) if name == "sghmc-dgp" else ())
    ours = make_gp(name)
    assert (ours.objective, ours.sample, ours.optimizer, ours.init) == (gp.objective, gp.sample, gp.optimizer, "warm")


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
        ({"task": "clustering"}, "svgp is for regression and classification, not for 'clustering'"),
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
    assert all(compatible("inducing", "predictive", likelihood) for likelihood in ("bernoulli", "softmax", "student-t"))
    assert compatible("inducing", "polya_gamma", "bernoulli")
    assert not compatible("inducing", "polya_gamma", "softmax")
    assert not compatible("inducing", "vfitc", "bernoulli")
    assert not compatible("exact", "marginal_likelihood", "student-t")
    assert not compatible("teapot", "elbo", "gaussian")


def test_an_illegal_triple_names_the_nearest_legal_choice():
    check_compatible("inducing", "elbo", "gaussian")
    with pytest.raises(ValueError, match=r"no objective 'elbo' .*use objective='marginal_likelihood'"):
        check_compatible("exact", "elbo", "gaussian")
    with pytest.raises(ValueError, match=r"'bernoulli' likelihood; .*use objective='elbo' or 'predictive' or 'polya"):
        check_compatible("inducing", "vfitc", "bernoulli")
    with pytest.raises(ValueError, match=r"'dice' likelihood; use likelihood='gaussian'"):
        check_compatible("inducing", "elbo", "dice")
