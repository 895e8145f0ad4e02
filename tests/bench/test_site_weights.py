"""What the sites of deep models count is on record, in a table and in a picture."""

from __future__ import annotations

import math

import pytest

from candid.bench import Outcome
from candid.bench.fit import Fit, execute
from candid.bench.page import page
from candid.bench.protocol import make_parts
from candid.bench.site_weights import draw_weights, learned_weights, weight_table
from candid.cli.bench.run import _draw

PROPORTIONS = (15, 3, 2)


def outcome(weights, data="waves", method="dspp-qr3", split=0):
    scores = {"nll": 0.5, "rmse": 0.5, "crps": 0.25, "epochs": 1, "seconds": 1.0, "threads": 1}
    versions = {"error": None, "candid": "0.1.0", "torch": "2.9", "parameters": {"beta": 0.2}}
    more = {} if weights is None else {"quadrature_weights": weights}
    return Outcome(Fit(data, method, split, 10, PROPORTIONS), {**scores, **versions, **more})


SHARED = [outcome([0.5, 0.25, 0.25, 0.0]), outcome([0.25, 0.5, 0.0, 0.25], split=1)]
COLLAPSED = outcome([1.0, 0.0, 0.0, 0.0], data="hills")
GRID = outcome([0.75, 0.25, 0.0], method="dspp-qr1")
EVEN, SINGLE = outcome([0.25] * 4, method="dgp"), outcome(None, method="svgp")


@pytest.mark.parametrize(("method", "n_sites"), [("dspp-qr3", 4), ("svgp", None)])
def test_a_record_has_the_weights_of_a_deep_model(table, method, n_sites):
    setting = {"max_epochs": 1, "batch_size": 20, **({"n_sites": n_sites, "hidden_widths": (2,)} if n_sites else {})}
    record = execute(Fit("waves", method, 0, 5, PROPORTIONS, setting), make_parts(table, 0, PROPORTIONS))
    assert record["error"] is None
    if n_sites is None:
        assert "quadrature_weights" not in record
    else:
        assert len(record["quadrature_weights"]) == n_sites
        assert math.isclose(sum(record["quadrature_weights"]), 1, rel_tol=1e-6)


def test_models_without_learned_weights_are_left_out():
    assert learned_weights([*SHARED, EVEN, SINGLE]) == SHARED


def test_leading_weights_and_sites_in_use():
    text = weight_table([*SHARED, COLLAPSED, GRID])
    # The entropy of ½, ¼, ¼ is 1.5 bits.
    assert f"| waves | dspp-qr3 | 4 | 0.500 | 0.250 | 0.250 | {2**1.5:.1f} |" in text
    assert "| hills | dspp-qr3 | 4 | 1.000 | 0.000 | 0.000 | 1.0 |" in text
    assert "| waves | dspp-qr1 | 3 | 0.750 | 0.250 | 0.000 |" in text


def test_a_panel_for_each_method():
    first, second = draw_weights([*SHARED, COLLAPSED, GRID]).axes
    assert first.get_title("left") == "dspp-qr3: leading weights of 3 models with 4 sites"
    assert second.get_title("left") == "dspp-qr1: leading weights of 1 models with 3 sites"
    assert {bar.get_x().round(2): bar.get_height() for bar in first.containers[0] if bar.get_height()} == {
        0.5: 2,
        0.95: 1,
    }


def test_pages_and_pictures_show_them_where_there_are_any(spec, tmp_path):
    outcomes = [*SHARED, SINGLE]
    assert "| waves | dspp-qr3 | 4 | 0.500 |" in page(spec, "quick", spec.budgets["quick"], outcomes)
    assert "weights" not in page(spec, "quick", spec.budgets["quick"], [SINGLE, EVEN])
    assert _draw(tmp_path, spec, "Title", outcomes) == ["nll.png", "weights.png"]
    assert (tmp_path / "weights.png").read_bytes().startswith(b"\x89PNG")
    assert _draw(tmp_path, spec, "Title", [SINGLE]) == ["nll.png"]
