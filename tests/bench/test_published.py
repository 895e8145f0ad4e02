"""Published figures are those of the papers, and every budget refers to them by the right names."""

from __future__ import annotations

import pytest

from candid.bench import METRICS, SPECS, find_spec, read_published
from candid.bench.plan import Plan
from candid.bench.published import Figure

TABLE_3 = read_published("ppgpr_table3")


@pytest.mark.parametrize(
    ("metric", "data", "method", "mean", "error"),
    [
        ("nll", "pol", "map", -0.615, 0.007),
        ("nll", "pol", "ppgpr-chol", -0.866, 0.005),
        ("nll", "kin40k", "ppgpr-mfd", -1.284, 0.005),
        ("nll", "elevators", "gamma-robust", 0.409, 0.007),
        ("nll", "keggundirected", "vfitc", -1.643, 0.016),
        ("nll", "houseelectric", "ppgpr-mf", -1.931, 0.001),
        ("rmse", "bike", "exact", 0.022, 0.001),
        ("rmse", "slice", "ppgpr-chol", 0.298, 0.004),
        ("rmse", "keggdirected", "od-svgp", 0.085, 0.001),
        ("crps", "protein", "svgp", 0.326, 0.001),
        ("crps", "3droad", "ppgpr-delta", 0.185, 0.002),
        ("crps", "song", "exact", 0.420, None),
    ],
)
def test_some_figures(metric, data, method, mean, error):
    assert TABLE_3[metric, data, method] == Figure(mean, error)


def test_all_figures_are_there():
    """Three metrics, twelve data sets, ten methods; the exact GP could not take the two longest tables."""
    assert len(TABLE_3) == 3 * (12 * 10 - 2)
    assert {metric for metric, _, _ in TABLE_3} == set(METRICS)
    assert ("nll", "buzz", "exact") not in TABLE_3
    for (metric, _, _), figure in TABLE_3.items():
        assert figure.mean > 0 or metric == "nll"


@pytest.mark.parametrize(
    ("table", "metric", "data", "method", "mean"),
    [
        ("dc_table2", "nll", "pol", "dcsvgp", -0.373),
        ("dc_table2", "nll", "keggundirected", "dcppgpr", -1.904),
        ("dc_table2", "nll", "song", "od-svgp", 1.187),
        ("dc_table2", "rmse", "kin40k", "od-ppgpr", 0.394),
        ("dc_table2", "rmse", "slice", "ppgpr-chol", 0.205),
        ("dc_table2", "lengthscale", "elevators", "dcsvgp", 2.257),
        ("dc_table2", "mean_lengthscale", "protein", "dcppgpr", 0.122),
        ("dc_table2", "lengthscale", "keggdirected", "od-svgp", 1.726),
        ("dc_table4", "nll", "bike", "nnppgpr", -1.560),
        ("dc_table4", "nll", "3droad", "nnsvgp", 0.776),
        ("dc_table4", "rmse", "elevators", "nnsvgp", 0.353),
        ("dc_table4", "rmse", "song", "nnppgpr", 0.776),
        ("dc_table5", "nll", "protein", "ppgpr-dcdkl", 1.194),
        ("dc_table5", "nll", "kin40k", "svgp-meandkl", -1.645),
        ("dc_table5", "rmse", "slice", "ppgpr-meandkl", 0.0223),
        ("dc_table5", "rmse", "3droad", "svgp-dcdkl", 0.288),
        ("dc_table7", "nll", "pol", "dcppgpr", -1.494),
        ("dc_table7", "nll", "3droad", "ppgpr-chol", -0.084),
        ("dc_table7", "rmse", "keggdirected", "svgp", 0.089),
        ("dc_table7", "rmse", "bike", "dcsvgp", 0.058),
        ("dc_beta2", "nll", "protein", "dcppgpr β₂=1", 0.790),
        ("dc_beta2", "nll", "pol", "dcppgpr β₂=0", -0.616),
        ("dc_beta2", "rmse", "pol", "dcsvgp β₂=1", 0.255),
        ("dc_beta2", "rmse", "song", "dcsvgp β₂=0.001", 0.777),
        ("dc_beta2", "nll", "pol", "ppgpr-chol", -0.056),
        ("dc_beta2", "mean_lengthscale", "pol", "dcppgpr β₂=0.001", 0.290),
    ],
)
def test_some_figures_of_decoupled_conditionals(table, metric, data, method, mean):
    figure = read_published(table)[metric, data, method]
    assert (figure.mean, figure.standard_error) == (mean, None)


def test_all_figures_of_decoupled_conditionals_are_there():
    """Ten data sets; in Table 6 six methods have a lengthscale, and two of them another one for the mean."""
    sizes = {"dc_table2": 2 * 6 + 8, "dc_table4": 2 * 6, "dc_table5": 2 * 6, "dc_table7": 2 * 4, "dc_beta2": 2 * 8 + 6}
    for name, rows in sizes.items():
        assert len(read_published(name)) == 10 * rows


def test_the_paper_repeats_itself_without_contradictions():
    second, fourth, sweep = map(read_published, ("dc_table2", "dc_table4", "dc_beta2"))
    shared = second.keys() & fourth.keys()
    assert len(shared) == 2 * 10 * 4
    for key in shared:
        assert second[key] == fourth[key]
    for (metric, data, method), figure in second.items():
        assert sweep.get((metric, data, f"{method} β₂=0.001"), figure) == figure


def test_figures_have_the_decimals_of_the_paper():
    fifth = read_published("dc_table5")
    assert fifth["rmse", "pol", "svgp-dkl"] == Figure(0.0614, None, 4)
    assert fifth["rmse", "elevators", "svgp-dkl"] == Figure(0.343, None, 3)


@pytest.mark.parametrize(
    ("table", "metric", "data", "method", "mean", "error"),
    [
        ("table7", "nll", "kin40k", "loo-k", -1.040, 0.030),
        ("table7", "rmse", "keggundirected", "alc", 0.118, 0.001),
        ("table7", "crps", "protein", "swsgp", 0.285, 0.001),
        ("table9_binary", "nll", "covtype_fir", "loo-k", 0.057, 0.001),
        ("table9_binary", "mistaken", "adult", "pgvi", 0.147, 0.002),
        ("table9_multiclass", "nll", "shuttle", "svgp", 0.015, 0.001),
    ],
)
def test_some_figures_of_leave_one_out_losses(table, metric, data, method, mean, error):
    assert read_published(f"loo_{table}")[metric, data, method] == Figure(mean, error)


def test_the_table_of_bayesian_models():
    """Intervals of 95 % are 1.96 standard errors wide."""
    published = read_published("bsgp_table6")
    assert len(published) == 8 * 16
    assert published["nll", "yacht_raw", "bsgp 3"] == Figure(-0.83, 0.051, 2)
    assert published["nll", "naval", "sghmc-gp"].mean == -6.23
    assert published["nll", "energy2", "svgp"].mean == 1.75
    spec = find_spec("bsgp/table6")
    plan = Plan(spec, spec.budgets["quick"], {"kin8nm": 8})
    assert plan.final("kin8nm", "bsgp 3", 0, {}).setting["hidden_widths"] == (8, 8)
    assert "hidden_widths" not in plan.final("kin8nm", "bsgp 1", 0, {}).setting


@pytest.mark.parametrize(
    ("metric", "data", "method", "mean", "error"),
    [
        ("nll", "pol", "dspp-qr1", -1.236, 0.005),
        ("nll", "slice", "dspp-qr3 3L", -2.666, 0.020),
        ("nll", "houseelectric", "gamma-dgp", -1.686, 0.003),
        ("rmse", "kin40k", "dgp 3L", 0.075, 0.003),
        ("crps", "keggundirected", "dspp-qr2", 0.027, 0.000),
    ],
)
def test_some_figures_of_deep_sigma_point_processes(metric, data, method, mean, error):
    assert read_published("dspp_table9")[metric, data, method] == Figure(mean, error)


def test_averages_of_deep_sigma_point_processes():
    """Tables 4 and 7 are averages of Table 9, up to rounding and the number of splits."""
    table = read_published("dspp_table9")
    assert len(table) == 3 * (12 * 5 + 8 * 2 + 4 * 2)
    smallest = {name for _, name, method in table if method == "dspp-qr1"}
    for rule, mean in (("dspp-qr1", -1.460), ("dspp-qr2", -1.444), ("dspp-qr3", -1.509)):
        assert sum(table["nll", name, rule].mean for name in smallest) / 8 == pytest.approx(mean, abs=0.002)
    deeper = ("kin40k", "protein", "keggdirected", "slice")
    for row, mean in (("dgp 3L", -0.810), ("dspp-qr3", -1.612), ("dspp-qr3 3L", -1.737)):
        assert sum(table["nll", name, row].mean for name in deeper) / 4 == pytest.approx(mean, abs=0.002)


def test_two_papers_agree_about_one_layer():
    deep = read_published("dspp_table9")
    for key, figure in deep.items():
        if key[2] in ("ppgpr-mfd", "od-svgp") and key[1] not in ("slice", "houseelectric"):
            assert figure.mean == pytest.approx(TABLE_3[key].mean, abs=0.012)


def test_the_published_grids_of_deep_gps():
    grids = find_spec("dspp/table9").grids
    assert grids["dspp-qr3"].values == (0.01, 0.05, 0.2, 1.0)
    assert grids["dgp"].values == (0.1, 0.3, 0.5, 1.0)
    spec = find_spec("dspp/table7")
    fit = Plan(spec, spec.budgets["quick"]).final("kin40k", "dspp-qr3 3L", 0, {})
    assert fit.setting["hidden_widths"] == (5, 5)


@pytest.mark.parametrize("spec", SPECS.values(), ids=lambda spec: spec.name)
def test_specs_speak_of_what_is_published(spec):
    published = read_published(spec.published)
    if not published:
        assert spec.published is None
        return
    data, methods = {name for _, name, _ in published}, {method for _, _, method in published}
    # Rows and data sets of ours, and values that the paper only draws.
    own = {"od-ppgpr", "sgpr", "fitc"} | (set(spec.sweep.rows()) if spec.sweep else set())
    own_data = {"banana", "higgs_11k"} if spec.name == "loo/table9-binary" else set()
    for budget in spec.budgets.values():
        assert set(budget.data) - own_data <= data
        assert methods & set(budget.methods)
        assert not set(budget.methods) - methods - own
    assert set(spec.grids) - {"od-ppgpr"} <= methods


def test_the_table_of_decoupled_conditionals_is_fitted_as_published():
    spec = find_spec("dc/table2")
    assert dict(spec.parameters) == {"kernel": "rbf", "ard": False, "mean": "zero", "beta": 1.0, "standardize": False}
    assert spec.inputs == "range"
    assert find_spec("dc/table7").parameters["ard"] is True
    sizes = {name: spec.budgets["standard"].inducing(name) for name in ("pol", "elevators", "kin40k", "keggundirected")}
    assert sizes == {"pol": 500, "elevators": 500, "kin40k": 800, "keggundirected": 800}
    fits = [Plan(spec, spec.budgets["standard"]).final("kin40k", name, 0, {}) for name in ("od-svgp", "dcsvgp")]
    assert [fit.n_inducing for fit in fits] == [600, 800]
    assert fits[0].setting["n_mean_inducing"] == 1400
    assert "n_mean_inducing" not in fits[1].setting


def test_tables_share_fits():
    """β₂ = 0.001 is what dcppgpr has anyway, and Table 4 repeats rows of Table 2."""
    keys = []
    for name, row in (("dc/table2", "dcppgpr"), ("dc/table4", "dcppgpr"), ("dc/beta2", "dcppgpr β₂=0.001")):
        spec = find_spec(name)
        keys.append(Plan(spec, spec.budgets["quick"]).final("pol", row, 0, {}).key())
    assert len(set(keys)) == 1


def test_published_grids():
    grids = find_spec("ppgpr/table3").grids
    assert grids["svgp"].values == (0.1, 0.3, 0.5, 1.0)
    assert grids["ppgpr-chol"].values == (0.01, 0.05, 0.2, 1.0)
    assert (grids["gamma-robust"].parameter, grids["gamma-robust"].values) == ("gamma", (1.01, 1.03, 1.05, 1.07))
    assert "map" not in grids


def test_a_wrong_name_is_answered_with_the_right_one():
    with pytest.raises(ValueError, match="did you mean ppgpr/table3"):
        find_spec("ppgpr/table33")
