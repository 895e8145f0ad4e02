"""Studies of leave-one-out losses on tiny tables."""

from __future__ import annotations

import csv
import sys

import numpy as np
import pytest
import torch

from candid import NeighborGPRegressor
from candid.bench.studies import (
    Duplicates,
    Misspecification,
    NeighbourNumbers,
    ObjectiveCurves,
    Panel,
    draw_panels,
    duplicates,
    misspecification,
    neighbour_numbers,
    objective_curves,
)
from candid.bench.studies.duplicates import DIFFERENCE, with_twins
from candid.bench.studies.misspecification import WARPS, stationary_draw
from candid.bench.studies.tables import GENERATED, study_tables


@pytest.fixture(scope="module")
def objectives():
    return objective_curves(ObjectiveCurves(n_rows=40, n_values=5, k=39, n_inducing=40))


def hasty(k: int) -> NeighborGPRegressor:
    """A model that takes no time."""
    return NeighborGPRegressor(n_neighbors=k, init="cold", max_epochs=1, random_state=0)


def test_generated_tables_are_standardised_and_repeatable():
    first, again = (study_tables(None, 40, seed=1) for _ in range(2))
    assert [table.name for table in first] == list(GENERATED)
    for one, other in zip(first, again, strict=True):
        assert one.x.shape == (40, GENERATED[one.name][0])
        assert len(one.x_test) == 20
        np.testing.assert_allclose(one.y.mean(), 0, atol=1e-12)
        np.testing.assert_array_equal(one.x, other.x)


def test_warps_leave_half_of_the_line_or_nothing_alone():
    x = np.linspace(-1, 1, 9)
    for warp in WARPS.values():
        np.testing.assert_array_equal(warp(x, 0.0), x)
        assert (np.diff(warp(x, 2.0)) > 0).all()
    first, second, third = WARPS.values()
    np.testing.assert_allclose(first(x, 2.0)[[0, 8]], [-3, 1])
    np.testing.assert_allclose(second(x, 1.0)[[0, 6]], [-1, 0.25])
    np.testing.assert_allclose(third(x, 2.0)[[0, 6]], [-3, 0.75])


def test_draws_have_the_variance_of_prior_and_noise():
    x = np.zeros((1, 4))
    draws = [stationary_draw(x, np.random.default_rng(seed))[0] for seed in range(500)]
    assert np.var(draws) == pytest.approx(1.01, rel=0.2)


def test_misspecification(monkeypatch):
    room, told = sys.modules["candid.bench.studies.misspecification"], []
    monkeypatch.setattr(room, "_models", lambda size: {room.MLL: hasty(size.k), room.LOO: hasty(size.k)})
    found = misspecification(Misspecification(n_rows=30, strengths=(0.0, 2.0), k=10), told.append)
    assert len(found.records) == 2 * 2 * len(WARPS)
    # Without a warp, one pair of fits serves for all.
    assert len(told) == 2 * (1 + len(WARPS))
    plain = [record["NLL"] for record in found.records if record["γ"] == 0]
    assert plain[:2] == plain[2:4] == plain[4:]
    first, second = found.records[-2:]
    assert found.panels[0].curves["x + γx³"][1][-1] == second["NLL"] - first["NLL"]


def test_objectives_that_see_all_rows_are_the_exact_ones(objectives):
    """mll-k in groups of 39 rows is not, but Vecchia with 39 neighbours is the marginal likelihood, and so is the bound

    with an inducing point at every row; leave-one-out densities are those of a loop.
    """
    values = {(r["parameter"], r["objective"], r["value"]): r["per row"] for r in objectives.records}
    for (parameter, name, value), per_row in values.items():
        if name in ("vecchia", "svgp"):
            assert per_row == pytest.approx(values[parameter, "mll", value], abs=1e-4)
        if name == "loo-39":
            assert per_row == pytest.approx(values[parameter, "loo-∞", value], abs=1e-6)


def test_the_marginal_likelihood_is_best_where_it_was_maximised(objectives):
    for panel in objectives.panels:
        places, values = panel.curves["mll"]
        assert values[2] == max(values) == 0
        assert panel.marks["mll"] == places[2]


def test_neighbour_numbers():
    found = neighbour_numbers(NeighbourNumbers(("wavy",), 60, (4, 16)))
    assert [(record["data"], record["k"]) for record in found.records] == [("wavy", 4), ("wavy", 16)]
    for panel in found.panels:
        assert panel.curves["wavy"][1][0] == 0


def test_twins_are_beside_their_rows():
    (table,) = study_tables(["wavy"], 400, seed=0)
    degenerate = with_twins(table, seed=0)
    assert degenerate.x.shape == (800, 2)
    assert (degenerate.x[400:] - table.x).std() == pytest.approx(DIFFERENCE, rel=0.1)
    assert (degenerate.y[400:] - table.y).std() == pytest.approx(DIFFERENCE, rel=0.1)
    np.testing.assert_array_equal(degenerate.y_test, table.y_test)


def test_duplicates_and_their_files(tmp_path, monkeypatch):
    room = sys.modules["candid.bench.studies.duplicates"]
    monkeypatch.setattr(room, "_models", lambda size: {"loo-10": hasty(size.k), "svgp-10": hasty(size.k)})
    found = duplicates(Duplicates(("smooth",), 40, k=10, n_inducing=10))
    assert [record["table"] for record in found.records] == ["original"] * 2 + ["with twins"] * 2
    found.write_csv(tmp_path / "figures.csv")
    with (tmp_path / "figures.csv").open(encoding="utf-8") as file:
        lines = list(csv.DictReader(file))
    assert [float(line["NLL"]) for line in lines] == [record["NLL"] for record in found.records]
    page = found.page("study.png")
    assert "| smooth | with twins | loo-10 |" in page
    assert "(study.png)" in page
    figure = draw_panels(found.panels, found.title)
    assert [ax.get_xticklabels()[1].get_text() for ax in figure.axes] == ["with twins"] * 3
    assert figure.axes[2].get_yscale() == "log"


def test_panels_show_what_is_near_the_best():
    curves = {"a": ([0.5, 1.0, 2.0], [-5.0, 0.0, -1.0])}
    figure = draw_panels([Panel("title", "x", "y", curves, {"a": 1.0}, log_x=True, bottom=-2.0)], "all")
    (ax,) = figure.axes
    assert ax.get_ylim()[0] == -2
    assert ax.lines[1].get_xdata() == [1.0]
    with pytest.raises(ValueError, match="nothing to draw"):
        draw_panels([], "none")
    assert torch.get_default_dtype() == torch.float32
