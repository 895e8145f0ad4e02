"""``candid bench chains``."""

from __future__ import annotations

import sys

from candid.bench.chains import CASES, ChainSpeed


def test_command(candid, tmp_path, monkeypatch):
    asked = []

    def measure(**options):
        asked.append(options)
        return iter([ChainSpeed(CASES[0], 61.23, 4321.4, 64), ChainSpeed(CASES[3], 30.0, 99.0, 64)])

    monkeypatch.setattr(sys.modules["candid.cli.bench.chains"], "measure_chains", measure)
    result = candid("bench", "chains", "--inducing", 20, "--samples", 64, "--markdown", "out/chains.md")
    assert result.exit_code == 0, result.output
    assert (asked[0]["n_inducing"], asked[0]["n_samples"]) == (20, 64)
    page = (tmp_path / "out" / "chains.md").read_text(encoding="utf-8")
    assert "M = 20, 64 samples" in page
    assert "| naval | 1 | 1 | 1000 | 61.2 | 38.0 | 4,321 |" in page
    assert "| kin8nm | 1 | 4 | 100 | 30.0 | – | 99 |" in page
