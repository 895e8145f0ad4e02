from __future__ import annotations

import math
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
import torch

from candid.engines import SCHEDULES, Checkpoint, Plan, TrainingDiverged, train
from candid.engines import loop as loop_module
from small_models import exact_problem, random_rows, sparse_problem

ROWS = random_rows(30, seed=1)


def problem(**options):
    return sparse_problem(ROWS, seed=2, **options)


def tensors(module):
    return {name: tensor.clone() for name, tensor in module.state_dict().items()}


def same(one, other) -> bool:
    return all(torch.equal(one[name], other[name]) for name in one)


@pytest.fixture
def ticking_clock(monkeypatch):
    """A clock that is one second later whenever it is read."""
    now = [0.0]

    def read() -> float:
        now[0] += 1.0
        return now[0]

    monkeypatch.setattr(loop_module, "time", SimpleNamespace(perf_counter=read))


def test_training_lowers_the_loss():
    model = problem()
    before = model.loss(ROWS.whole()).item()
    train(model, ROWS, Plan({"all": "adam"}, 40, 10, lr=0.03))
    assert model.loss(ROWS.whole()).item() < before - 0.3


def test_the_history_has_a_record_for_each_epoch():
    model = problem()
    history = train(model, ROWS, Plan({"all": "adam"}, 3, 8, lr=0.01, offset=5.0), random_rows(9, seed=3))
    assert [record["epoch"] for record in history] == [1, 2, 3]
    assert [record["step"] for record in history] == [4, 8, 12]
    assert history[-1]["validation_nll"] == pytest.approx(model.held_out_nll(random_rows(9, seed=3)) + 5.0)
    assert sorted(record["seconds"] for record in history) == [record["seconds"] for record in history]


def test_recorded_losses_are_averages_over_the_epoch():
    seen = []
    model = problem()
    original = model.loss
    model.loss = lambda batch: seen.append(original(batch)) or seen[-1]
    history = train(model, ROWS, Plan({"all": "adam"}, 2, 10, lr=0.01, offset=2.0))
    losses = [loss.item() for loss in seen]
    assert history[0]["loss"] == pytest.approx(sum(losses[:3]) / 3 + 2.0)
    assert history[1]["loss"] == pytest.approx(sum(losses[3:]) / 3 + 2.0)


def test_the_same_seed_gives_the_same_bits():
    found = []
    for seed in (7, 7, 8):
        torch.manual_seed(len(found))
        model = problem()
        train(model, ROWS, Plan({"all": "adam"}, 3, 8, seed=seed))
        found.append(tensors(model))
    assert same(found[0], found[1])
    assert not same(found[0], found[2])


def test_early_stopping_restores_the_best_epoch(monkeypatch):
    """Held-out scores 3, 2, 1, 2, 2.5: with a patience of two, epoch 3 wins and epoch 5 is the last."""
    scores = iter([3.0, 2.0, 1.0, 2.0, 2.5, 0.0])
    model = problem()
    monkeypatch.setattr(model, "held_out_nll", lambda rows: next(scores))
    states = []
    plan = Plan({"all": "adam"}, 20, 10, lr=0.05, patience=2)
    history = train(model, ROWS, plan, ROWS, callbacks=[lambda record: states.append(tensors(model))])
    assert len(history) == 5
    assert same(tensors(model), states[2])
    assert not same(states[2], states[4])


def test_without_patience_the_last_epoch_stays(monkeypatch):
    scores = iter([1.0, 2.0, 3.0, 4.0])
    model = problem()
    monkeypatch.setattr(model, "held_out_nll", lambda rows: next(scores))
    states = []
    plan = Plan({"all": "adam"}, 4, 10, lr=0.05)
    train(model, ROWS, plan, ROWS, callbacks=[lambda record: states.append(tensors(model))])
    assert len(states) == 4
    assert same(tensors(model), states[3])


def test_the_best_epoch_is_kept_when_training_runs_out_of_epochs(monkeypatch):
    scores = iter([2.0, 1.0, 1.5])
    model = problem()
    monkeypatch.setattr(model, "held_out_nll", lambda rows: next(scores))
    states = []
    plan = Plan({"all": "adam"}, 3, 10, lr=0.05, patience=10)
    train(model, ROWS, plan, ROWS, callbacks=[lambda record: states.append(tensors(model))])
    assert same(tensors(model), states[1])


def test_an_epoch_that_is_only_as_good_is_no_progress(monkeypatch):
    model = problem()
    monkeypatch.setattr(model, "held_out_nll", lambda rows: 1.0)
    assert len(train(model, ROWS, Plan({"all": "adam"}, 20, 10, patience=3), ROWS)) == 4


def test_the_time_budget_ends_training_within_an_epoch(ticking_clock):
    """The clock starts at 1 and is read once after each step, so five seconds are five steps of ten an epoch."""
    history = train(problem(), ROWS, Plan({"all": "adam"}, 100, 3, time_budget=5.0))
    assert [record["step"] for record in history] == [5]
    assert history[0]["epoch"] == 1
    assert history[0]["seconds"] == 5.0


def test_the_learning_rate_decays_over_the_time_that_there_is(ticking_clock):
    """After eight of ten seconds four fifths of the schedule are done, however many steps were planned."""
    history = train(problem(), ROWS, Plan({"all": "adam"}, 1000, 30, lr=1.0, schedule="cosine", time_budget=10.0))
    assert [record["seconds"] for record in history] == [float(second) for second in range(1, 11)]
    assert history[8]["lr"] == pytest.approx(SCHEDULES["cosine"](0.8))


def test_families_are_refreshed_before_every_step(monkeypatch):
    model = problem()
    steps = []
    monkeypatch.setattr(type(model.family), "refresh", lambda self, step: steps.append(step))
    train(model, ROWS, Plan({"all": "adam"}, 2, 10))
    assert steps == list(range(6))


def test_the_time_budget_covers_what_is_resumed(ticking_clock, tmp_path):
    class Interrupted(Exception):
        pass

    def interrupt(record):
        if record["epoch"] == 2:
            raise Interrupted

    class Eager(Checkpoint):
        def due(self) -> bool:
            return True

    plan = Plan({"all": "adam"}, 100, 10, time_budget=9.0)
    with pytest.raises(Interrupted):
        train(problem(), ROWS, plan, checkpoint=Eager(tmp_path / "run"), callbacks=[interrupt])
    history = train(problem(), ROWS, plan, checkpoint=Checkpoint(tmp_path / "run"))
    assert history[-1]["seconds"] == pytest.approx(9.0)
    assert history[-1]["step"] == 9


def test_a_callback_can_stop_training():
    seen = []

    def stop(record):
        return record["epoch"] == 3

    history = train(problem(), ROWS, Plan({"all": "adam"}, 20, 10), callbacks=[stop, seen.append])
    assert len(history) == 3
    assert seen == history


def test_convergence_ends_training():
    history = train(exact_problem(ROWS, seed=3), ROWS, Plan({"all": "lbfgs"}, 500, 30))
    assert len(history) < 100


def test_with_everything_fixed_there_is_nothing_to_do():
    model = exact_problem(ROWS)
    model.requires_grad_(False)
    before = tensors(model)
    assert train(model, ROWS, Plan({"all": "adam"}, 5, 10)) == []
    assert same(before, tensors(model))


@pytest.mark.parametrize("stepper", ["adam", "lbfgs"])
@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_loss_that_is_no_number_is_an_error(stepper, value):
    model = problem()
    original, calls = model.loss, []

    def loss(batch):
        calls.append(1)
        return original(batch) * (value if len(calls) > 3 or stepper == "lbfgs" else 1.0)

    model.loss = loss
    with pytest.raises(TrainingDiverged, match=r"the loss became (nan|inf) at step .*smaller lr \(now 0.02\)"):
        train(model, ROWS, Plan({"all": stepper}, 5, 10, lr=0.02))


def test_no_gradients_are_left_behind():
    model = problem()
    train(model, ROWS, Plan({"all": "adam"}, 1, 10))
    assert all(parameter.grad is None for parameter in model.parameters())


@pytest.mark.parametrize("n_rows", [30, 1000])
def test_training_that_makes_things_worse_is_undone(n_rows):
    """On many rows, with a warning."""
    rows = random_rows(n_rows, seed=1)
    model = sparse_problem(rows, seed=2)
    train(model, rows, Plan({"all": "adam"}, 20, n_rows // 3, lr=0.05))
    before, loss = tensors(model), model.standing(rows)
    told = r"made the loss worse, from .* left where it started; try a smaller lr"
    with pytest.warns(UserWarning, match=told) if n_rows == 1000 else nullcontext():
        history = train(model, rows, Plan({"all": "adam"}, 2, n_rows // 3, lr=3.0, with_start=True))
    assert [record["epoch"] for record in history] == [0, 1, 2, 2]
    assert history[2]["loss"] > history[0]["loss"] == history[3]["loss"] == pytest.approx(loss)
    assert same(tensors(model), before)


def test_the_history_can_begin_with_the_start():
    model = problem()
    loss = model.standing(ROWS)
    history = train(model, ROWS, Plan({"all": "adam"}, 3, 10, lr=0.01, with_start=True, spent=7.0, offset=1.5))
    assert [record["epoch"] for record in history] == [0, 1, 2, 3]
    assert history[0] == {"epoch": 0, "step": 0, "loss": loss + 1.5, "lr": 0.0, "seconds": 7.0}
    assert history[1]["seconds"] > 7.0


def test_steps_may_end_within_an_epoch():
    history = train(problem(), ROWS, Plan({"all": "adam"}, 5, 10, max_steps=4))
    assert [(record["epoch"], record["step"]) for record in history] == [(1, 3), (2, 4)]


def test_groups_have_rates_of_their_own():
    """With a rate of zero for one group, only the other one moves."""
    model, start = problem(), problem()
    steppers = {"weights": "adam", "points": "adam", "rest": "adam"}
    train(model, ROWS, Plan(steppers, 2, 10, lr=0.03, rates={"weights": 0.0}))
    for (name, after), before in zip(model.named_parameters(), start.parameters(), strict=True):
        assert torch.equal(after, before) == name.startswith("family.weights")
