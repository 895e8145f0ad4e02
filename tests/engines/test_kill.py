"""A fit that is killed and called again ends where it would have ended without the interruption, bit for bit.

Run as a script, this file is the supervisor: a process that has imported everything, computes nothing itself, forks
the fits and kills them with SIGKILL.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch

import candid
from candid.estimators import fingerprint
from candid.estimators.inputs import Table
from candid.kernels import Matern52

N_ROWS = 240
N_SINGLE_KILLS, N_EXACT_KILLS, N_KILLS_IN_A_ROW = 5, 2, 3


def make_table(seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(N_ROWS, 4))
    return X, np.sin(X @ [1.0, 0.5, 0.0, -1.0]) + 0.1 * rng.normal(size=N_ROWS)


def make_model(kind: str, **parameters):
    if kind == "exact":
        return candid.ExactGPRegressor(max_epochs=12, n_restarts=3, random_state=3, **parameters)
    return candid.make_gp(
        "ppgpr-chol",
        **{
            "n_inducing": 40,
            "batch_size": 60,
            "max_epochs": 40,
            "lr": 0.02,
            "n_restarts": 2,
            "validation_fraction": 0.1,
            "patience": 30,
            "random_state": 3,
            **parameters,
        },
    )


# The supervisor


def fork_fit(kind: str, checkpoints: Path, result: Path) -> int:
    """Start a fit in a child process; it writes its tensors and how many epochs it went through."""
    child = os.fork()
    if child:
        return child
    epochs: list[int] = []
    gp = make_model(kind, checkpoint_dir=str(checkpoints), callbacks=(lambda record: epochs.append(record["epoch"]),))
    gp.fit(*make_table())
    tensors = {name: tensor.numpy() for name, tensor in gp.predictor_.state_dict().items()}
    losses = [record["loss"] for record in gp.history_]
    np.savez(result, n_epochs=len(epochs), losses=losses, **tensors)
    os._exit(0)


def kill_fit(kind: str, checkpoints: Path, result: Path, delay: float) -> bool:
    """Kill a fit so many seconds after its first checkpoint (or the one it goes on from) is there."""
    child = fork_fit(kind, checkpoints, result)
    while not any(checkpoints.glob("*.safetensors")):
        time.sleep(0.001)
    time.sleep(delay)
    os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    killed = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
    return killed and any(checkpoints.glob("*.safetensors"))


def finish_fit(kind: str, checkpoints: Path, result: Path) -> float:
    start = time.perf_counter()
    _, status = os.waitpid(fork_fit(kind, checkpoints, result), 0)
    assert status == 0, f"the fit ended with status {status}"
    return time.perf_counter() - start


def supervise(folder: Path) -> None:
    # Torch imports this at its first optimisation; here once for all children.
    import torch._dynamo  # noqa: F401

    chance = random.Random(0)
    duration = {
        kind: finish_fit(kind, folder / f"c-{kind}", folder / f"{kind}-reference.npz") for kind in ("sparse", "exact")
    }
    kinds = ["sparse"] * (N_SINGLE_KILLS + 1) + ["exact"] * N_EXACT_KILLS
    kills = []
    for cycle, kind in enumerate(kinds):
        in_a_row = N_KILLS_IN_A_ROW if cycle == 0 else 1
        killed = 0
        while killed < in_a_row:
            delay = chance.uniform(0.2, 0.8) * duration[kind] / in_a_row
            # A fit that was faster than the kill has left nothing to resume: once more.
            killed += kill_fit(kind, folder / f"c-{cycle}", folder / f"{kind}-{cycle}.npz", delay)
        kills.append({"kind": kind, "kills": killed, "left": [p.name for p in (folder / f"c-{cycle}").iterdir()]})
        finish_fit(kind, folder / f"c-{cycle}", folder / f"{kind}-{cycle}.npz")
    (folder / "kills.json").write_text(json.dumps(kills))


# The tests


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("kill")
    source = Path(candid.__file__).parents[1]
    environment = {**os.environ, "PYTHONPATH": str(source), "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    subprocess.run([sys.executable, __file__, str(folder)], check=True, timeout=300, env=environment)
    return folder


@pytest.fixture(scope="module")
def cycles(folder):
    return json.loads((folder / "kills.json").read_text())


def test_ten_fits_were_killed_and_left_a_checkpoint(cycles):
    assert sum(cycle["kills"] for cycle in cycles) == 10
    for cycle in cycles:
        assert any(name.endswith(".safetensors") for name in cycle["left"])


def test_the_resumed_fits_end_with_the_tensors_of_an_uninterrupted_one(folder, cycles):
    for number, cycle in enumerate(cycles):
        with (
            np.load(folder / f"{cycle['kind']}-reference.npz") as wanted,
            np.load(folder / f"{cycle['kind']}-{number}.npz") as got,
        ):
            assert wanted.keys() == got.keys()
            for name in wanted.keys() - {"n_epochs"}:
                np.testing.assert_array_equal(got[name], wanted[name], err_msg=f"{cycle['kind']} {number}: {name}")


def test_they_did_not_start_anew(folder, cycles):
    """A resumed fit goes through fewer epochs."""
    names = [f"{cycle['kind']}-{number}" for number, cycle in enumerate(cycles) if cycle["kind"] == "sparse"]
    resumed, whole = ([_epochs(folder / f"{name}.npz") for name in some] for some in (names, ["sparse-reference"]))
    assert max(resumed) <= whole[0]
    assert min(resumed) < whole[0]


def _epochs(path: Path) -> int:
    with np.load(path) as fit:
        return int(fit["n_epochs"])


def test_no_checkpoint_is_left_behind(folder, cycles):
    for number in range(len(cycles)):
        assert list((folder / f"c-{number}").glob("*.safetensors")) == []
    assert list((folder / "c-sparse").iterdir()) == []


class Interrupted(Exception):
    pass


def fit_until(epoch: int, folder: Path, kind: str = "sparse", table=None, weight=None, **parameters) -> list[int]:
    """Fit, break off at an epoch, and tell which epochs were gone through."""
    seen: list[int] = []

    def watch(record):
        seen.append(record["epoch"])
        if record["epoch"] >= epoch:
            raise Interrupted

    gp = make_model(kind, checkpoint_dir=str(folder), callbacks=(watch,), **parameters)
    with pytest.raises(Interrupted):
        gp.fit(*(make_table() if table is None else table), sample_weight=weight)
    return seen


SMALL = {"n_restarts": 1, "patience": None, "validation_fraction": 0.0}


def test_the_same_fit_resumes(tmp_path):
    assert fit_until(8, tmp_path, **SMALL)[0] == 0
    assert fit_until(12, tmp_path, **SMALL)[0] > 1


def slightly_changed(array: np.ndarray) -> np.ndarray:
    """One entry in the middle differs in its last digits: what prints look like stays the same."""
    changed = array.copy()
    changed[len(changed) // 2] *= 1 + 1e-12
    return changed


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({}, {"n_inducing": 41}),
        ({}, {"random_state": 4}),
        ({}, {"lr": 0.021}),
        ({}, {"max_epochs": 41}),
        ({}, {"kernel": "rbf"}),
        ({"kernel": Matern52(lengthscale=1.0)}, {"kernel": Matern52(lengthscale=1.0001)}),
        ({}, {"table": make_table(1)}),
        ({}, {"table": (slightly_changed(make_table()[0]), make_table()[1])}),
        ({}, {"table": (make_table()[0], slightly_changed(make_table()[1]))}),
        ({}, {"weight": slightly_changed(np.ones(N_ROWS))}),
        ({"alpha": np.full(N_ROWS, 0.01)}, {"alpha": slightly_changed(np.full(N_ROWS, 0.01))}),
        ({"init": make_table()[0]}, {"init": slightly_changed(make_table()[0])}),
    ],
    ids=[
        "number of points",
        "seed",
        "learning rate",
        "epochs",
        "kernel",
        "digits of a kernel",
        "table",
        "digit of X",
        "digit of y",
        "weight",
        "noise",
        "inducing points",
    ],
)
def test_another_fit_does_not_resume(before, after, tmp_path):
    assert fit_until(4, tmp_path, **{**SMALL, **before})[0] == 0
    assert fit_until(2, tmp_path, **{**SMALL, **before, **after})[0] == 0
    assert len(list(tmp_path.glob("*.safetensors"))) == 2


@pytest.mark.parametrize("change", [{"verbose": False}, {"n_threads": 1}, {"predict_dtype": "float32"}], ids=str)
def test_what_does_not_change_the_result_does_not_prevent_resuming(change, tmp_path):
    fit_until(8, tmp_path, **SMALL)
    assert fit_until(12, tmp_path, **SMALL, **change)[0] > 1


def test_continued_training_and_a_fit_of_all_rows_do_not_share_a_checkpoint(tmp_path):
    X, y = make_table()
    gp = make_model("sparse", **SMALL).fit(X[:200], y[:200])
    gp.set_params(checkpoint_dir=str(tmp_path), callbacks=(lambda record: record["epoch"] and 1 / 0,))
    with pytest.raises(ZeroDivisionError):
        gp.partial_fit(X[200:], y[200:])
    assert len(list(tmp_path.glob("*.safetensors"))) == 1
    assert fit_until(2, tmp_path, **SMALL)[0] == 0


def test_a_damaged_checkpoint_is_ignored(tmp_path):
    fit_until(8, tmp_path, **SMALL)
    (path,) = tmp_path.glob("*.safetensors")
    path.write_bytes(path.read_bytes()[:1000])
    assert fit_until(2, tmp_path, **SMALL)[0] == 0


def change_version(monkeypatch, package: str) -> None:
    if package == "torch":
        monkeypatch.setattr(torch, "__version__", "1.0.0")
    else:
        monkeypatch.setattr(fingerprint.metadata, "version", lambda name: {"candid-gp": "0.0.1"}[name])


@pytest.mark.parametrize("package", ["candid", "torch"])
def test_the_key_contains_the_version(package, tmp_path, monkeypatch):
    X, y = make_table()
    gp, table = make_model("sparse", checkpoint_dir=str(tmp_path)), Table(X, y[:, None], np.ones(N_ROWS), None, True)
    before, again = (fingerprint.checkpoint_of(gp, table, [0]).path for _ in range(2))
    change_version(monkeypatch, package)
    assert before == again
    assert fingerprint.checkpoint_of(gp, table, [0]).path != before


def test_a_checkpoint_of_another_version_is_not_picked_up(tmp_path, monkeypatch):
    fit_until(8, tmp_path, **SMALL)
    change_version(monkeypatch, "candid")
    assert fit_until(2, tmp_path, **SMALL)[0] == 0


def test_checkpoints_work_where_candid_is_only_on_the_path(tmp_path, monkeypatch):
    def missing(name):
        raise fingerprint.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(fingerprint.metadata, "version", missing)
    fit_until(8, tmp_path, **SMALL)
    assert fit_until(12, tmp_path, **SMALL)[0] > 1


def test_what_another_process_is_writing_is_left_alone(tmp_path):
    fit_until(8, tmp_path, **SMALL)
    (path,) = tmp_path.glob("*.safetensors")
    part = path.with_name(f"{path.name}.123.part")
    part.write_bytes(b"half")
    make_model("sparse", checkpoint_dir=str(tmp_path), **SMALL).fit(*make_table())
    assert list(tmp_path.iterdir()) == [part]


def test_half_written_files_of_killed_runs_are_removed(tmp_path):
    fit_until(8, tmp_path, **SMALL)
    (path,) = tmp_path.glob("*.safetensors")
    part = path.with_name(f"{path.name}.123.part")
    part.write_bytes(b"half")
    os.utime(part, (time.time() - 2 * 3600,) * 2)
    make_model("sparse", checkpoint_dir=str(tmp_path), **SMALL).fit(*make_table())
    assert list(tmp_path.iterdir()) == []


if __name__ == "__main__":
    supervise(Path(sys.argv[1]))
