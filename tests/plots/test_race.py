"""The picture of a race shows the curves and says when they reach the level."""

from __future__ import annotations

import pytest

from candid.plots import race
from candid.plots.race import time_to_reach

CURVES = {"ours": ([1, 2, 4], [0.5, -0.9, -1.0]), "theirs": ([3, 60], [1.5, 0.2])}


def test_time_to_reach_is_the_first_moment_below():
    assert time_to_reach(CURVES["ours"], -0.866) == 2
    assert time_to_reach(CURVES["ours"], 0.5) == 1
    assert time_to_reach(([1, 2, 3], [0.1, 0.3, 0.0]), 0.1) == 1
    assert time_to_reach(CURVES["theirs"], -0.866) is None
    assert time_to_reach(([], []), 0.0) is None


def test_curves_level_and_legend(tmp_path):
    ax = race(CURVES, -0.866, "a race")
    assert ax.get_xscale() == "log"
    assert ax.get_title(loc="left") == "a race"
    texts = [text.get_text() for text in ax.get_legend().get_texts()]
    assert texts == ["ours: after 2 s", "theirs: not within 60 s", "level to reach: −0.866"]
    lines = ax.get_lines()
    assert [list(line.get_ydata()) for line in lines] == [[0.5, -0.9, -1.0], [1.5, 0.2], [-0.866, -0.866]]
    ax.figure.savefig(tmp_path / "race.png")
    assert (tmp_path / "race.png").read_bytes().startswith(b"\x89PNG")


def test_without_a_level_and_without_curves():
    ax = race(CURVES | {"absent": ([], [])})
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["ours", "theirs"]
    with pytest.raises(ValueError, match="no curves"):
        race({"absent": ([], [])})
