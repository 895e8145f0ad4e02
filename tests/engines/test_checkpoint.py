from __future__ import annotations

import json
import math
import os
import threading
import time

import pytest
import torch
from safetensors.torch import save_file

from candid.engines import Checkpoint, Plan, Rows, train
from candid.engines import checkpoint as checkpoint_module
from fragile import FragileCheckpoint, Interrupted
from small_models import exact_problem, random_rows, sparse_problem

STATE = {
    "state": {"number": 3, "infinite": math.inf, "nothing": None, "text": "ü", "flag": True},
    "problem": {"integers": torch.tensor([1, 2]), "empty": torch.zeros(0, 3)},
    "steppers": [{0: {"m": torch.arange(4.0), "step": torch.tensor(3.0)}, "list": [1, torch.eye(2).double(), None]}],
    "stopping": {},
    "draws": {},
}


def assert_same(found, expected):
    assert type(found) is type(expected)
    if isinstance(expected, torch.Tensor):
        assert found.dtype == expected.dtype
        assert torch.equal(found, expected)
    elif isinstance(expected, dict):
        assert found.keys() == expected.keys()
        for key in expected:
            assert_same(found[key], expected[key])
    elif isinstance(expected, list):
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            assert_same(one, other)
    else:
        assert found == expected


def test_round_trip(tmp_path):
    checkpoint = Checkpoint(tmp_path / "below" / "run.safetensors")
    assert checkpoint.read() is None
    checkpoint.write(STATE)
    assert_same(checkpoint.read(), STATE)
    assert [path.name for path in checkpoint.path.parent.iterdir()] == ["run.safetensors"]
    checkpoint.delete()
    assert checkpoint.read() is None
    checkpoint.delete()


@pytest.mark.parametrize("content", [b"", b"not a checkpoint", b"\x10\x00\x00\x00\x00\x00\x00\x00{broken"])
def test_a_corrupted_file_counts_as_none(tmp_path, content):
    path = tmp_path / "run"
    path.write_bytes(content)
    assert Checkpoint(path).read() is None


@pytest.mark.parametrize("share", [0.1, 0.5, 0.99])
def test_a_truncated_file_counts_as_none(tmp_path, share):
    checkpoint = Checkpoint(tmp_path / "run")
    checkpoint.write(STATE)
    content = checkpoint.path.read_bytes()
    checkpoint.path.write_bytes(content[: int(share * len(content))])
    assert checkpoint.read() is None


@pytest.mark.parametrize(
    "outline",
    [
        "not json",
        "[" * 100_000,
        "null",
        "[]",
        "3",
        "{}",
        '{"value": 1}',
        '{"value": null}',
        '{"list": []}',
        '{"dict": []}',
        '{"dict": 3}',
        '{"dict": [3]}',
        '{"dict": [[{}, {"value": 1}]]}',
        '{"tensor": "missing"}',
        '{"tensor": []}',
        '{"value": 1, "list": []}',
    ],
    ids=lambda outline: outline[:30],
)
def test_an_outline_of_something_else_counts_as_none(tmp_path, outline):
    save_file({"/a": torch.ones(2)}, tmp_path / "run", metadata={"outline": outline})
    assert Checkpoint(tmp_path / "run").read() is None


def test_a_file_without_an_outline_counts_as_none(tmp_path):
    save_file({"/a": torch.ones(2)}, tmp_path / "run")
    assert Checkpoint(tmp_path / "run").read() is None


def test_an_entry_of_an_unknown_kind_counts_as_none(tmp_path):
    parts = [[name, {"list" if name == "steppers" else "dict": []}] for name in STATE]
    for kind, readable in (("value", True), ("pickle", False)):
        outline = {"dict": [*parts, ["more", {kind: 1}]]}
        save_file({}, tmp_path / "run", metadata={"outline": json.dumps(outline)})
        assert (Checkpoint(tmp_path / "run").read() is not None) == readable


@pytest.mark.parametrize("part", STATE)
def test_a_state_that_lacks_a_part_counts_as_none(tmp_path, part):
    checkpoint = Checkpoint(tmp_path / "run")
    checkpoint.write({name: value for name, value in STATE.items() if name != part})
    assert checkpoint.read() is None
    checkpoint.write({**STATE, part: 3})
    assert checkpoint.read() is None


def test_what_was_read_does_not_change_with_the_file(tmp_path):
    checkpoint = Checkpoint(tmp_path / "run")
    checkpoint.write(STATE)
    found = checkpoint.read()
    with checkpoint.path.open("r+b") as file:
        file.write(b"\xff" * checkpoint.path.stat().st_size)
    assert_same(found, STATE)


def test_a_write_that_fails_leaves_the_old_file(tmp_path, monkeypatch):
    checkpoint = Checkpoint(tmp_path / "run")
    checkpoint.write(STATE)

    def fail(tensors, path, metadata):
        path.write_bytes(b"half")
        raise OSError("no space left")

    monkeypatch.setattr(checkpoint_module, "save_file", fail)
    with pytest.raises(OSError, match="no space"):
        checkpoint.write({**STATE, "state": {"number": 4}})
    assert_same(checkpoint.read(), STATE)
    assert list(tmp_path.iterdir()) == [checkpoint.path]


def test_only_old_half_written_files_are_deleted(tmp_path):
    checkpoint = Checkpoint(tmp_path / "run")
    checkpoint.write(STATE)
    old, fresh, foreign = (tmp_path / name for name in ("run.1.part", "run.2.part", "walk.3.part"))
    for path in (old, fresh, foreign):
        path.write_bytes(b"half")
    for path in (old, foreign):
        os.utime(path, (time.time() - 2 * 3600,) * 2)
    checkpoint.delete()
    assert set(tmp_path.iterdir()) == {fresh, foreign}


def test_a_half_written_file_that_vanishes_meanwhile_does_no_harm(tmp_path, monkeypatch):
    part = tmp_path / "run.1.part"
    monkeypatch.setattr(type(tmp_path), "glob", lambda self, pattern: [part])
    Checkpoint(tmp_path / "run").delete()


def test_a_writer_survives_that_another_one_deletes_and_writes(tmp_path, monkeypatch):
    """Two fits of the same table in two threads: one is about to replace the file when the other one comes along."""
    first, second = Checkpoint(tmp_path / "run"), Checkpoint(tmp_path / "run")
    written, go_on = threading.Event(), threading.Event()
    faults: list[BaseException] = []

    def slow_save(tensors, path, metadata):
        save_file(tensors, path, metadata=metadata)
        if threading.current_thread() is writer:
            written.set()
            go_on.wait(10)

    def write():
        try:
            first.write(STATE)
        except OSError as fault:
            faults.append(fault)

    monkeypatch.setattr(checkpoint_module, "save_file", slow_save)
    writer = threading.Thread(target=write)
    writer.start()
    assert written.wait(10)
    second.write({**STATE, "state": {"number": 4}})
    second.delete()
    go_on.set()
    writer.join()
    assert faults == []
    assert_same(first.read(), STATE)
    assert list(tmp_path.iterdir()) == [first.path]


def test_writing_takes_a_small_share_of_the_time(tmp_path, monkeypatch):
    """A file that took one second to write is due again twenty seconds later."""
    now = [0.0]
    monkeypatch.setattr(checkpoint_module.time, "perf_counter", lambda: now[0])
    monkeypatch.setattr(checkpoint_module, "save_file", lambda tensors, path, metadata: now.__setitem__(0, now[0] + 1))
    monkeypatch.setattr(checkpoint_module.os, "replace", lambda old, new: None)
    checkpoint = Checkpoint(tmp_path / "run")
    assert checkpoint.due()
    checkpoint.write({})
    now[0] += 19.0
    assert not checkpoint.due()
    now[0] += 1.0
    assert checkpoint.due()


def adam_run(dtype, checkpoint=None):
    """Mini-batches with a schedule; the held-out rows disagree with the others, so the best epoch is not the last."""
    rows, others = random_rows(30, seed=1), random_rows(20, seed=4)
    held_out = Rows(others.x, 0.3 * others.y, others.weight).to(dtype)
    problem = sparse_problem(rows, "full", "predictive", beta=0.0, jitter=1e-6, seed=2).to(dtype)
    plan = Plan({"all": "adam"}, 12, 8, lr=0.1, schedule="cosine", patience=4, seed=3)
    history = train(problem, rows.to(dtype), plan, held_out, checkpoint)
    return problem.state_dict(), history


def lbfgs_run(dtype, checkpoint=None):
    rows = random_rows(30, seed=5)
    problem = exact_problem(rows, seed=6).to(dtype)
    history = train(problem, rows.to(dtype), Plan({"all": "lbfgs"}, 8, 30), checkpoint=checkpoint)
    return problem.state_dict(), history


def mixed_run(dtype, checkpoint=None):
    rows = random_rows(30, seed=7)
    problem = sparse_problem(rows, "diagonal", seed=8).to(dtype)
    plan = Plan({"weights": "lbfgs", "points": "adam", "rest": "adam"}, 6, 30, lr=0.02)
    history = train(problem, rows.to(dtype), plan, checkpoint=checkpoint)
    return problem.state_dict(), history


RUNS = {
    "adam": (adam_run, torch.float64, (1, 2, 17)),
    "adam in float32": (adam_run, torch.float32, (9,)),
    "lbfgs": (lbfgs_run, torch.float64, (1, 2, 3)),
    "lbfgs in float32": (lbfgs_run, torch.float32, (2,)),
    "mixed": (mixed_run, torch.float64, (3,)),
}


@pytest.mark.parametrize(
    ("run", "dtype", "last"),
    [(run, dtype, last) for run, dtype, stops in RUNS.values() for last in stops],
    ids=[f"{name}, {last}" for name, (_, _, stops) in RUNS.items() for last in stops],
)
def test_a_resumed_run_ends_with_the_same_bits(run, dtype, last, tmp_path):
    expected, history = run(dtype)
    path = tmp_path / "run"
    with pytest.raises(Interrupted):
        run(dtype, FragileCheckpoint(path, last))
    found, resumed = run(dtype, Checkpoint(path))
    assert expected.keys() == found.keys()
    for name in expected:
        assert torch.equal(found[name], expected[name]), name
    timeless = [[{k: v for k, v in r.items() if k != "seconds"} for r in records] for records in (resumed, history)]
    assert timeless[0] == timeless[1]


def test_the_interruption_was_in_the_middle(tmp_path):
    """Otherwise the test above would prove nothing."""
    for run, dtype, stops in RUNS.values():
        for last in stops:
            path = tmp_path / f"{run.__name__}-{dtype}-{last}"
            with pytest.raises(Interrupted):
                run(dtype, FragileCheckpoint(path, last))
            state = Checkpoint(path).read()["state"]
            assert state["step"] == last
            assert not state["finished"]


def test_a_run_that_dies_twice(tmp_path):
    expected, _ = adam_run(torch.float64)
    path = tmp_path / "run"
    for last in (5, 11):
        with pytest.raises(Interrupted):
            adam_run(torch.float64, FragileCheckpoint(path, last))
    found, _ = adam_run(torch.float64, Checkpoint(path))
    assert all(torch.equal(found[name], expected[name]) for name in expected)


def test_a_finished_run_is_not_trained_again(tmp_path):
    checkpoint = Checkpoint(tmp_path / "run")
    expected, history = adam_run(torch.float64, checkpoint)
    assert checkpoint.read()["state"]["finished"]
    found, again = adam_run(torch.float64, checkpoint)
    assert all(torch.equal(found[name], expected[name]) for name in expected)
    assert again == history


@pytest.mark.parametrize("content", ["garbage", "another state"])
def test_training_starts_anew_beside_a_file_it_cannot_use(content, tmp_path):
    path = tmp_path / "run"
    if content == "garbage":
        path.write_bytes(b"garbage")
    else:
        Checkpoint(path).write({"step": 3, "weights": torch.ones(2)})
    expected, _ = adam_run(torch.float64)
    found, _ = adam_run(torch.float64, Checkpoint(path))
    assert all(torch.equal(found[name], expected[name]) for name in expected)
    assert Checkpoint(path).read()["state"]["finished"]
