"""Threads that share out whole parts of the work, each with operations of its own.

torch and BLAS share out single operations. Their helpers then wait for the next one by spinning, on cores that others
need, and small operations are over before they have begun. In a crew each operation has one thread, and what has parts
that do not need each other is done by several at a time. Who does which part depends on nothing but their number, so
results are the same every time.

The threads are Python's (neither torch nor BLAS nor our machine code hold the interpreter's lock): they sleep while
there is nothing to do.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from functools import cache
from itertools import pairwise
from typing import TypeVar

import torch
from threadpoolctl import ThreadpoolController
from torch import Tensor

__all__ = ["crew", "crew_size", "joined", "share_out", "threads_of_our_own"]

T = TypeVar("T")

# How many there are; zero where nobody has called for a crew, and one for each of its members.
_size: ContextVar[int] = ContextVar("crew", default=0)


@contextmanager
def crew(size: int | None) -> Iterator[None]:
    """Inside the block, operations have one thread and :func:`share_out` has ``size``; None leaves all as it is."""
    if size is None:
        yield
        return
    before, token = torch.get_num_threads(), _size.set(size)
    torch.set_num_threads(1)
    try:
        with _blas().limit(limits=1):
            yield
    finally:
        torch.set_num_threads(before)
        _size.reset(token)


def crew_size() -> int:
    """How many threads :func:`share_out` has here; zero if there is no crew, and operations may have several."""
    return _size.get()


def share_out(work: Callable[[slice], T], count: int) -> list[T]:
    """What ``work`` returns for runs of the parts 0 to ``count``, in their order; there are as many runs as threads."""
    size = min(crew_size(), count)
    if size <= 1:
        return [work(slice(0, count))]
    edges = [count * member // size for member in range(size + 1)]
    first, *others = (slice(*pair) for pair in pairwise(edges))
    pool = threads_of_our_own(size - 1, os.getpid())
    waiting = [pool.submit(copy_context().run, _as_member, work, run) for run in others]
    try:
        own = copy_context().run(_as_member, work, first)
    finally:
        # Nobody goes on writing once this is over.
        wait(waiting)
    return [own, *(future.result() for future in waiting)]


def joined(parts: Sequence[Tensor]) -> Tensor:
    """What members have made of their runs, one after the other; a single part is not copied."""
    return parts[0] if len(parts) == 1 else torch.cat(list(parts))


def _as_member(work: Callable[[slice], T], run: slice) -> T:
    _size.set(1)
    torch.set_num_threads(1)
    # Whether gradients are recorded is a thread's own affair; parts of gradients that are written by hand have none.
    with torch.no_grad():
        return work(run)


@cache
def threads_of_our_own(number: int, process: int) -> ThreadPoolExecutor:
    """Threads for as long as the process lives; a forked one has none of its parent's."""
    return ThreadPoolExecutor(number, thread_name_prefix="candid")


@cache
def _blas() -> ThreadpoolController:
    """The libraries that NumPy and SciPy have brought."""
    import scipy.linalg  # noqa: F401

    return ThreadpoolController().select(user_api="blas")
