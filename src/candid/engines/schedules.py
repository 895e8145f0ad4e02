"""Learning-rate schedules: a factor as a function of the share of training that is done."""

from __future__ import annotations

import math
from collections.abc import Callable

__all__ = ["SCHEDULES"]


def constant(done: float) -> float:
    """No decay."""
    return 1.0


def step(done: float) -> float:
    """A tenth of the rate after one half, a hundredth after three quarters."""
    return 0.1 ** ((done >= 0.5) + (done >= 0.75))


def thirds(done: float) -> float:
    """A fifth of the rate after one third, and a fifth of that after two."""
    return 0.2 ** ((done >= 1 / 3) + (done >= 2 / 3))


def quarters(done: float) -> float:
    """A fifth of the rate after one quarter, and a fifth of that after each of the next two."""
    return 0.2 ** ((done >= 0.25) + (done >= 0.5) + (done >= 0.75))


def cosine(done: float) -> float:
    """Up in a straight line over the first tenth, so that a good start is not shaken, and down along a cosine wave."""
    return min(1.0, 0.01 + 10 * done) * _wave(done)


def gentle(done: float) -> float:
    """The same, up over the first fifth: layers upon layers are shaken more easily."""
    return min(1.0, 0.01 + 5 * done) * _wave(done)


def _wave(done: float) -> float:
    return 0.01 + 0.99 * 0.5 * (1 + math.cos(math.pi * done))


SCHEDULES: dict[str, Callable[[float], float]] = {
    "constant": constant,
    "step": step,
    "thirds": thirds,
    "quarters": quarters,
    "cosine": cosine,
    "gentle": gentle,
}
