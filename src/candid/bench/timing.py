"""Fair clocks."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from functools import partial

import torch

from candid.linalg.products import product_of

__all__ = ["GEMM_FLOPS", "Stopwatch", "Turn", "interleaved_medians", "make_gemm", "turns_of"]

#: From how many seconds a turn should take to the mean seconds of a call in it.
Turn = Callable[[float], float]

GEMM_SIZE = 1024
#: Floating-point operations of what :func:`make_gemm` gives.
GEMM_FLOPS = 2 * GEMM_SIZE**3


def interleaved_medians(
    contenders: Mapping[str, Turn], repeats: int, warm_up: int = 3, turn: float = 0.2
) -> dict[str, float]:
    """Median seconds of each contender.

    They take turns, so that a machine that slows down or is shared slows all of them down alike. A turn is as many
    calls as fit into ``turn`` seconds, and one at least: what takes a fraction of a millisecond is meant to be called
    in a row, and finds its data in the processor's cache. The first ``warm_up`` turns do not count.
    """
    for contender in contenders.values():
        for _ in range(warm_up):
            contender(turn)
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(repeats):
        for name, contender in contenders.items():
            seconds[name].append(contender(turn))
    return {name: statistics.median(times) for name, times in seconds.items()}


def turns_of(action: Callable[[], object]) -> Turn:
    """Turns in which ``action`` is called again and again."""
    return partial(_mean_seconds, action)


def _mean_seconds(action: Callable[[], object], turn: float) -> float:
    start, calls, passed = time.perf_counter(), 0, 0.0
    while not calls or passed < turn:
        action()
        calls, passed = calls + 1, time.perf_counter() - start
    return passed / calls


def make_gemm(dtype: torch.dtype = torch.float32) -> Callable[[], object]:
    """A product of two matrices, large enough to run at the machine's full rate, by whoever multiplies fastest."""
    left, right = torch.randn(2, GEMM_SIZE, GEMM_SIZE, dtype=dtype).unbind(0)
    return lambda: product_of(left, right)


class Stopwatch:
    """Adds up the seconds between ``start`` and ``stop``."""

    def __init__(self) -> None:
        self._sum = 0.0
        self._since: float | None = None

    @property
    def seconds(self) -> float:
        return self._sum + (0.0 if self._since is None else time.perf_counter() - self._since)

    def start(self) -> None:
        self._since = time.perf_counter()

    def stop(self) -> None:
        self._sum, self._since = self.seconds, None
