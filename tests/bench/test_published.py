"""Published figures are those of the papers, and every budget refers to them by the right names."""

from __future__ import annotations

import pytest

from candid.bench import METRICS, SPECS, find_spec, read_published
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


@pytest.mark.parametrize("spec", SPECS.values(), ids=lambda spec: spec.name)
def test_specs_speak_of_what_is_published(spec):
    published = read_published(spec.published)
    data, methods = {name for _, name, _ in published}, {method for _, _, method in published}
    for budget in spec.budgets.values():
        assert set(budget.data) <= data
        assert methods & set(budget.methods)
        assert not set(budget.methods) - methods - {"od-ppgpr", "sgpr", "fitc"}
    assert set(spec.grids) - {"od-ppgpr"} <= methods


def test_published_grids():
    grids = find_spec("ppgpr/table3").grids
    assert grids["svgp"].values == (0.1, 0.3, 0.5, 1.0)
    assert grids["ppgpr-chol"].values == (0.01, 0.05, 0.2, 1.0)
    assert (grids["gamma-robust"].parameter, grids["gamma-robust"].values) == ("gamma", (1.01, 1.03, 1.05, 1.07))
    assert "map" not in grids


def test_a_wrong_name_is_answered_with_the_right_one():
    with pytest.raises(ValueError, match="did you mean ppgpr/table3"):
        find_spec("ppgpr/table2")
