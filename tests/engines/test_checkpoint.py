from __future__ import annotations

import math

import pytest
import torch

from candid.engines import Checkpoint, Plan, Rows, train
from candid.engines import checkpoint as checkpoint_module
from small_models import exact_problem, random_rows, sparse_problem

STATE = {
    "number": 3,
    "infinite": math.inf,
    "nothing": None,
    "text": "ü",
    "flag": True,
    "nested": {0: {"m": torch.arange(4.0), "step": torch.tensor(3.0)}, "list": [1, torch.eye(2).double(), None]},
    "integers": torch.tensor([1, 2]),
    "empty": torch.zeros(0, 3),
}


class Interrupted(Exception):
    """What a test raises instead of pulling the plug."""


class FragileCheckpoint(Checkpoint):
    """Writes after every step, and dies after the ``last`` one."""

    def __init__(self, path, last: int) -> None:
        super().__init__(path)
        self.left = last

    def due(self) -> bool:
        return True

    def write(self, state) -> None:
        super().write(state)
        self.left -= 1
        if self.left == 0:
            raise Interrupted


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


def test_a_write_that_fails_leaves_the_old_file(tmp_path, monkeypatch):
    checkpoint = Checkpoint(tmp_path / "run")
    checkpoint.write({"step": 1})

    def fail(tensors, path, metadata):
        path.write_bytes(b"half")
        raise OSError("no space left")

    monkeypatch.setattr(checkpoint_module, "save_file", fail)
    with pytest.raises(OSError, match="no space"):
        checkpoint.write({"step": 2})
    assert checkpoint.read() == {"step": 1}


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
    plan = Plan({"weights": "lbfgs", "rest": "adam"}, 6, 30, lr=0.02)
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


def test_training_starts_anew_beside_a_corrupted_file(tmp_path):
    path = tmp_path / "run"
    path.write_bytes(b"garbage")
    expected, _ = adam_run(torch.float64)
    found, _ = adam_run(torch.float64, Checkpoint(path))
    assert all(torch.equal(found[name], expected[name]) for name in expected)
    assert Checkpoint(path).read()["state"]["finished"]
