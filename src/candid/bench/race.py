"""Time to a given NLL: our recipe against the published one in GPyTorch.

Both train on the same rows with all threads, and take turns: after each of our epochs GPyTorch trains until it has had
as much time as we, so that a noisy machine hurts both alike. Each has a clock of its own, which counts everything from
the placement of inducing points on and stands still while test rows are predicted or the other one is at work.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import numpy as np
import torch

from candid.bench.protocol import Parts
from candid.bench.timing import Stopwatch
from candid.estimators import make_gp
from candid.estimators.table_predictor import TablePredictor
from candid.metrics import nll, rmse
from candid.predictive import Predictive, PredictiveNormal

__all__ = ["CANDID", "GPYTORCH", "Course", "Lap", "curve", "race"]

CANDID, GPYTORCH = "candid", "GPyTorch"


@dataclass(frozen=True)
class Course:
    """What is trained, and for how long at most.

    ``max_epochs`` are those of the published recipe, ``our_epochs`` those of ours if it should be another number.
    """

    method: str
    n_inducing: int = 1000
    seconds: float = 600.0
    max_epochs: int = 400
    seed: int = 0
    our_epochs: int | None = None


@dataclass(frozen=True)
class Lap:
    """How good a model is after so many seconds of training; or why it trains no more."""

    who: str
    epoch: int
    seconds: float
    nll: float | None = None
    rmse: float | None = None
    error: str | None = None


def race(course: Course, parts: Parts, note: Callable[[Lap], None]) -> None:
    """Let both train; ``note`` hears every lap at once."""
    rival = _Rival(course, parts, note)
    clock = Stopwatch()

    def after_epoch(record: dict[str, Any]) -> bool:
        clock.stop()
        note(_lap(CANDID, record["epoch"], clock.seconds, parts, _predict(record["model"](), parts.x_test)))
        rival.train_until(clock.seconds)
        clock.start()
        return clock.seconds >= course.seconds

    length: dict[str, Any] = {} if course.our_epochs is None else {"max_epochs": course.our_epochs}
    gp = make_gp(
        course.method,
        recipe="candid",
        **length,
        n_inducing=course.n_inducing,
        random_state=course.seed,
        verbose=False,
        callbacks=(after_epoch,),
    )
    clock.start()
    gp.fit(parts.x, parts.y)
    clock.stop()
    # What the fit ends with: it may go back to an earlier epoch, and making the predictor takes time too.
    last = gp.history_[-1]["epoch"]
    note(_lap(CANDID, last, clock.seconds, parts, gp.predict_distribution(parts.x_test)))
    rival.train_until(course.seconds)


def curve(laps: Sequence[Lap], who: str) -> tuple[list[float], list[float]]:
    """Seconds and NLL of one of them."""
    scored = [(lap.seconds, lap.nll) for lap in laps if lap.who == who and lap.nll is not None]
    return [seconds for seconds, _ in scored], [score for _, score in scored]


class _Rival:
    """GPyTorch on its own clock."""

    def __init__(self, course: Course, parts: Parts, note: Callable[[Lap], None]) -> None:
        if find_spec("gpytorch") is None:
            raise ImportError("a race needs GPyTorch, which is not installed: pip install candid-gp[bench]")
        from candid.bench.gpytorch_training import PublishedTraining

        self._parts, self._note, self._most, self._clock = parts, note, course.seconds, Stopwatch()
        self._failed = False
        self._clock.start()
        self._training = PublishedTraining(
            course.method, parts.x, parts.y, course.n_inducing, course.max_epochs, course.seed
        )
        self._clock.stop()

    def train_until(self, seconds: float) -> None:
        """Train epoch by epoch until the clock shows so many seconds; an error ends it for good."""
        while not (self._failed or self._training.finished) and self._clock.seconds < min(seconds, self._most):
            self._clock.start()
            try:
                self._training.train_epoch()
            except (ArithmeticError, RuntimeError) as error:
                self._failed = True
                self._note(Lap(GPYTORCH, self._training.epoch, self._clock.seconds, error=str(error)))
                return
            finally:
                self._clock.stop()
            mean, variance = self._training.predict(self._parts.x_test)
            prediction = PredictiveNormal(mean, np.sqrt(variance))
            self._note(_lap(GPYTORCH, self._training.epoch, self._clock.seconds, self._parts, prediction))


def _predict(predictor: TablePredictor, x: np.ndarray) -> PredictiveNormal:
    """New observations at ``x`` by a model that is still in training."""
    marginals = list(predictor.stream(torch.as_tensor(x)))
    mean, variance = (
        np.concatenate([getattr(part, name)[:, 0].numpy() for part in marginals]) for name in ("mean", "variance")
    )
    return PredictiveNormal(mean, np.sqrt(variance + float(predictor.noise_variance)))


def _lap(who: str, epoch: int, seconds: float, parts: Parts, prediction: Predictive) -> Lap:
    return Lap(who, epoch, seconds, nll(parts.y_test, prediction), rmse(parts.y_test, prediction))
