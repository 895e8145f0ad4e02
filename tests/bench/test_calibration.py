"""Predictions are kept and read again, and the page says how often they came true."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest

from candid.bench import Row
from candid.bench import calibration as room
from candid.bench.calibration import COLUMNS, Calibration, calibrate, calibration_page, calibration_rows
from candid.bench.protocol import make_parts
from candid.predictive import PredictiveMixture, PredictiveNormal


@pytest.fixture
def budget(spec):
    return spec.budgets["quick"].narrowed(None, ["map", "unheard-of", "svgp"], None)


@pytest.fixture
def small(spec):
    return dataclasses.replace(spec, parameters={"kernel": "rbf"})


def test_fits_are_done_once_and_predictions_read_again(small, budget, table, tmp_path, monkeypatch):
    heard = []
    first = calibrate(small, budget, {"waves": table}, tmp_path, lambda fit, record: heard.append((fit.name, record)))
    assert [(name, record is None) for name, record in heard] == [
        ("map", True),
        ("map", False),
        ("svgp", True),
        ("svgp", False),
    ]
    parts = make_parts(table, 0, small.proportions)
    np.testing.assert_array_equal(first.targets, parts.y_test)
    record = first.records["svgp"]
    assert record["parameters"]["kernel"] == "rbf"
    assert -np.mean(first.predictions["svgp"].log_prob(parts.y_test)) == pytest.approx(record["nll"], rel=1e-12)
    monkeypatch.setattr(room, "execute", None)
    again = calibrate(small, budget, {"waves": table}, tmp_path)
    for name, prediction in first.predictions.items():
        np.testing.assert_array_equal(prediction.mean, again.predictions[name].mean)
        np.testing.assert_array_equal(prediction.std, again.predictions[name].std)


def test_a_fit_whose_predictions_are_lost_is_done_again(small, budget, table, tmp_path):
    calibrate(small, budget, {"waves": table}, tmp_path)
    lost, kept = sorted(tmp_path.glob("*.npz"))
    before = kept.stat().st_mtime_ns
    lost.unlink()
    calibrate(small, budget, {"waves": table}, tmp_path)
    assert lost.is_file()
    assert kept.stat().st_mtime_ns == before
    assert len((tmp_path / "results.jsonl").read_text().splitlines()) == 3


@pytest.mark.parametrize(
    "prediction",
    [
        PredictiveNormal([0.0, 1.0], [1.0, 2.0], 0.5),
        PredictiveMixture([[0.0, 1.0], [2.0, 3.0]], [[1.0, 2.0], [0.5, 0.1]], 0.5, [0.25, 0.75]),
    ],
    ids=lambda p: type(p).__name__,
)
def test_predictions_survive_a_file(prediction, tmp_path):
    room._save(tmp_path / "deep" / "p.npz", prediction)
    read = room._load(tmp_path / "deep" / "p.npz")
    assert type(read) is type(prediction)
    y = np.array([0.3, -2.0])
    np.testing.assert_array_equal(read.log_prob(y), prediction.log_prob(y))
    np.testing.assert_array_equal(read.noise_std, prediction.noise_std)


def test_figures_of_a_page(small, budget):
    # z = −0.5, 0.5, 1.8, 3: of the intervals ±0.674, ±1.645, ±1.960 the first two hold two targets, the last three.
    y = np.array([-0.5, 0.5, 1.8, 3.0])
    records = {
        "map": {"error": None, "epochs": 7, "seconds": 2.04},
        "svgp": {"error": "ValueError: too bad"},
    }
    found = Calibration(y, {"map": PredictiveNormal(np.zeros(4), np.ones(4))}, records)
    first, second = calibration_rows(found)
    # ½ log 2π + ½ mean z² = 0.919 + ½ · 3.185; RMSE = √3.185
    assert first[:3] == ("map", "2.511", "1.785")
    assert first[4:7] == ("50.0 %", "50.0 %", "75.0 %")
    assert first[8:] == ("7", "2.0")
    assert second == ("svgp", "failed", *["–"] * (len(COLUMNS) - 2))
    text = calibration_page(small, budget, found, ["calibration.png"])
    assert "# Calibration on waves" in text
    assert "4 test rows of split 0, M = 10, our recipe with kernel = rbf." in text
    assert f"| {' | '.join(first)} |" in text
    assert "![calibration of waves](calibration.png)" in text
    assert "- svgp: ValueError: too bad" in text
    assert "## Fits" not in calibration_page(small, budget, dataclasses.replace(found, records={}), [])


def test_a_fit_that_fails_leaves_the_others(small, table, tmp_path):
    spec = dataclasses.replace(small, parameters={}, rows={"bad": Row("map", {"n_restarts": 0})})
    budget = small.budgets["quick"].narrowed(None, ["bad", "map"], None)
    found = calibrate(spec, budget, {"waves": table}, tmp_path)
    assert list(found.predictions) == ["map"]
    assert found.records["bad"]["error"] is not None
    assert [json.loads(line)["error"] is None for line in (tmp_path / "results.jsonl").open()] == [False, True]
