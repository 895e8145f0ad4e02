"""``candid bench neighbours``."""

from __future__ import annotations

import json
import sys

import pytest

from candid.bench.neighbour_growth import Growth
from candid.bench.neighbour_steps import StepTimes


@pytest.mark.parametrize("compiled", [0.004, None])
def test_command(compiled, candid, tmp_path, monkeypatch):
    times = [StepTimes(32, 0.02, 0.008, compiled)]
    room = sys.modules["candid.cli.bench.neighbours"]
    monkeypatch.setattr(room, "measure_steps", lambda *given: times)
    growth = [Growth("exact", 40, 0.1, 0.02, 3e-4)]
    asked = []

    def measure(x, y, sizes, **options):
        asked.append(sizes)
        return iter(growth)

    monkeypatch.setattr(room, "measure_growth", measure)
    result = candid("bench", "neighbours", "--rows", 40, "--markdown", "out/speed.md")
    assert result.exit_code == 0, result.output
    page = (tmp_path / "out" / "speed.md").read_text(encoding="utf-8")
    assert ("| 32 | 20 | 8 | 4 | 2.5× | 5.0× |" if compiled else "| 32 | 20 | 8 | – | 2.5× | – |") in page
    assert "| 40 | exact | 0.1 | 20 | 0.3 |" in page
    assert ("candid-gp[fast]" in result.output) == (compiled is None)
    written = candid("bench", "neighbours", "--rows", 40, "--output", "all")
    assert "neighbours.md, growth.json, growth.png" in written.output
    assert json.loads((tmp_path / "all" / "growth.json").read_text())["growth"][0]["n_rows"] == 40
    assert "(growth.png)" in (tmp_path / "all" / "neighbours.md").read_text(encoding="utf-8")
    without = candid("bench", "neighbours", "--rows", 0)
    assert "Growth" not in without.output
    candid("bench", "neighbours", "--row-numbers", "60,20,40")
    assert asked[-1] == [20, 40, 60]
