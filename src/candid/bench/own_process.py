"""A contender in a process of its own, which does nothing else.

How a process keeps the memory that it frees is a setting of all of it, and ours is part of why our steps are short:
GPyTorch is to run as it comes. And what a process did before leaves its memory in pieces: after steps with large
matrices, small ones take half as long again, or half as long.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from typing import Any

import torch

from candid.bench.timing import Turn, turns_of

__all__ = ["own_process"]


@contextmanager
def own_process(make_action: Callable[..., Callable[[], object]], *arguments: Any) -> Iterator[Turn]:
    """Turns of the action that ``make_action`` makes there of its arguments, on as many threads as here."""
    threads = (torch.get_num_threads(),)
    with ProcessPoolExecutor(1, get_context("spawn"), initializer=torch.set_num_threads, initargs=threads) as pool:
        pool.submit(_prepare, make_action, *arguments).result()
        yield lambda turn: pool.submit(_take_turn, turn).result()


_prepared: list[Turn] = []


def _prepare(make_action: Callable[..., Callable[[], object]], *arguments: Any) -> None:
    _prepared[:] = [turns_of(make_action(*arguments))]


def _take_turn(turn: float) -> float:
    return _prepared[0](turn)
