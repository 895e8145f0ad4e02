"""A benchmark is run to its end, once: records are complete, written at once, and not computed again."""

from __future__ import annotations

import json
import math
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from candid.bench import Results, Runner
from candid.bench import fit as fit_room
from candid.bench import runner as runner_room
from candid.bench import workers as workers_room
from candid.bench.fit import Fit, execute, key_of
from candid.bench.protocol import load_data, make_parts
from candid.bench.results import append_line
from candid.datasets import Dataset, train_test_validation_split
from candid.estimators import make_gp

PROPORTIONS = (15, 3, 2)
RESULTS = Path(__file__).parents[2] / "docs" / "results"


def lines(path):
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


@pytest.fixture
def pretend(monkeypatch):
    """Replace fitting by a table of validation NLLs by β; gives the list of the fits that were asked for."""
    asked = []

    def fake(fit, parts):
        asked.append(fit)
        score = {0.05: 0.3, 1.0: 0.1}.get(fit.parameters.get("beta"), 0.2)
        if fit.method == "svgp":
            return {"key": fit.key(), "error": "ValueError: no"}
        return {"key": fit.key(), "error": None, "nll": score, "validation_nll": score}

    monkeypatch.setattr(workers_room, "execute", fake)
    return asked


def run(spec, budget, table, path, tell=lambda event: None):
    return Runner(spec, spec.budgets[budget], {table.name: table}, Results(path), tell).run()


def test_parts_are_standardised_by_the_training_part(table):
    parts = make_parts(table, 3, PROPORTIONS)
    train, test, validation = train_test_validation_split(60, 3)
    assert (len(parts.x), len(parts.x_test), len(parts.x_validation)) == (45, 9, 6)
    np.testing.assert_allclose(parts.x.mean(0), 0, atol=1e-12)
    np.testing.assert_allclose(parts.y.std(), 1, rtol=1e-12)
    mean, std = table.y[train].mean(), table.y[train].std()
    np.testing.assert_allclose(parts.y_test, (table.y[test] - mean) / std, rtol=1e-9)
    np.testing.assert_allclose(
        parts.x_validation, (table.X[validation] - table.X[train].mean(0)) / table.X[train].std(0), rtol=1e-9
    )


def test_inputs_may_be_scaled_to_a_range(table):
    parts = make_parts(table, 3, PROPORTIONS, inputs="range")
    np.testing.assert_allclose(parts.x.min(0), -1)
    np.testing.assert_allclose(parts.x.max(0), 1)
    plain = make_parts(table, 3, PROPORTIONS)
    np.testing.assert_array_equal(parts.y, plain.y)
    # Still the same rows, test rows too.
    for scaled, standardised in ((parts.x, plain.x), (parts.x_test, plain.x_test)):
        assert np.corrcoef(scaled[:, 0], standardised[:, 0])[0, 1] == pytest.approx(1)


def test_flights_without_the_times_of_the_schedule(table, monkeypatch):
    """From these and the times of the flight, how late it is would follow by a subtraction."""
    names = ("day", "sched_dep", "sched_arr", "dep_time")
    flights = replace(
        table, X=np.arange(240.0).reshape(60, 4), feature_names=names, task="classification", y=np.arange(60) % 2
    )
    monkeypatch.setattr("candid.bench.protocol.load", lambda name: flights)
    data = load_data(["flights2024"], "classification")["flights2024"]
    assert data.feature_names == ("day", "dep_time")
    np.testing.assert_array_equal(data.X, flights.X[:, [0, 3]])


def test_the_nll_of_each_target(table):
    both = replace(table, y=np.column_stack([table.y, table.X[:, 1]]), target_names=("y", "z"))
    parts = make_parts(both, 0, PROPORTIONS)
    record = execute(Fit("waves", "svgp", 0, 5, PROPORTIONS, {"max_epochs": 1}), parts)
    assert len(record["nll_of_targets"]) == 2
    assert np.mean(record["nll_of_targets"]) == pytest.approx(record["nll"])
    alone = execute(Fit("waves", "svgp", 0, 5, PROPORTIONS, {"max_epochs": 1}), make_parts(table, 0, PROPORTIONS))
    assert "nll_of_targets" not in alone


def test_of_a_long_table_the_same_rows_are_taken_for_every_split(table):
    taken = [make_parts(table, split, PROPORTIONS, most_rows=20) for split in (0, 1)]
    assert [len(parts.x) for parts in taken] == [15, 15]
    # Splits differ in their means and scales only.
    ranks = [np.sort(np.concatenate([parts.y, parts.y_test, parts.y_validation])) for parts in taken]
    first, second = (values - values.mean() for values in ranks)
    np.testing.assert_allclose(first / first.std(), second / second.std())
    assert len(make_parts(table, 0, PROPORTIONS, most_rows=1000).x) == 45


def test_what_is_usual_leaves_the_key_as_it_was(table):
    plain = Fit("waves", "svgp", 0, 10, PROPORTIONS)
    assert not {"task", "inputs", "most_rows"} & plain.settings().keys()
    other = replace(plain, inputs="range")
    assert other.settings()["inputs"] == "range"
    assert other.key() != plain.key()


def test_a_record_says_all(table):
    fit = Fit("waves", "ppgpr-mf", 1, 10, PROPORTIONS, {"beta": 0.05, "max_epochs": 2})
    parts = make_parts(table, 1, PROPORTIONS)
    record = execute(fit, parts)
    gp = make_gp("ppgpr-mf", n_inducing=10, random_state=1, verbose=False, beta=0.05, max_epochs=2)
    p = gp.fit(parts.x, parts.y).predict_distribution(parts.x_test)
    # −log N(y; mean, std²), by hand
    z = (parts.y_test - p.mean) / p.std
    assert record["nll"] == pytest.approx(np.mean(0.5 * z**2 + np.log(p.std) + 0.5 * math.log(2 * math.pi)), rel=1e-9)
    assert record["rmse"] == pytest.approx(np.sqrt(np.mean((parts.y_test - p.mean) ** 2)), rel=1e-9)
    assert record["noise_share"] == pytest.approx(np.mean(gp.noise_**2 / p.std**2), rel=1e-9)
    held_out = gp.predict_distribution(parts.x_validation).log_prob(parts.y_validation)
    assert record["validation_nll"] == pytest.approx(-np.mean(held_out), rel=1e-9)
    assert record["error"] is None
    assert record["epochs"] == 2
    assert record["objective_end"] == gp.history_[-1]["loss"]
    assert (record["parameters"]["n_inducing"], record["parameters"]["beta"]) == (10, 0.05)
    assert (record["n_train"], record["n_test"], record["n_validation"], record["n_features"]) == (45, 9, 6, 2)
    assert 0 < record["seconds"] <= record["total_seconds"]
    lengths = gp.kernel_.unit.lengthscale.value.detach().double().numpy()
    assert record["lengthscale"] == pytest.approx(np.exp(np.log(lengths).mean()), rel=1e-6)
    json.dumps(record, allow_nan=False)


def test_predictions_of_test_rows_can_be_kept(table):
    parts, kept = make_parts(table, 0, PROPORTIONS), []
    record = execute(Fit("waves", "map", 0, 5, PROPORTIONS, {"max_epochs": 1}), parts, keep=kept.append)
    assert -np.mean(kept[0].log_prob(parts.y_test)) == pytest.approx(record["nll"], rel=1e-12)


def test_lengthscales_of_mean_and_covariance(table):
    parts = make_parts(table, 0, PROPORTIONS)
    setting = {"kernel": "rbf", "ard": False}
    record = execute(Fit("waves", "dcsvgp", 0, 5, PROPORTIONS, {"max_epochs": 2}, setting=setting), parts)
    gp = make_gp("dcsvgp", n_inducing=5, random_state=0, verbose=False, max_epochs=2, **setting).fit(parts.x, parts.y)
    for name, kernel in (("lengthscale", gp.kernel_), ("mean_lengthscale", gp.mean_kernel_)):
        assert record[name] == pytest.approx(kernel.unit.lengthscale.value.mean().item(), rel=1e-6)


@pytest.mark.parametrize("kernel", ["linear", "rbf + matern52"])
def test_kernels_without_a_lengthscale_to_speak_of(table, kernel):
    fit = Fit("waves", "map", 0, 5, PROPORTIONS, {"max_epochs": 0}, setting={"kernel": kernel})
    record = execute(fit, make_parts(table, 0, PROPORTIONS))
    assert record["error"] is None
    assert record["lengthscale"] is None
    assert record["mean_lengthscale"] is None


def test_the_objective_before_training_is_read_from_epoch_zero(table, monkeypatch):
    class Stub:
        history_ = ({"epoch": 0, "loss": 2.5}, {"epoch": 4, "loss": 1.5})
        jitter_ = 0.0

        def fit(self, x, y):
            return self

        def predict_distribution(self, x):
            return gp.predict_distribution(x)

    parts = make_parts(table, 0, PROPORTIONS)
    gp = make_gp("map", n_inducing=5, max_epochs=0, init="random", verbose=False).fit(parts.x, parts.y)
    record = fit_room._measured(Stub(), parts, lambda p: None)
    assert (record["objective_start"], record["objective_end"], record["epochs"]) == (2.5, 1.5, 4)


def test_targets_in_original_units(table):
    """Several of them, and no validation rows; the standard deviation of targets is what units differ by."""
    several = replace(table, y=np.stack([table.y, 3 * table.y], 1), target_names=("y", "z"))
    scores = []
    for targets in ("standardised", "original"):
        parts = make_parts(several, 0, (8, 2, 0), targets=targets)
        fit = Fit("waves", "map", 0, 10, (8, 2, 0), {"max_epochs": 1}, targets=targets)
        scores.append(execute(fit, parts))
        assert scores[-1]["error"] is None
        assert scores[-1].get("targets") == (None if targets == "standardised" else "original")
        assert "validation_nll" not in scores[-1]
    spread = table.y[train_test_validation_split(60, 0, (8, 2, 0))[0]].std()
    shift = (math.log(spread) + math.log(3 * spread)) / 2
    assert scores[1]["nll"] - scores[0]["nll"] == pytest.approx(shift, abs=1e-4)


def test_how_two_classes_are_ordered():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(60, 1)), np.arange(60) % 2
    parts = make_parts(Dataset("signs", x + y[:, None], y, ("a",), ("y",), "classification", ("n", "p")), 0, (4, 2, 0))
    fit = Fit("signs", "svgp", 0, 10, (4, 2, 0), {"max_epochs": 1}, task="classification")
    kept = []
    record = execute(fit, parts, kept.append)
    assert record["error"] is None
    assert record["mistaken"] == pytest.approx((kept[0].mode != parts.y_test).mean())
    likely = kept[0].probabilities[:, 1]
    pairs = [(p > n) + (p == n) / 2 for p in likely[parts.y_test == 1] for n in likely[parts.y_test == 0]]
    assert record["misranked"] == pytest.approx(1 - np.mean(pairs))


def test_an_exact_gp_has_no_inducing_points(table):
    record = execute(Fit("waves", "exact", 0, 10, PROPORTIONS, {"max_epochs": 1}), make_parts(table, 0, PROPORTIONS))
    assert record["error"] is None
    assert "n_inducing" not in record["parameters"]


def test_an_error_is_part_of_the_record(table):
    fit = Fit("waves", "svgp", 0, 10, PROPORTIONS, {"no_such_parameter": 1})
    record = execute(fit, make_parts(table, 0, PROPORTIONS))
    assert record["error"].startswith("ValueError: SparseGPRegressor has no parameter 'no_such_parameter'")
    assert record["traceback"][0].startswith("fit.py:")
    assert not any("/" in call.partition(":")[0] for call in record["traceback"])
    assert "nll" not in record


def test_keys_tell_settings_apart(monkeypatch):
    def fit(**changes):
        start = {"data": "waves", "method": "svgp", "split": 0, "n_inducing": 10, "proportions": PROPORTIONS}
        return Fit(**(start | changes))

    same = fit(purpose="choice", parameters={"beta": 1.0, "verbose": True})
    assert fit().key() == same.key()
    others = [
        fit(data="pol"),
        fit(method="map"),
        fit(split=1),
        fit(n_inducing=11),
        fit(proportions=(1, 1, 1)),
        fit(parameters={"beta": 0.5}),
        fit(parameters={"max_epochs": 3}),
    ]
    keys = {entry.key() for entry in others}
    assert len(keys) == len(others)
    assert fit().key() not in keys
    before = fit().key()
    monkeypatch.setattr(fit_room, "RECIPE_VERSION", -1)
    assert fit().key() != before


def test_settings_of_a_table_are_parameters_like_others():
    fit = Fit("waves", "svgp", 0, 10, PROPORTIONS, {"beta": 0.5}, setting={"kernel": "rbf"}, row="svgp, smooth")
    plain = Fit("waves", "svgp", 0, 10, PROPORTIONS, {"beta": 0.5, "kernel": "rbf"})
    assert fit.key() == plain.key()
    assert fit.settings()["parameters"]["kernel"] == "rbf"
    assert (fit.name, plain.name) == ("svgp, smooth", "svgp")


def test_new_parameters_with_a_default_leave_keys_as_they_are():
    fit = Fit("waves", "dcsvgp", 0, 10, PROPORTIONS, {"omega_weight": 0.1})
    settings = fit.settings()
    earlier = {name: value for name, value in settings["parameters"].items() if name not in ("whiten", "gamma")}
    assert key_of({**settings, "parameters": earlier}) == fit.key()
    assert key_of({**settings, "parameters": earlier | {"whiten": "covariance"}}) != fit.key()
    # As read from a file, where tuples have become lists.
    assert key_of(json.loads(json.dumps(settings))) == fit.key()


def test_a_record_from_before_a_default_has_changed_is_not_used(tmp_path):
    fit = Fit("waves", "svgp", 0, 10, PROPORTIONS)
    results = Results(tmp_path / "results.jsonl")
    results.append({"key": fit.key(), "error": None, "parameters": {"batch_size": 256}})
    assert results.finished(fit) is None
    results.append({"key": fit.key(), "error": None, "parameters": {"batch_size": 1000, "fixed": []}})
    assert results.finished(fit) is not None


def test_what_another_benchmark_has_done_is_copied(spec, table, tmp_path, pretend):
    first, second = tmp_path / "a" / "results.jsonl", tmp_path / "b" / "results.jsonl"
    run(spec, "quick", table, first)
    assert len(pretend) == 2
    budget = spec.budgets["quick"].narrowed(None, ["map", "ppgpr-chol"], None)
    Runner(spec, budget, {"waves": table}, Results(second, [first])).run()
    assert [fit.method for fit in pretend[2:]] == ["ppgpr-chol"]
    assert [record["key"] for record in lines(second)] == [lines(first)[0]["key"], pretend[2].key()]
    Runner(spec, budget, {"waves": table}, Results(second)).run()
    assert len(pretend) == 3


def test_a_whole_run_and_its_repetition(spec, table, tmp_path):
    path = tmp_path / "results.jsonl"
    outcomes = run(spec, "standard", table, path)
    # Two tries of β, then two methods on two splits.
    assert [(o.fit.method, o.fit.split, o.fit.purpose) for o in outcomes] == [
        ("ppgpr-mf", 0, "choice"),
        ("ppgpr-mf", 0, "choice"),
        ("map", 0, "result"),
        ("ppgpr-mf", 0, "result"),
        ("map", 1, "result"),
        ("ppgpr-mf", 1, "result"),
    ]
    assert all(outcome.record["error"] is None for outcome in outcomes)
    assert [record["key"] for record in lines(path)] == [outcome.fit.key() for outcome in outcomes]
    tries = [o for o in outcomes if o.fit.purpose == "choice"]
    assert [o.record["parameters"]["n_inducing"] for o in tries] == [5, 5]
    best = min(tries, key=lambda o: o.record["validation_nll"]).fit.parameters["beta"]
    assert {o.record["parameters"]["beta"] for o in outcomes if o.fit.method == "ppgpr-mf" and o not in tries} == {best}
    before = path.read_bytes()
    events = []
    again = run(spec, "standard", table, path, events.append)
    assert path.read_bytes() == before
    assert [outcome.record["nll"] for outcome in again] == [outcome.record["nll"] for outcome in outcomes]
    assert all(event.reused for event in events)


def test_fits_side_by_side_are_the_same_as_one_by_one(spec, table, tmp_path):
    budget, data = spec.budgets["standard"], {table.name: table}
    one, two = tmp_path / "one.jsonl", tmp_path / "two.jsonl"
    began = []
    alone = Runner(spec, budget, data, Results(one)).run()
    beside = Runner(spec, budget, data, Results(two), began.append, jobs=2).run()
    assert [outcome.fit for outcome in beside] == [outcome.fit for outcome in alone]
    assert [outcome.record["key"] for outcome in beside] == [outcome.fit.key() for outcome in alone]
    for ours, theirs in zip(alone, beside, strict=True):
        assert ours.record["nll"] == pytest.approx(theirs.record["nll"], abs=1e-4)
        assert theirs.record["threads"] == 1
    # Two begin before one is over.
    assert [event.record is None for event in began[:3]] == [True, True, False]
    assert len(lines(two)) == len(alone)


def test_a_fit_that_is_killed_says_what_to_do(spec, table, tmp_path, monkeypatch):
    def killed(self, function, fit):
        broken = Future()
        broken.set_exception(BrokenProcessPool("a process was terminated abruptly"))
        return broken

    monkeypatch.setattr(ProcessPoolExecutor, "submit", killed)
    runner = Runner(spec, spec.budgets["quick"], {table.name: table}, Results(tmp_path / "results.jsonl"), jobs=2)
    with pytest.raises(MemoryError, match="fewer --jobs"):
        runner.run()


def test_the_value_with_the_best_validation_nll_is_used_for_all_splits(spec, table, tmp_path, pretend):
    run(spec, "standard", table, tmp_path / "results.jsonl")
    final = [fit for fit in pretend if fit.method == "ppgpr-mf" and fit.purpose == "result"]
    assert [dict(fit.parameters) for fit in final] == 2 * [{"beta": 1.0, "max_epochs": 2}]


def test_without_a_choice_our_recipe_decides(spec, table, tmp_path, pretend):
    run(spec, "quick", table, tmp_path / "results.jsonl")
    assert [(fit.method, dict(fit.parameters)) for fit in pretend] == [
        ("map", {"max_epochs": 2}),
        ("ppgpr-mf", {"max_epochs": 2}),
    ]


def test_a_run_goes_on_after_an_interruption(spec, table, tmp_path, pretend, monkeypatch):
    path, fake = tmp_path / "results.jsonl", workers_room.execute

    def interrupted(fit, parts):
        if len(pretend) == 3:
            raise KeyboardInterrupt
        return fake(fit, parts)

    monkeypatch.setattr(workers_room, "execute", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run(spec, "standard", table, path)
    assert len(lines(path)) == 3
    monkeypatch.setattr(workers_room, "execute", fake)
    run(spec, "standard", table, path)
    assert len(pretend) == len(lines(path)) == 6


def test_a_failure_does_not_end_the_run_and_is_tried_again(spec, table, tmp_path, pretend):
    path = tmp_path / "results.jsonl"
    budget = spec.budgets["quick"].narrowed(None, ["svgp", "map", "unheard-of"], None)
    outcomes = Runner(spec, budget, {"waves": table}, Results(path)).run()
    assert [(o.fit.method, o.record["error"]) for o in outcomes] == [("svgp", "ValueError: no"), ("map", None)]
    Runner(spec, budget, {"waves": table}, Results(path)).run()
    assert [fit.method for fit in pretend] == ["svgp", "map", "svgp"]


def test_methods_for_short_tables_are_left_out_of_long_ones(spec, table, tmp_path, pretend, monkeypatch):
    budget = spec.budgets["quick"].narrowed(None, ["exact", "map"], None)
    Runner(spec, budget, {"waves": table}, Results(tmp_path / "a.jsonl")).run()
    assert [fit.method for fit in pretend] == ["exact", "map"]
    rows = np.zeros((8000, 1))
    long = type(table)("waves", rows, rows[:, 0], ("a",), ("y",), "regression")
    Runner(spec, budget, {"waves": long}, Results(tmp_path / "b.jsonl")).run()
    assert [fit.method for fit in pretend[2:]] == ["map"]


def test_progress_counts_fits_and_guesses_the_time(spec, table, tmp_path, pretend, monkeypatch):
    monkeypatch.setattr(runner_room.time, "perf_counter", lambda: 5.0 * len(pretend))
    events = []
    run(spec, "standard", table, tmp_path / "results.jsonl", events.append)
    ended = [event for event in events if event.record is not None]
    assert [event.done for event in ended] == [1, 2, 3, 4, 5, 6]
    assert {event.total for event in events} == {6}
    assert events[0].seconds_left is None
    # A try costs 1 epoch × 5² and takes 5 s; left are another one and four fits of 2 × 10².
    assert ended[0].seconds_left == pytest.approx(5 * (1 + 4 * 200 / 25))
    assert ended[-1].seconds_left == pytest.approx(0)


def test_results_survive_a_line_that_was_broken_off(tmp_path):
    path = tmp_path / "deep" / "results.jsonl"
    first, second, third = (Fit("waves", "svgp", split, 10, PROPORTIONS) for split in range(3))
    append_line(path, {"key": first.key(), "error": None, "nll": math.inf})
    with path.open("a", encoding="utf-8") as file:
        file.write(f'{{"key": "{second.key()}", "err')
    append_line(path, {"key": third.key(), "error": None, "array": (1, 2)})
    results = Results(path)
    assert results.finished(first) == {"key": first.key(), "error": None, "nll": None}
    assert results.finished(second) is None
    assert results.finished(third) == {"key": third.key(), "error": None, "array": [1, 2]}
    results.append({"key": third.key(), "error": "later"})
    assert Results(path).finished(third) is None


def test_missing_data_names_the_way_out(monkeypatch):
    monkeypatch.delenv("CANDID_DATA", raising=False)
    with pytest.raises(FileNotFoundError, match=r"cannot load nothing1, nothing2: set .* CANDID_DATA"):
        load_data(["diabetes", "nothing1", "nothing2"])
    with pytest.raises(ValueError, match="iris does not have one real target"):
        load_data(["iris"])


def test_results_on_record_have_the_keys_of_today():
    """A changed default of an estimator must not make finished fits unfinished: change their keys with it."""
    records = [record for path in RESULTS.glob("*/results.jsonl") for record in lines(path)]
    assert records
    settings = ("recipe_version", "data", "method", "split", "proportions", *fit_room.PROTOCOL, "parameters")
    unknown = [
        (record["data"], record["method"], record["split"])
        for record in records
        if key_of({name: record[name] for name in settings if name in record}) != record["key"]
    ]
    assert not unknown
