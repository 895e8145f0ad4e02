"""The picture of a sweep has a line of points, one for zero, and one for the method it comes from."""

from __future__ import annotations

import pytest

from candid.bench import Comparison, Sweep
from candid.bench.published import Figure
from candid.bench.sweep_picture import COLUMNS, draw_sweep

SWEEP = Sweep("omega_weight", "β₂", (0.0, 0.01, 1.0), {"dcppgpr": "ppgpr-chol", "dcsvgp": "svgp"})


def entry(method, value, data="pol", error=None):
    ours = None if value is None else Figure(value, error)
    return Comparison(data, method, ours, None, 1, 0, 30, 1.0)


def comparisons():
    rows = ("ppgpr-chol", "dcppgpr β₂=0", "dcppgpr β₂=0.01", "dcppgpr β₂=1")
    values = {
        "nll": (0.5, 0.1, 0.2, 0.3),
        "rmse": (0.05, 0.01, None, 0.03),
        "mean_lengthscale": (None, 1.0, 2.0, 3.0),
        "lengthscale": (7.0, 4.0, 5.0, 6.0),
    }
    return {
        metric: [entry(*pair, error=0.25) for pair in zip(rows, row, strict=True)] for metric, row in values.items()
    }


def levels(panel):
    return {line.get_label(): line.get_ydata()[0] for line in panel.lines if line.get_linestyle() != "None"}


def test_lines_of_a_sweep(tmp_path):
    figure = draw_sweep(SWEEP, comparisons(), "Title")
    nll, rmse, mean, covariance = figure.axes
    assert nll.get_xscale() == "log"
    assert nll.get_title("left") == "pol, dcppgpr"
    x, y = nll.containers[0].lines[0].get_data()
    assert (list(x), list(y)) == ([0.01, 1.0], [0.2, 0.3])
    assert levels(nll)["β₂ = 0"] == 0.1
    assert levels(nll)["ppgpr-chol"] == 0.5
    assert next(line for line in nll.lines if line.get_label() == "ppgpr-chol").get_linestyle() == ":"
    # What failed is left out.
    assert list(rmse.containers[0].lines[0].get_xdata()) == [1.0]
    # The coupled method has one lengthscale, which is drawn in both panels.
    assert levels(mean)["ppgpr-chol"] == levels(covariance)["ppgpr-chol"] == 7.0
    assert levels(mean)["β₂ = 0"] == 1.0
    figure.savefig(tmp_path / "sweep.png")
    assert (tmp_path / "sweep.png").read_bytes().startswith(b"\x89PNG")


def test_a_row_of_panels_for_each_data_set_and_method():
    entries = {
        metric: [entry("dcsvgp β₂=1", 0.3, "protein"), entry("dcppgpr β₂=1", 0.2, "protein"), entry("dcsvgp β₂=1", 0.1)]
        for metric in COLUMNS
    }
    figure = draw_sweep(SWEEP, entries, "Title")
    titles = [panel.get_title("left") for panel in figure.axes]
    assert [title for title in titles if title] == ["protein, dcsvgp", "protein, dcppgpr", "pol, dcsvgp"]
    assert len(titles) == 3 * len(COLUMNS)


def test_there_is_nothing_to_draw_without_results():
    with pytest.raises(ValueError, match="no results"):
        draw_sweep(SWEEP, {"nll": [entry("svgp", 0.3), entry("dcsvgp β₂=1", None)]}, "Title")
