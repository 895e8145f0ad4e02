"""Several methods on the same rows under one time budget."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from candid.cli.console import EXPECTED, collected_warnings, one_line
from candid.estimators import make_gp
from candid.methods import find_method
from candid.metrics import summary, wasserstein_to_normal, z_scores
from candid.predictive import Predictive

__all__ = ["Outcome", "best_outcome", "compare_methods"]


@dataclass(frozen=True)
class Outcome:
    """What became of one method: its scores and model, or the reason why there are none."""

    method: str
    seconds: float = 0.0
    scores: dict[str, float] = field(default_factory=dict)
    prediction: Predictive | None = None
    model: Any = None
    problem: str | None = None
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class Split:
    """Training and held-out rows."""

    X: np.ndarray
    y: np.ndarray
    X_test: np.ndarray
    y_test: np.ndarray


def compare_methods(
    names: Sequence[str], split: Split, time_budget: float, seed: int, tell: Callable[[str], None]
) -> list[Outcome]:
    """Fit each method and score it on the held-out rows, best NLL first.

    Each method gets an equal share of the time that is left. Methods for short tables go last: their steps are the
    longest, so they are the ones that may overrun.
    """
    outcomes, start = [], time.perf_counter()
    order = sorted(names, key=lambda name: find_method(name).most_rows is not None)
    for position, name in enumerate(order):
        left = time_budget - (time.perf_counter() - start)
        share = left / (len(order) - position)
        title = f"Fitting {name} ({position + 1} of {len(order)})"
        tell(f"{title} …")
        outcomes.append(_outcome(name, split, share, seed, lambda text, title=title: tell(f"{title}: {text}")))
    return sorted(outcomes, key=lambda outcome: outcome.scores.get("nll", np.inf))


def best_outcome(outcomes: Sequence[Outcome]) -> Outcome | None:
    """The one with the smallest NLL, None if no method succeeded."""
    scored = [outcome for outcome in outcomes if np.isfinite(outcome.scores.get("nll", np.inf))]
    return min(scored, key=lambda outcome: outcome.scores["nll"], default=None)


def _outcome(name: str, split: Split, share: float, seed: int, tell: Callable[[str], None]) -> Outcome:
    most = find_method(name).most_rows
    if most is not None and len(split.X) > most:
        return Outcome(name, problem=f"skipped: {len(split.X):,} training rows, and it takes {most:,}")
    if share <= 0:
        return Outcome(name, problem="skipped: the time budget was used up; give more with --time-budget")

    def on_epoch(record: dict[str, Any]) -> None:
        tell(f"epoch {record['epoch']}, loss {record['loss']:.3f}, {record['seconds']:.0f} s")

    start = time.perf_counter()
    with collected_warnings() as said:
        try:
            model = make_gp(name, time_budget=share, random_state=seed, verbose=False, callbacks=(on_epoch,))
            model.fit(split.X, split.y)
            seconds = time.perf_counter() - start
            prediction = model.predict_distribution(split.X_test)
            scores = summary(split.y_test, prediction)
            scores["wasserstein"] = wasserstein_to_normal(z_scores(split.y_test, prediction))
        except EXPECTED as error:
            return Outcome(name, time.perf_counter() - start, problem=f"failed: {one_line(error)}")
    return Outcome(name, seconds, scores, prediction, model, warnings=tuple(said))
