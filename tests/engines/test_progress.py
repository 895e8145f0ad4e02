from __future__ import annotations

import logging

import pytest

from candid.engines import ProgressBar
from candid.engines import progress as progress_module


@pytest.fixture
def clock(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(progress_module.time, "perf_counter", lambda: now[0])
    return now


def test_nothing_is_shown_where_there_is_no_terminal(clock, capsys):
    with ProgressBar("svgp") as bar:
        bar.begin(0)
        for step in range(1, 5):
            clock[0] += 10.0
            bar.update(step / 100, step, 100, "loss 1.0")
    output = capsys.readouterr()
    assert output.out == output.err == ""


def test_the_log_hears_of_long_fits_once(clock, caplog):
    with caplog.at_level(logging.INFO, logger="candid"), ProgressBar("svgp") as bar:
        bar.begin(0)
        for step in range(1, 5):
            clock[0] += 3.0
            bar.update(step / 101, step, 101, "")
    # Three seconds a step and a hundred steps to go are five minutes.
    assert [record.getMessage() for record in caplog.records] == ["svgp: about 5 min for at most 100 more steps"]


def test_the_estimate_counts_from_where_training_was_resumed(clock, caplog):
    with caplog.at_level(logging.INFO, logger="candid"), ProgressBar("svgp") as bar:
        clock[0] = 1000.0
        bar.begin(50 / 151)
        clock[0] += 3.0
        bar.update(51 / 151, 51, 151, "")
    assert [record.getMessage() for record in caplog.records] == ["svgp: about 5 min for at most 100 more steps"]


def test_the_log_does_not_hear_of_short_fits(clock, caplog):
    with caplog.at_level(logging.INFO, logger="candid"), ProgressBar("svgp") as bar:
        bar.begin(0)
        clock[0] += 3.0
        bar.update(0.9, 90, 100, "")
    assert not caplog.records


def test_a_time_budget_bounds_the_estimate(clock, caplog):
    with caplog.at_level(logging.INFO, logger="candid"), ProgressBar("svgp") as bar:
        bar.begin(0.0)
        clock[0] += 3.0
        # One of a thousand steps is done, but 3 of 12 seconds: nine are left, which is not long.
        bar.update(0.25, 1, 1000, "")
    assert not caplog.records
