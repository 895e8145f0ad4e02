"""``candid bench``: lists, measures, runs, races."""

from __future__ import annotations

import json
import re
from contextlib import nullcontext
from functools import partial

import numpy as np
import pytest

from candid.bench import SPECS, Budget, Choice, Grid, Lap, Spec, Sweep, contenders, step_costs
from candid.bench import calibration as calibration_room
from candid.bench import race as race_room
from candid.bench import speed as speed_room
from candid.bench import workers as workers_room
from candid.bench.timing import interleaved_medians, turns_of
from candid.cli.bench.progress import duration

SIZE = ("--inducing", 6, "--features", 2, "--batch-size", 20, "--repeats", 1)


@pytest.fixture
def tiny(monkeypatch):
    """A benchmark on a data set that scikit-learn ships."""
    spec = Spec(
        "tiny/table",
        "A tiny table",
        "Nobody (2024)",
        "M = 5",
        "ppgpr_table3",
        {
            "quick": Budget(("diabetes",), ("map", "svgp", "unheard-of"), (0,), 5, max_epochs=1),
            "standard": Budget(("diabetes",), ("svgp",), (0, 1), 5, Choice(3, 1), max_epochs=1),
        },
        {"svgp": Grid("beta", (0.1, 1.0))},
    )
    monkeypatch.setitem(SPECS, spec.name, spec)
    return spec


@pytest.fixture
def tiny_sweep(monkeypatch):
    """A benchmark of one parameter with two values."""
    sweep = Sweep("omega_weight", "β₂", (0.0, 0.001), {"dcppgpr": "ppgpr-chol"})
    spec = Spec(
        "tiny/sweep",
        "A tiny sweep",
        "Nobody (2024)",
        "M = 5",
        "dc_beta2",
        {"quick": Budget(("diabetes",), ("ppgpr-chol", *sweep.rows()), (0,), {"diabetes": 5}, max_epochs=1)},
        parameters={"kernel": "rbf"},
        rows=sweep.rows(),
        sweep=sweep,
    )
    monkeypatch.setitem(SPECS, spec.name, spec)
    return spec


@pytest.fixture
def pretend(monkeypatch):
    """Fits that cost nothing; gives the list of them. A fit of svgp fails."""
    asked = []

    def fake(fit, parts):
        asked.append(fit)
        record = {"key": fit.key(), **fit.settings(), "threads": 1, "candid": "0", "torch": "2"}
        if fit.method == "svgp" and fit.purpose == "result":
            return record | {"error": "ValueError: svgp [cannot]"}
        scores = dict.fromkeys(("nll", "rmse", "crps", "validation_nll", "noise_share"), 0.5)
        times = {"epochs": 1, "seconds": 2.0, "objective_start": None, "objective_end": 1.0}
        return record | scores | times | {"error": None}

    monkeypatch.setattr(workers_room, "execute", fake)
    return asked


def test_list(candid):
    result = candid("bench", "list")
    assert result.exit_code == 0
    for text in ("run ppgpr/table3", "--budget quick", "7 data sets, 12 methods, 1 split, M = 300", "speed", "race"):
        assert text in result.stdout
    for text in ("run dc/table2", "6 data sets, 6 methods, 3 splits, M = 500 / 800", "run dc/beta2", "calibration"):
        assert text in result.stdout


@pytest.fixture
def in_this_process(monkeypatch):
    """Contenders of speed without processes of their own, which take seconds to start, and one call in a turn."""
    for room in (speed_room, step_costs):
        monkeypatch.setattr(room, "interleaved_medians", partial(interleaved_medians, warm_up=0, turn=0.0))
        monkeypatch.setattr(room, "own_process", lambda make, *arguments: nullcontext(turns_of(make(*arguments))))


@pytest.mark.usefixtures("in_this_process")
def test_speed(candid, tmp_path):
    result = candid("bench", "speed", *SIZE, "--markdown", tmp_path / "deep" / "speed.md")
    assert result.exit_code == 0, result.output
    for method in ("svgp", "ppgpr-chol", "ppgpr-mf", "ppgpr-delta"):
        assert re.search(rf"training step +│ +{method} +│ +6 ", result.stdout)
    for activity in (
        "predict, float32",
        "predict, float64",
        "predict one row, predictor_",
        "predict one row, estimator",
    ):
        assert activity in result.stdout
    assert "GF/s" in result.stdout
    assert re.search(r"\d×", result.stdout)
    written = (tmp_path / "deep" / "speed.md").read_text(encoding="utf-8")
    assert re.search(r"\| training step \| svgp \| 6 \| 2 \| [\d.e+]+ \| [\d.e+]+ \| \d+\.\d× \| – \|", written)


@pytest.mark.usefixtures("in_this_process")
def test_speed_without_gpytorch(candid, monkeypatch):
    monkeypatch.setattr(contenders, "find_spec", lambda name: None)
    result = candid("bench", "speed", *SIZE)
    assert result.exit_code == 0, result.output
    assert "GPyTorch is not installed" in result.stdout
    row = next(line for line in result.stdout.splitlines() if "training step" in line)
    assert [cell.strip() for cell in row.split("│")][6:9] == ["–", "–", "–"]


@pytest.mark.usefixtures("in_this_process")
def test_decoupled(candid, tmp_path):
    result = candid("bench", "decoupled", *SIZE, "--markdown", tmp_path / "steps.md")
    assert result.exit_code == 0, result.output
    lines = (tmp_path / "steps.md").read_text(encoding="utf-8").splitlines()
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines if line.startswith("|")][2:]
    assert [name for name, *_ in rows] == ["svgp", "dcsvgp", "dcsvgp with Ω", "dcppgpr", "dcppgpr with Ω"]
    assert rows[0][2] == "1.00×"
    for _, milliseconds, times, target in rows:
        assert float(times.split("×")[0]) == pytest.approx(float(milliseconds) / float(rows[0][1]), abs=0.02)
        assert ("✓" in times) == (target != "–" and float(times[:4]) <= float(target[2:-1]))


def test_speed_refuses_nonsense(candid):
    result = candid("bench", "speed", "--inducing", "ten")
    assert result.exit_code == 2
    assert result.stderr.startswith("Error: --inducing takes")


def test_run_and_resume(candid, tiny, pretend, tmp_path):
    result = candid("bench", "run", "tiny/table", "--output", "out")
    assert result.exit_code == 0, result.output
    assert "does not have them: unheard-of" in result.stdout
    assert "1/2 diabetes, map, split 0: NLL 0.500, 1 epochs, 2.0 s" in result.stdout
    assert "2/2 diabetes, svgp, split 0: failed: ValueError: svgp [cannot]" in result.stdout
    assert "1 fit failed" in result.stdout
    assert len((tmp_path / "out" / "results.jsonl").read_text().splitlines()) == 2
    assert "| diabetes | map | 0.500 | – |" in (tmp_path / "out" / "results.md").read_text(encoding="utf-8")
    assert (tmp_path / "out" / "nll.png").is_file()
    result = candid("bench", "run", "tiny/table", "--output", "out")
    assert "1 fit had been done by an earlier run" in result.stdout
    assert [fit.method for fit in pretend] == ["map", "svgp", "svgp"]
    candid("bench", "run", "tiny/table", "--output", "out", "--fresh")
    assert [fit.method for fit in pretend[3:]] == ["map", "svgp"]
    assert len((tmp_path / "out" / "results-before.jsonl").read_text().splitlines()) == 3


def test_run_options(candid, tiny, pretend, tmp_path):
    options = ("--methods", "map, svgp", "--splits", 1, "--inducing", 7, "--epochs", 3)
    options += ("--choice-inducing", 4, "--choice-epochs", 2)
    result = candid("bench", "run", "tiny/table", "--budget", "standard", *options)
    assert result.exit_code == 0, result.output
    assert "trying beta = 0.1" in result.stdout
    assert [(fit.method, fit.n_inducing, fit.parameters.get("max_epochs"), fit.purpose) for fit in pretend] == [
        ("svgp", 4, 2, "choice"),
        ("svgp", 4, 2, "choice"),
        ("map", 7, 3, "result"),
        ("svgp", 7, 3, "result"),
    ]
    assert (tmp_path / "candid-bench" / "tiny-table-standard" / "results.md").is_file()


def test_run_of_a_sweep(candid, tiny_sweep, pretend, tmp_path):
    result = candid("bench", "run", "tiny/sweep", "--output", "sweep")
    assert result.exit_code == 0, result.output
    assert "2/3 diabetes, dcppgpr β₂=0, split 0: NLL 0.500" in result.stdout
    assert [fit.settings()["parameters"]["omega_weight"] for fit in pretend] == [0.001, 0.0, 0.001]
    assert {fit.settings()["parameters"]["kernel"] for fit in pretend} == {"rbf"}
    page = (tmp_path / "sweep" / "results.md").read_text(encoding="utf-8")
    assert "| diabetes | dcppgpr β₂=0.001 | 0.500 | – |" in page
    assert (tmp_path / "sweep" / "sweep.png").is_file()
    candid("bench", "run", "tiny/sweep", "--methods", "dcppgpr", "--inducing", 6, "--output", "other")
    assert [(fit.name, fit.n_inducing) for fit in pretend[3:]] == [("dcppgpr β₂=0", 6), ("dcppgpr β₂=0.001", 6)]


def test_a_sweep_without_results_has_no_picture(candid, tiny_sweep, pretend, tmp_path):
    result = candid("bench", "run", "tiny/sweep", "--methods", "svgp", "--output", "out")
    assert result.exit_code == 0, result.output
    assert "there is no picture: there are no results to draw" in result.stdout
    assert not (tmp_path / "out" / "sweep.png").is_file()


def test_fits_of_a_benchmark_beside_this_one_are_not_done_again(candid, tiny, pretend, tmp_path):
    candid("bench", "run", "tiny/table", "--methods", "map", "--output", "first")
    result = candid("bench", "run", "tiny/table", "--methods", "map,vfitc", "--output", "second")
    assert "1 fit had been done by an earlier run" in result.stdout
    assert [fit.method for fit in pretend] == ["map", "vfitc"]
    assert len((tmp_path / "second" / "results.jsonl").read_text().splitlines()) == 2
    candid("bench", "run", "tiny/table", "--methods", "map", "--output", "third", "--fresh")
    assert [fit.method for fit in pretend[2:]] == ["map"]


def test_an_interrupted_run_keeps_what_it_has(candid, tiny, pretend, monkeypatch, tmp_path):
    fake = workers_room.execute

    def interrupted(fit, parts):
        if pretend:
            raise KeyboardInterrupt
        return fake(fit, parts)

    monkeypatch.setattr(workers_room, "execute", interrupted)
    result = candid("bench", "run", "tiny/table", "--output", "out")
    assert result.exit_code == 130
    assert "the same command goes on from here" in result.stdout
    assert "map" in (tmp_path / "out" / "results.md").read_text(encoding="utf-8")
    assert len((tmp_path / "out" / "results.jsonl").read_text().splitlines()) == 1


def test_a_real_run(candid, tiny, tmp_path):
    result = candid("bench", "run", "tiny/table", "--methods", "map", "--output", "out")
    assert result.exit_code == 0, result.output
    record = json.loads((tmp_path / "out" / "results.jsonl").read_text())
    assert record["error"] is None
    assert (record["n_train"], record["n_test"], record["n_validation"]) == (332, 66, 44)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("ppgpr/table4",), "there is no benchmark 'ppgpr/table4'; did you mean ppgpr/table3"),
        (("ppgpr/table3", "--budget", "huge"), "there is no budget 'huge'; there are quick, standard"),
        (("ppgpr/table3", "--data", "kin40k"), "cannot load kin40k: set the environment variable CANDID_DATA"),
        (("tiny/table", "--methods", "nothing"), "no method is left"),
        (("tiny/table", "--methods", ","), "--methods takes names"),
        (("tiny/table", "--choice-epochs", 3), "this budget chooses no parameters"),
        (("tiny/sweep", "--data", "linnerud"), "cannot load linnerud"),
        (("dc/table2", "--budget", "standard", "--data", "diabetes"), "no number of inducing points for diabetes"),
    ],
)
def test_run_refuses_nonsense(candid, tiny, tiny_sweep, monkeypatch, tmp_path, arguments, message):
    monkeypatch.setenv("CANDID_DATA", str(tmp_path))
    result = candid("bench", "run", *arguments)
    assert result.exit_code == 2, result.output
    assert message in result.stderr


def test_race(candid, monkeypatch, tmp_path):
    def fake(course, parts, note):
        assert (course.method, course.n_inducing, course.seconds, course.seed) == ("svgp", 5, 30.0, 1)
        assert (course.max_epochs, course.our_epochs) == (400, 20)
        note(Lap("candid", 1, 2.0, 0.9, 0.5))
        note(Lap("GPyTorch", 1, 3.0, 1.5, 0.7))
        note(Lap("candid", 2, 4.0, 0.4, 0.3))
        note(Lap("GPyTorch", 2, 20.0, 0.5, 0.3))
        raise KeyboardInterrupt

    monkeypatch.setattr(race_room, "race", fake)
    options = ("--data", "diabetes", "--method", "svgp", "--minutes", 0.5, "--inducing", 5, "--split", 1)
    options += ("--our-epochs", 20)
    result = candid("bench", "race", *options, "--level", 0.5, "--output", "out")
    assert result.exit_code == 0, result.output
    rows = [[cell.strip() for cell in line.split("│")][1:-1] for line in result.stdout.splitlines() if "│" in line]
    assert rows == [
        ["candid", "4.0 s", "0.400", "0.400", "2", "4.0"],
        ["GPyTorch", "20 s", "0.500", "0.500", "2", "20.0"],
    ]
    assert "interrupted" in result.stdout
    first, *laps = [json.loads(line) for line in (tmp_path / "out" / "laps.jsonl").read_text().splitlines()]
    assert first["race"]["level"] == 0.5
    np.testing.assert_allclose([lap["nll"] for lap in laps], [0.9, 1.5, 0.4, 0.5])
    assert (tmp_path / "out" / "race.png").is_file()


def test_durations():
    assert [duration(seconds) for seconds in (0.66, 4, 89, 600, 7200)] == ["0.7 s", "4.0 s", "89 s", "10 min", "2.0 h"]


def test_calibration(candid, tmp_path, monkeypatch):
    options = ("--data", "diabetes", "--methods", "map,dcsvgp,unheard-of", "--inducing", 5, "--epochs", 1, "--split", 1)
    result = candid("bench", "calibration", *options, "--output", "out")
    assert result.exit_code == 0, result.output
    assert "does not have them: unheard-of" in result.stdout
    rows = [[cell.strip() for cell in line.split("│")][1:-1] for line in result.stdout.splitlines() if "│" in line]
    assert [row[0] for row in rows] == ["map", "dcsvgp"]
    records = [json.loads(line) for line in (tmp_path / "out" / "results.jsonl").read_text().splitlines()]
    assert [record["split"] for record in records] == [1, 1]
    # As in the benchmark that the figure belongs to.
    assert {(record["parameters"]["kernel"], record["parameters"]["beta"]) for record in records} == {("rbf", 1.0)}
    page = (tmp_path / "out" / "calibration.md").read_text(encoding="utf-8")
    assert f"| {' | '.join(rows[1])} |" in page
    for name in ("calibration.png", "zscores.png"):
        assert (tmp_path / "out" / name).read_bytes().startswith(b"\x89PNG")
        assert f"({name})" in page
    monkeypatch.setattr(calibration_room, "execute", None)
    again = candid("bench", "calibration", *options, "--output", "out")
    assert again.exit_code == 0, again.output
    assert (tmp_path / "out" / "calibration.md").read_text(encoding="utf-8") == page


def test_calibration_tells_of_fits_that_failed(candid, tmp_path, monkeypatch):
    def fake(fit, parts, keep):
        return {"key": fit.key(), **fit.settings(), "error": "ValueError: cannot [do]"}

    monkeypatch.setattr(calibration_room, "execute", fake)
    result = candid("bench", "calibration", "--data", "diabetes", "--methods", "map", "--spec", "ppgpr/table3")
    assert result.exit_code == 0, result.output
    assert "map failed: ValueError: cannot [do]" in result.stdout
    assert "there is no picture" in result.stdout
    page = (tmp_path / "candid-bench" / "calibration-diabetes" / "calibration.md").read_text(encoding="utf-8")
    assert "- map: ValueError: cannot [do]" in page


def test_calibration_refuses_nonsense(candid):
    for options, message in (
        (("--methods", "nothing", "--data", "diabetes"), "no method is left"),
        (("--spec", "dc/table22"), "there is no benchmark 'dc/table22'; did you mean dc/table2"),
        (("--data", "kin40k"), "cannot load kin40k"),
    ):
        result = candid("bench", "calibration", *options)
        assert result.exit_code == 2
        assert message in result.stderr
