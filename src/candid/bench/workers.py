"""Fits one after the other here, or several side by side in processes of their own.

Small models gain little from a second thread. Two fits on one thread each are done much sooner than one after the
other on two.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from itertools import islice
from multiprocessing import get_context
from types import TracebackType
from typing import Any

import torch

from candid.bench.fit import Fit, execute
from candid.bench.protocol import make_parts
from candid.datasets import Dataset

__all__ = ["Workers"]


class Workers:
    """A context in which fits are done, ``jobs`` at a time, which share the threads that this process has."""

    def __init__(self, data: Mapping[str, Dataset], jobs: int = 1) -> None:
        self._data, self._jobs = data, jobs

    def __enter__(self) -> Workers:
        initial = (self._data, max(1, torch.get_num_threads() // self._jobs))
        # No process starts before there is work for it.
        self._pool = ProcessPoolExecutor(self._jobs, get_context("spawn"), initializer=_settle, initargs=initial)
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._pool.shutdown(cancel_futures=True)

    def records(self, fits: Sequence[Fit], begin: Callable[[Fit], None]) -> Iterator[tuple[int, dict[str, Any]]]:
        """Position and record of each fit as soon as it is over; ``begin`` hears which begins."""
        return self._side_by_side(fits, begin) if self._jobs > 1 else self._one_by_one(fits, begin)

    def _one_by_one(self, fits: Sequence[Fit], begin: Callable[[Fit], None]) -> Iterator[tuple[int, dict[str, Any]]]:
        for position, fit in enumerate(fits):
            begin(fit)
            yield position, _record(fit, self._data)

    def _side_by_side(self, fits: Sequence[Fit], begin: Callable[[Fit], None]) -> Iterator[tuple[int, dict[str, Any]]]:
        waiting, running = iter(enumerate(fits)), dict[Future, int]()
        while True:
            for position, fit in islice(waiting, self._jobs - len(running)):
                begin(fit)
                running[self._pool.submit(_do, fit)] = position
            if not running:
                return
            for over in wait(running, return_when=FIRST_COMPLETED).done:
                try:
                    record = over.result()
                except BrokenProcessPool:
                    raise MemoryError(
                        "a fit was killed from outside, probably for want of memory; what is over is written down, and "
                        "the same command goes on from there: give it fewer --jobs"
                    ) from None
                yield running.pop(over), record


_tables: dict[str, Dataset] = {}


def _settle(data: Mapping[str, Dataset], threads: int) -> None:
    """Begin a worker's life."""
    _tables.update(data)
    torch.set_num_threads(threads)


def _do(fit: Fit) -> dict[str, Any]:
    return _record(fit, _tables)


def _record(fit: Fit, data: Mapping[str, Dataset]) -> dict[str, Any]:
    parts = make_parts(data[fit.data], fit.split, fit.proportions, fit.inputs, fit.most_rows, fit.targets)
    return execute(fit, parts)
