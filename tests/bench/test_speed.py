"""The speed benchmark compares like with like, and counts honestly."""

from __future__ import annotations

from contextlib import nullcontext
from functools import partial

import numpy as np
import pytest
import torch

from candid.bench import Goal, default_goals, measure, step_costs
from candid.bench import contenders as contenders_room
from candid.bench.case import Case, Sample
from candid.bench.contenders import ACTIVITIES, gpytorch_action, our_action
from candid.bench.speed import Measurement, all_goals, machine_rate
from candid.bench.step_costs import decoupled_steps
from candid.bench.timing import Stopwatch, interleaved_medians, turns_of
from candid.methods import METHODS

TIMED = [name for name in ("svgp", "ppgpr-chol", "ppgpr-mf", "ppgpr-delta", "ppgpr-mfd") if name in METHODS]
CASES = {method: Case(method, n_inducing=12, n_features=3, batch_size=40) for method in TIMED}


@pytest.mark.parametrize("method", [*TIMED, "dspp-qr3"])
def test_both_sides_take_the_same_steps(method):
    case = CASES.get(method, Case(method, 12, 3, 40, hidden_width=2, n_sites=4))
    sample = Sample.draw(case, n_new=30)
    losses = [
        [step() for _ in range(20)] for step in (act("step", case, sample) for act in (our_action, gpytorch_action))
    ]
    # GPyTorch starts q(u) at the prior with 0.001 of noise, and adds a jitter of 1e-4.
    assert losses[0][0] == pytest.approx(losses[1][0], rel=0.01)
    assert losses[0][-1] == pytest.approx(losses[1][-1], rel=0.01)
    assert losses[0][-1] < losses[0][0]


def test_sampled_layers_of_both_sides_are_alike():
    """Their random numbers are not ours: losses differ by chance."""
    case = Case("dgp", 12, 3, 40, hidden_width=2, n_sites=30)
    sample = Sample.draw(case, n_new=3)
    ours, theirs = (act("step", case, sample)() for act in (our_action, gpytorch_action))
    assert ours == pytest.approx(theirs, rel=0.1)


@pytest.mark.parametrize("activity", ["predict32", "predict64"])
@pytest.mark.parametrize("method", TIMED)
def test_both_sides_predict_the_same(method, activity):
    case = CASES[method]
    sample = Sample.draw(case, n_new=30)
    mean, variance = our_action(activity, case, sample)()
    foreign_mean, foreign_variance = gpytorch_action(activity, case, sample)()
    assert mean.dtype == {"predict32": torch.float32, "predict64": torch.float64}[activity]
    torch.testing.assert_close(mean.squeeze(-1).float(), foreign_mean, atol=0.02, rtol=0)
    torch.testing.assert_close(variance.squeeze(-1).float(), foreign_variance, atol=0.02, rtol=0)


def test_one_row_through_predictor_and_estimator():
    case = CASES["ppgpr-chol"]
    sample = Sample.draw(case, n_new=5)
    latent_mean, latent_variance = our_action("row", case, sample)()
    mean, std = our_action("row_estimator", case, sample)()
    assert latent_mean.shape == (1, 1)
    assert float(latent_mean) == pytest.approx(mean.item(), rel=1e-9)
    assert float(latent_variance) < std.item() ** 2
    assert gpytorch_action("row", case, sample)()[0].shape == (1,)


def test_measurements_without_gpytorch(monkeypatch):
    monkeypatch.setattr(contenders_room, "find_spec", lambda name: None)
    (entry,) = measure([Goal("predict64", CASES["svgp"], 3.0)], repeats=1, n_new=5)
    assert entry.gpytorch is None
    assert entry.ratio is None
    assert not entry.reached
    assert min(entry.ours, entry.gemm_rate, entry.flops) > 0


def test_measurements_with_gpytorch():
    told = []
    (entry,) = measure([Goal("step", CASES["ppgpr-chol"])], repeats=1, n_new=5, tell=told.append)
    assert entry.gpytorch > 0
    assert entry.ratio == pytest.approx(entry.gpytorch / entry.ours)
    assert "ppgpr-chol" in told[0]


def test_ratios_targets_and_limits():
    goal = Goal("step", Case("svgp", 1000, 26), 2.8)
    entry = Measurement(goal, ours=0.1, gpytorch=0.3, flops=5e9, gemm_rate=1e11)
    assert entry.ratio == pytest.approx(3.0)
    assert entry.reached
    assert not Measurement(goal, 0.1, 0.27, 5e9, 1e11).reached
    assert entry.limit(1e11) == pytest.approx(0.05)
    double = Measurement(Goal("predict64", goal.case), 0.1, 0.3, None, 4e10)
    assert double.limit(4e10) is None
    assert machine_rate([entry, double], torch.float32) == 1e11
    assert machine_rate([entry, double], torch.float64) == 4e10


def test_flops():
    # At M = B = 1000, D = 26: 6 or 3 GF with the batch, 1.67 GF for the cubic part, 0.26 GF for distances.
    assert Case("svgp", 1000, 26).step_flops() == pytest.approx(7.927e9, rel=1e-3)
    assert Case("ppgpr-mf", 1000, 26).step_flops() == pytest.approx(4.927e9, rel=1e-3)
    # For 2000 rows two triangles of M²n, and 2 MnD for distances.
    assert Case("ppgpr-chol", 1000, 26).predict_flops(2000) == pytest.approx(2.104e9, rel=1e-3)
    assert Case("ppgpr-mf", 1000, 26).predict_flops(2000) == pytest.approx(2.104e9, rel=1e-3)


def test_points_of_the_mean_cost_no_products_with_the_batch():
    # 4.93 GF for the variance, 1.93 GF for the mean.
    assert Case("ppgpr-mfd", 1000, 26).step_flops() == pytest.approx(6.853e9, rel=1e-3)


def test_layers_cost_as_much_as_their_gps():
    # Five hidden GPs, and one on top of them that sees ten times as many rows.
    hidden, last = Case("ppgpr-mf", 300, 8), Case("ppgpr-mf", 300, 5, batch_size=10_000)
    assert Case("dspp-qr3", 300, 8).step_flops() == pytest.approx(5 * hidden.step_flops() + last.step_flops())
    assert Case("dgp", 300, 8).step_flops() > 1.7 * Case("dspp-qr3", 300, 8).step_flops()


def test_contenders_take_turns():
    calls = []
    interleaved_medians({name: turns_of(partial(calls.append, name)) for name in "ab"}, repeats=3, warm_up=1, turn=0.0)
    assert calls == ["a", "b", "a", "b", "a", "b", "a", "b"]


def test_short_calls_fill_their_turn(monkeypatch):
    clock = iter(range(1000))
    monkeypatch.setattr("candid.bench.timing.time.perf_counter", lambda: float(next(clock)))
    calls = []
    medians = interleaved_medians({"a": turns_of(partial(calls.append, "a"))}, repeats=2, warm_up=0, turn=3.0)
    assert len(calls) == 6
    assert medians == {"a": 1.0}


def test_a_stopwatch_counts_only_while_it_runs(monkeypatch):
    times = iter([10.0, 12.0, 20.0, 21.0, 24.0])
    monkeypatch.setattr("candid.bench.timing.time.perf_counter", lambda: next(times))
    watch = Stopwatch()
    assert watch.seconds == 0
    watch.start()
    watch.stop()
    assert watch.seconds == 2.0
    watch.start()
    assert watch.seconds == 3.0
    watch.stop()
    assert watch.seconds == 6.0


def test_default_goals():
    sizes = {goal.case.n_inducing for goal in default_goals()}
    assert sizes == {100, 300, 1000}
    assert {goal.case.n_inducing for goal in default_goals(quick=True)} == {100, 300}
    assert {goal.activity for goal in default_goals()} == set(ACTIVITIES)
    targets = {(goal.activity, goal.case.method, goal.case.n_inducing): goal.times for goal in default_goals()}
    assert targets["step", "ppgpr-chol", 1000] == 2.8
    assert targets["step", "svgp", 100] == 2.5
    assert targets["step", "dspp-qr3", 300] == targets["step", "dgp", 300] == 5
    assert targets["row", "ppgpr-chol", 1000] == 10
    own = all_goals([6, 9], 2, 20)
    assert {goal.case.n_inducing for goal in own} == {6, 9}
    assert {goal.times for goal in own} == {None}


def test_sample_is_shared_and_repeatable():
    first, second = (Sample.draw(CASES["svgp"], n_new=4) for _ in range(2))
    np.testing.assert_array_equal(first.points, second.points)
    assert first.new_x.shape == (4, 3)


def test_steps_of_decoupled_conditionals_are_those_of_a_fit():
    """With other draws of Ω in every step, and a lower loss after some."""
    for step in decoupled_steps(n_inducing=12, n_features=3, batch_size=40):
        act = our_action("step", step.case, Sample.draw(step.case, n_new=1))
        losses = [act() for _ in range(20)]
        assert losses[-1] < losses[0]


def test_costs_of_steps(monkeypatch):
    seconds = {"svgp": 0.01, "dcsvgp": 0.015, "dcsvgp with Ω": 0.031, "dcppgpr": 0.015, "dcppgpr with Ω": 0.03}
    monkeypatch.setattr(step_costs, "own_process", lambda make, case: nullcontext())
    monkeypatch.setattr(
        step_costs, "interleaved_medians", lambda turns, repeats: {name: seconds[name] for name in turns}
    )
    told = []
    costs = step_costs.measure_steps(decoupled_steps(500, 8, 1024), tell=told.append)
    assert [cost.times for cost in costs] == pytest.approx([1.0, 1.5, 3.1, 1.5, 3.0])
    assert [cost.reached for cost in costs] == [False, True, False, False, False]
    assert "dcsvgp with Ω, M = 500, batches of 1,024 rows" in told[2]
