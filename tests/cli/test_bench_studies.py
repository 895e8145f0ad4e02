"""``candid bench study`` and ``candid bench peers``."""

from __future__ import annotations

import json
import sys

import pytest

from candid.bench.peers import Score


def test_a_study_writes_page_figures_and_picture(candid, tmp_path):
    result = candid("bench", "study", "objectives", "--quick", "--rows", 30, "--output", "out")
    assert result.exit_code == 0, result.output
    page = (tmp_path / "out" / "study.md").read_text(encoding="utf-8")
    assert "| mll |" in page
    assert "loo-∞" in result.output
    assert (tmp_path / "out" / "study.png").stat().st_size > 10_000
    assert (tmp_path / "out" / "figures.csv").read_text(encoding="utf-8").startswith("parameter,objective,value")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("misspecification", "--data", "bike"), "leave --data out"),
        (("objectives", "--data", "bike,pol"), "of one data set"),
        (("duplicates", "--data", "unheard-of"), "cannot load unheard-of"),
    ],
)
def test_what_cannot_be_studied_is_said(candid, arguments, message):
    result = candid("bench", "study", *arguments, "--quick")
    assert result.exit_code == 2
    assert message in result.output


def test_peers(candid, tmp_path, monkeypatch):
    room = sys.modules["candid.cli.bench.peers"]
    monkeypatch.setattr(room, "installed", lambda: ["candid loo-k"])
    asked = []

    def measure(parts, models, seed, tell):
        asked.append((parts, models))
        yield Score("diabetes", "candid loo-k, k = 4", 90, 1.5, 1.25, 2000.0, -0.25, 0.5)

    monkeypatch.setattr(room, "measure_peers", measure)
    result = candid("bench", "peers", "--data", "diabetes", "--rows", 120, "--neighbours", "4,8", "--output", "out")
    assert result.exit_code == 0, result.output
    ((parts, models),) = asked
    assert models == [("candid loo-k", 4), ("candid loo-k", 8)]
    assert len(parts["diabetes"].x) == 90
    assert "not installed: candid vecchia, GPBoost Vecchia, MuyGPyS" in result.output
    page = (tmp_path / "out" / "peers.md").read_text(encoding="utf-8")
    assert "| diabetes | candid loo-k, k = 4 | 90 | 1.5 | 1.2 | 2,000 | −0.250 | 0.500 |" in page
    assert json.loads((tmp_path / "out" / "peers.json").read_text())["scores"][0]["nll"] == -0.25


def test_unknown_peers_are_named(candid):
    result = candid("bench", "peers", "--models", "unheard-of")
    assert result.exit_code == 2
    assert "there is no model 'unheard-of'" in result.output
