from __future__ import annotations

import pytest

from candid.bench.chains import CASES, ChainCase, measure_chains


@pytest.fixture
def fits(monkeypatch):
    """Estimators as they were fitted."""
    from candid.bench import chains as room

    seen = []
    make = room.make_gp
    monkeypatch.setattr(room, "make_gp", lambda *given, **named: seen.append(make(*given, **named)) or seen[-1])
    return seen


@pytest.mark.parametrize("case", [ChainCase("none", 120, 2, 1, 4, 40), ChainCase("none", 120, 2, 2, 1, 40)])
def test_steps_and_rows_per_second(case, fits):
    told = []
    (speed,) = measure_chains([case], n_inducing=6, n_samples=16, tell=told.append)
    (gp,) = fits
    assert gp.samples_["u"].shape[:2] == (case.n_chains, 16 // case.n_chains)
    assert len(gp.hidden_widths) == case.n_layers - 1
    # One step of the optimiser, a quarter of the samples in burn-in, and one step for each draw of all chains
    n_steps = 1 + 4 + 16 // case.n_chains
    assert speed.steps == pytest.approx(n_steps / (gp.history_[-1]["seconds"] - gp.history_[0]["seconds"]))
    assert speed.rows > 0
    assert "none" in told[0]


def test_a_table_that_is_not_here_is_made_up(monkeypatch):
    monkeypatch.delenv("CANDID_DATA", raising=False)
    x, y = CASES[0].table()
    assert x.shape == (11_934, 16)
    assert y.shape == (11_934,)
