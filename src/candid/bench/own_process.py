"""GPyTorch in a process of its own, where it runs as it comes.

How a process keeps the memory that it frees is a setting of all of it, and ours is part of why our steps are short.
In one process with us, GPyTorch would have it, too.
"""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from types import TracebackType

import torch

from candid.bench.case import Case, Sample
from candid.bench.contenders import gpytorch_action
from candid.bench.timing import Turn, turns_of

__all__ = ["OwnProcess"]


class OwnProcess:
    """A context in which turns of GPyTorch happen elsewhere, on as many threads as here; it prepares one at a time."""

    def __enter__(self) -> OwnProcess:
        threads = (torch.get_num_threads(),)
        self._pool = ProcessPoolExecutor(1, get_context("spawn"), initializer=torch.set_num_threads, initargs=threads)
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._pool.shutdown()

    def turns_of(self, activity: str, case: Case, n_new: int) -> Turn:
        """Turns of GPyTorch at this activity."""
        self._pool.submit(_prepare, activity, case, n_new).result()
        return lambda turn: self._pool.submit(_take_turn, turn).result()


_prepared: list[Turn] = []


def _prepare(activity: str, case: Case, n_new: int) -> None:
    action = gpytorch_action(activity, case, Sample.draw(case, n_new))
    assert action is not None
    _prepared[:] = [turns_of(action)]


def _take_turn(turn: float) -> float:
    return _prepared[0](turn)
