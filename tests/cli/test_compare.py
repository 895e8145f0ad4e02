"""``candid compare``, as a user runs it."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from candid import datasets, load
from candid.cli import comparison
from candid.cli.console import output
from candid.cli.rows import training_rows
from candid.methods import METHODS
from candid.metrics import summary

FAST = ("--time-budget", 20, "--methods", "exact,ppgpr-mf")


def test_the_main_job(candid, cars, tmp_path):
    result = candid(
        "compare", cars, "--target", "price", "--output", "out", "--seed", 3, "--test-fraction", 0.25, *FAST
    )
    assert result.exit_code == 0, result.output
    results = json.loads((tmp_path / "out" / "results.json").read_text())
    assert set(results["methods"]) == {"exact", "ppgpr-mf"}
    best = results["best"]
    assert best == min(results["methods"], key=lambda name: results["methods"][name]["nll"])
    assert f"{best} ★" in result.stdout
    for text in ("NLL", "CRPS", "RMSE", "95 % coverage", "seconds", "out/calibration.png", "out/best.candid"):
        assert text in result.stdout
    assert "'id' is left out: it is text with 60 levels" in result.stdout
    assert "'nothing' is left out" in result.stdout
    assert "2 of 60 rows left out" in result.stdout
    assert results["data"]["features"] == ["colour=blue", "colour=red", "doors", "one", "weight"]
    assert results["seed"] == 3
    assert results["versions"]["torch"]
    assert (tmp_path / "out" / "calibration.png").read_bytes().startswith(b"\x89PNG")
    assert result.stderr == ""

    rows = training_rows(output(), cars, "price")
    _, test, _ = datasets.train_test_validation_split(58, 3, (0.75, 0.25, 0))
    model = load(tmp_path / "out" / "best.candid")
    scores = summary(rows.y[test], model.predict_distribution(rows.X[test]))
    assert results["methods"][best]["nll"] == pytest.approx(scores["nll"], abs=1e-9)
    assert f"{scores['nll']:.3f}" in result.stdout
    assert scores["rmse"] < 0.6 * np.std(rows.y)


def test_without_a_file_and_a_target(candid, monkeypatch, tmp_path):
    whole = datasets.load("diabetes")
    small = datasets.Dataset("diabetes", whole.X[:60], whole.y[:60], whole.feature_names, ("y",), "regression")
    monkeypatch.setattr(datasets, "load", lambda name: small)
    result = candid("compare", "--methods", "exact", "--output", "out")
    assert result.exit_code == 0, result.output
    assert "scikit-learn's 'diabetes'" in result.stdout
    assert "the target is the last column, 'y'" in result.stdout
    assert (tmp_path / "out" / "best.candid").is_file()


def test_a_method_that_fails_does_not_stop_the_others(candid, cars, monkeypatch, tmp_path):
    make_gp = comparison.make_gp

    def sabotaged(name, **parameters):
        if name == "svgp":
            raise ArithmeticError("the loss became\nnan")
        return make_gp(name, **parameters)

    monkeypatch.setattr(comparison, "make_gp", sabotaged)
    result = candid("compare", cars, "--target", "price", "--output", "out", "--methods", "svgp,exact")
    assert result.exit_code == 0, result.output
    assert "failed: the loss became nan" in result.stdout
    assert "exact ★" in result.stdout
    results = json.loads((tmp_path / "out" / "results.json").read_text())
    assert results["methods"]["svgp"]["problem"] == "failed: the loss became nan"


def test_nothing_succeeds(candid, cars, tmp_path):
    result = candid("compare", cars, "--target", "price", "--output", "out", "--methods", "svgp", "--time-budget", 0)
    assert result.exit_code == 2
    assert "time budget was used up" in result.stdout
    assert result.stderr.startswith("Error: no method succeeded")
    assert json.loads((tmp_path / "out" / "results.json").read_text())["best"] is None


def test_exact_is_skipped_for_large_tables(candid, cars, monkeypatch):
    few = {name: replace(row, most_rows=row.most_rows and 20) for name, row in METHODS.items()}
    monkeypatch.setattr("candid.cli.comparison.find_method", few.__getitem__)
    result = candid("compare", cars, "--target", "price", "--output", "out", *FAST)
    assert result.exit_code == 0, result.output
    assert "skipped: 46 training rows" in result.stdout
    assert "ppgpr-mf ★" in result.stdout


def test_the_budget_is_shared(monkeypatch):
    shares = {}

    def remember(name, time_budget, **parameters):
        shares[name] = time_budget
        raise ValueError("enough")

    monkeypatch.setattr(comparison, "make_gp", remember)
    split = comparison.Split(np.zeros((5, 1)), np.zeros(5), np.zeros((2, 1)), np.zeros(2))
    outcomes = comparison.compare_methods(["exact", "svgp", "map"], split, 30.0, 0, lambda text: None)
    assert list(shares) == ["svgp", "map", "exact"]  # the exact GP goes last
    assert shares["svgp"] == pytest.approx(10, abs=1)
    assert shares["exact"] == pytest.approx(30, abs=1)  # nobody has used any
    assert {outcome.problem for outcome in outcomes} == {"failed: enough"}
    assert comparison.best_outcome(outcomes) is None


def test_without_matplotlib_there_is_a_note_instead_of_a_picture(candid, cars, monkeypatch, tmp_path):
    monkeypatch.setitem(__import__("sys").modules, "matplotlib.figure", None)
    result = candid("compare", cars, "--target", "price", "--output", "out", "--methods", "exact")
    assert result.exit_code == 0, result.output
    assert "pip install candid-gp[report]" in result.stdout
    assert not (tmp_path / "out" / "calibration.png").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["cars.csv", "--target", "prize"], "no column 'prize'. Did you mean 'price'? Its columns are id, colour"),
        (["cars.csv", "--target", "colour"], "must hold numbers"),
        (["cars.csv", "--target", "nothing"], "has 0 complete rows"),
        (["cars.csv", "--methods", "svpg"], "did you mean svgp"),
        (["cars.csv", "--methods", ","], "names no method"),
        (["cars.csv", "--test-fraction", "1"], "--test-fraction must lie between 0 and 1"),
        (["none.csv"], "there is no file none.csv"),
        (["cars.csv", "--target", "price", "--output", "cars.csv"], "cars.csv"),
    ],
)
def test_errors_are_one_line(candid, cars, arguments, message):
    result = candid("compare", *arguments)
    assert result.exit_code == 2
    assert result.stderr.startswith("Error: ")
    assert result.stderr.count("\n") == 1
    assert message in result.stderr
    assert "Traceback" not in result.output
