"""Rows of a table become fits: with the table's parameters, its number of points, and their own values."""

from __future__ import annotations

import dataclasses

import pytest

from candid.bench import SPECS, Budget, Choice, Grid, Row, Spec, Sweep
from candid.bench.plan import Plan, known_methods

SWEEP = Sweep("omega_weight", "β₂", (0.0, 0.1), {"dcsvgp": "svgp"})
BUDGET = Budget(("a", "b"), ("svgp", "od-svgp", "unheard-of"), (3,), {"a": 100, "b": 40})


def make_spec(**changes):
    plain = Spec("x/y", "Title", "Nobody", "None", "ppgpr_table3", {"quick": BUDGET}, parameters={"kernel": "rbf"})
    return dataclasses.replace(plain, **changes)


def test_shares_of_the_inducing_points():
    row = Row("od-svgp", shares={"n_inducing": 3 / 4, "n_mean_inducing": 7 / 4})
    assert row.sizes(200) == {"n_inducing": 150, "n_mean_inducing": 350}
    assert Row("svgp").sizes(200) == {"n_inducing": 200}
    assert row.sizes(1) == {"n_inducing": 1, "n_mean_inducing": 2}
    assert Row("x", shares={"n_inducing": 0.25}).sizes(1) == {"n_inducing": 1}


def test_the_number_of_inducing_points_of_each_data_set():
    assert (BUDGET.inducing("a"), BUDGET.inducing("b"), BUDGET.size) == (100, 40, "M = 40 / 100")
    assert dataclasses.replace(BUDGET, data=("b",)).size == "M = 40"
    assert dataclasses.replace(BUDGET, n_inducing=7).inducing("anything") == 7
    with pytest.raises(ValueError, match="no number of inducing points for c: give one with --inducing"):
        BUDGET.inducing("c")


def test_a_sweep_has_a_row_for_each_value():
    assert SWEEP.rows() == {
        "dcsvgp β₂=0": Row("dcsvgp", {"omega_weight": 0.0}),
        "dcsvgp β₂=0.1": Row("dcsvgp", {"omega_weight": 0.1}),
    }


def test_a_method_stands_for_all_its_rows():
    spec = make_spec(rows={**SWEEP.rows(), "od-svgp": Row("od-svgp", shares={"n_inducing": 0.5})})
    assert spec.rows_called(["svgp", "dcsvgp"]) == ["svgp", "dcsvgp β₂=0", "dcsvgp β₂=0.1"]
    assert spec.rows_called(["dcsvgp β₂=0.1", "od-svgp"]) == ["dcsvgp β₂=0.1", "od-svgp"]
    assert spec.row("svgp") == Row("svgp")


def test_known_methods_are_those_of_the_rows():
    spec = make_spec(rows={**SWEEP.rows(), "new": Row("not-there-yet")})
    budget = BUDGET.narrowed(None, ["dcsvgp β₂=0", "new", "svgp"], None)
    assert known_methods(spec, budget) == (["dcsvgp β₂=0", "svgp"], ["new"])


def test_fits_have_the_parameters_of_table_and_row():
    rows = {"od-svgp": Row("od-svgp", {"kernel": "matern32"}, {"n_inducing": 0.5, "n_mean_inducing": 1.5})}
    spec = make_spec(rows=rows, grids={"od-svgp": Grid("beta", (0.1,))})
    budget = dataclasses.replace(BUDGET, choice=Choice(20, 4))
    plan = Plan(spec, budget)
    assert plan.pairs({"a": 100, "b": 100}) == [("a", "svgp"), ("a", "od-svgp"), ("b", "svgp"), ("b", "od-svgp")]
    plain, own = plan.final("a", "svgp", 3, {}), plan.final("b", "od-svgp", 3, {"beta": 0.1})
    assert (plain.n_inducing, dict(plain.setting), dict(plain.parameters)) == (100, {"kernel": "rbf"}, {})
    assert (own.n_inducing, dict(own.parameters)) == (20, {"beta": 0.1})
    assert dict(own.setting) == {"kernel": "matern32", "n_mean_inducing": 60}
    (tried,) = plan.tries("b", "od-svgp")
    assert (tried.n_inducing, dict(tried.parameters)) == (10, {"beta": 0.1, "max_epochs": 4})
    assert dict(tried.setting) == {"kernel": "matern32", "n_mean_inducing": 30}
    assert own.settings()["parameters"]["n_mean_inducing"] == 60


def test_the_recipe_in_words():
    assert make_spec().recipe == "our recipe with kernel = rbf"
    assert make_spec(parameters={}).recipe == "our recipe"


@pytest.mark.parametrize("spec", SPECS.values(), ids=lambda spec: spec.name)
def test_every_fit_of_a_benchmark_can_be_made(spec):
    """Its methods exist, and take the parameters of table, budget and row."""
    for budget in spec.budgets.values():
        known, unknown = known_methods(spec, budget)
        assert unknown == []
        plan = Plan(spec, budget, dict.fromkeys(budget.data, 7))
        for name in known:
            fit = plan.final(budget.data[0], name, 0, {})
            fit.estimator()._validate_params()  # pyright: ignore[reportAttributeAccessIssue]
            assert fit.key()
