"""Threads that share out whole parts of the work, each with operations of its own.

torch and BLAS share out single operations. Their helpers then wait for the next one by spinning, on cores that others
need, and small operations are over before they have begun. In a crew each operation has one thread, and what has parts
that do not need each other is done by several at a time. Who does which part depends on nothing but their number, so
results are the same every time.

The threads are Python's (neither torch nor BLAS nor our machine code hold the interpreter's lock): they sleep while
there is nothing to do.
"""

from __future__ import annotations

import atexit
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from functools import cache
from itertools import pairwise
from queue import SimpleQueue
from threading import Lock, Thread
from typing import Any, Generic, TypeVar

import torch
from threadpoolctl import ThreadpoolController
from torch import Tensor

__all__ = ["crew", "crew_size", "each_member", "joined", "meanwhile", "share_out", "threads_of_our_own"]

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
        with _one_thread_for_all, _blas(of_process=False).limit(limits=1):
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
    first, *others = (_task(work, slice(*pair)) for pair in pairwise(edges))
    members = _members(size - 1, os.getpid())
    if not members.free.acquire(blocking=False):
        # Somebody else's crew is at work. The runs are the same, and so is what comes out.
        return [run() for run in (first, *others)]
    try:
        return members.work(first, others)
    finally:
        members.free.release()


def each_member(*tasks: Callable[[int, int], Any]) -> list[tuple[Any, ...]]:
    """What each of the tasks returns to all members, who do their own share of one task after the other.

    A task is told which member it is to work for, and how many there are.
    """
    members = max(crew_size(), 1)
    results = share_out(lambda run: [task(run.start, members) for task in tasks], members)
    return list(zip(*results, strict=True))


def meanwhile(work: Callable[[], T]) -> Callable[[], T]:
    """Let another member begin with ``work``; whoever calls what is returned gets the result, once there is one.

    It is next to what that member does already, and before what comes later. If nobody has begun with it, as in a crew
    of one, it is done when the result is asked for.
    """
    begun, size = _Begun(_task(lambda run: work(), slice(0))), crew_size()
    if size > 1:
        _members(size - 1, os.getpid()).begin(begun)

    def result() -> T:
        before = torch.get_num_threads()
        begun.do()
        # A member's operations have one thread; those of who does it in a member's place have as many as before.
        torch.set_num_threads(before)
        return _result(begun.end())

    return result


def _task(work: Callable[[slice], T], run: slice) -> Callable[[], T]:
    """For a member, who knows what is set around the caller."""
    context = copy_context()
    return lambda: context.run(_as_member, work, run)


def joined(parts: Sequence[Tensor]) -> Tensor:
    """What members have made of their runs, one after the other; a single part is not copied."""
    return parts[0] if len(parts) == 1 else torch.cat(list(parts))


def _as_member(work: Callable[[slice], T], run: slice) -> T:
    _size.set(1)
    torch.set_num_threads(1)
    # Whether gradients are recorded is a thread's own affair; parts of gradients that are written by hand have none.
    with torch.no_grad():
        return work(run)


class _Members:
    """Threads that sleep until there is something to do."""

    def __init__(self, number: int) -> None:
        self.free = Lock()
        self._members = [_Member() for _ in range(number)]

    def work(self, first: Callable[[], T], others: Sequence[Callable[[], T]]) -> list[T]:
        """What all of them return, ``first`` in this thread. Nobody goes on writing once this is over."""
        try:
            begun = [_Begun(task) for task in others]
            for member, task in zip(self._members, begun, strict=True):
                member.begin(task)
            outcomes = [_outcome(first), *(task.end() for task in begun)]
        except BaseException:
            # Interrupted while somebody was at work, who would hand in late what nobody waits for: others take over.
            self.leave()
            raise
        return [_result(outcome) for outcome in outcomes]

    def begin(self, begun: _Begun[Any]) -> None:
        """Let one of them do that, next to what it does already."""
        self._members[0].begin(begun)

    def leave(self) -> list[Thread]:
        """Once their tasks at hand are done, which these threads are still at."""
        _dismiss(self)
        for member in self._members:
            member.leave()
        return [member.thread for member in self._members]


class _Begun(Generic[T]):
    """What is to be done by somebody, once.

    Handing it over by a lock takes half of the time that it takes an executor, which counts where steps are short.
    """

    def __init__(self, task: Callable[[], T]) -> None:
        self._task: Callable[[], T] | None = task
        self._outcome: tuple[Any, BaseException | None] = None, None
        self._untouched, self._ended = Lock(), Lock()
        self._ended.acquire()

    def do(self) -> None:
        """Nothing happens if somebody has begun already."""
        if not self._untouched.acquire(blocking=False):
            return
        assert self._task is not None
        # What a task refers to is not kept any longer.
        self._outcome, self._task = _outcome(self._task), None
        self._ended.release()

    def end(self) -> tuple[Any, BaseException | None]:
        """The outcome, once there is one; anybody may ask, and again."""
        with self._ended:
            return self._outcome


class _Member:
    def __init__(self) -> None:
        self._begun: SimpleQueue[_Begun[Any] | None] = SimpleQueue()
        self.thread = Thread(target=self._live, name="candid", daemon=True)
        self.thread.start()

    def begin(self, begun: _Begun[Any]) -> None:
        self._begun.put(begun)

    def leave(self) -> None:
        self._begun.put(None)

    def _live(self) -> None:
        while (begun := self._begun.get()) is not None:
            begun.do()
            del begun


def _outcome(task: Callable[[], T]) -> tuple[Any, BaseException | None]:
    """What a task returns, or the error that it ends with."""
    try:
        return task(), None
    except BaseException as error:
        return None, error


def _result(outcome: tuple[Any, BaseException | None]) -> Any:
    result, error = outcome
    if error is not None:
        raise error
    return result


# By their number and the process: a forked one has none of its parent's.
_crews: dict[tuple[int, int], _Members] = {}


def _members(number: int, process: int) -> _Members:
    """For as long as the process lives, or until somebody interrupts them."""
    found = _crews.get((number, process))
    return found or _crews.setdefault((number, process), _Members(number))


def _dismiss(members: _Members) -> None:
    for key, own in list(_crews.items()):
        if own is members:
            _crews.pop(key, None)


@atexit.register
def _leave() -> None:
    """Nobody is at work any more when the interpreter goes."""
    crews = [members for (_, process), members in _crews.items() if process == os.getpid()]
    for thread in [thread for members in crews for thread in members.leave()]:
        thread.join()


@cache
def threads_of_our_own(number: int, process: int) -> ThreadPoolExecutor:
    """Threads for as long as the process lives; a forked one has none of its parent's."""
    return ThreadPoolExecutor(number, thread_name_prefix="candid")


@cache
def _blas(of_process: bool) -> ThreadpoolController:
    """The libraries that NumPy, SciPy and faiss have brought: a number of threads is each thread's own with OpenMP."""
    import scipy.linalg  # noqa: F401

    libraries = ThreadpoolController().select(user_api="blas")
    layers = {library["threading_layer"] for library in libraries.info()}
    return libraries.select(threading_layer=[layer for layer in layers if (layer != "openmp") == of_process])


class _OneThreadForAll:
    """Where the number of threads is that of the process: from the first crew that is at work to the last one."""

    def __init__(self) -> None:
        self._lock, self._crews, self._limit = Lock(), 0, None

    def __enter__(self) -> None:
        with self._lock:
            if not self._crews:
                self._limit = _blas(of_process=True).limit(limits=1)
            self._crews += 1

    def __exit__(self, *error: object) -> None:
        with self._lock:
            self._crews -= 1
            if not self._crews and self._limit is not None:
                self._limit.restore_original_limits()


_one_thread_for_all = _OneThreadForAll()
