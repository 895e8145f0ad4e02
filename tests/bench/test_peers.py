"""Nearest neighbours here and in other libraries."""

from __future__ import annotations

from importlib.util import find_spec

import numpy as np
import pytest

from candid.bench import peers as peers_room
from candid.bench.peers import PEERS, installed, measure_peers
from candid.bench.protocol import make_parts


@pytest.fixture
def parts(table):
    return {"waves": make_parts(table, 0, (2.0, 1.0, 0.0))}


def test_ours_are_scored(parts):
    told = []
    models = [("candid loo-k", 8), ("candid vecchia", 8)]
    scores = list(measure_peers(parts, models, tell=told.append))
    assert [(score.data, score.model) for score in scores] == [
        ("waves", "candid loo-k, k = 8"),
        ("waves", "candid vecchia, k = 8"),
    ]
    assert "40 rows of waves" in told[0]
    for score in scores:
        assert score.n_rows == 40
        assert min(score.fit, score.processor) > 0
        assert score.rows_per_second > 0
        # The function is nearly known, and noise is a tenth of it.
        assert score.rmse < 0.6
        assert score.nll < 0.9


def test_peers_without_their_library_are_not_there(monkeypatch):
    monkeypatch.setattr(peers_room, "find_spec", lambda name: None if name == "gpboost" else object())
    assert "GPBoost Vecchia" not in installed()
    assert "MuyGPyS" in installed()


@pytest.mark.parametrize("name", [name for name, (_, module) in PEERS.items() if module != "candid"])
def test_others_where_they_are_installed(name, parts):
    if find_spec(PEERS[name][1]) is None:
        pytest.skip(f"{name} is not installed")
    (score,) = measure_peers(parts, [(name, 8)])
    assert np.isfinite([score.nll, score.rmse]).all()
    assert score.rmse < 0.6
