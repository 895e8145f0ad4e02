"""Fair clocks."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping

import torch

__all__ = ["gemm_rate", "interleaved_medians"]


def interleaved_medians(
    contenders: Mapping[str, Callable[[], object]], repeats: int, warm_up: int = 3
) -> dict[str, float]:
    """Median seconds of each contender.

    They take turns, so that a machine that slows down or is shared slows all of them down alike.
    """
    for contender in contenders.values():
        for _ in range(warm_up):
            contender()
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(repeats):
        for name, contender in contenders.items():
            start = time.perf_counter()
            contender()
            seconds[name].append(time.perf_counter() - start)
    return {name: statistics.median(times) for name, times in seconds.items()}


def gemm_rate(size: int = 1024, repeats: int = 9) -> float:
    """Floating-point operations per second of a product of float32 matrices."""
    left, right = torch.randn(2, size, size).unbind(0)
    seconds = interleaved_medians({"gemm": lambda: left @ right}, repeats)["gemm"]
    return 2 * size**3 / seconds
