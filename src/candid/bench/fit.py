"""One fit of a benchmark, and the record of it."""

from __future__ import annotations

import hashlib
import json
import math
import time
import traceback
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import torch

import candid
from candid.bench.protocol import Parts
from candid.estimators import make_gp
from candid.estimators.base import GPRegressor
from candid.metrics import nll, summary

__all__ = ["RECIPE_VERSION", "Fit", "execute"]

#: Raise this when training changes in a way that the parameters of an estimator do not show: results are then computed
#: anew.
RECIPE_VERSION = 3
# Parameters that change nothing about the result.
WITHOUT_EFFECT = {"verbose", "callbacks", "checkpoint_dir", "device", "n_threads"}


@dataclass(frozen=True)
class Fit:
    """A method on the training part of a split.

    ``parameters`` are those that differ from our recipe, apart from the number of inducing points; ``purpose`` is
    "result", or "choice" for a fit that only serves to choose a parameter.
    """

    data: str
    method: str
    split: int
    n_inducing: int
    proportions: tuple[float, ...]
    parameters: Mapping[str, Any] = field(default_factory=dict)
    purpose: str = "result"

    def overrides(self) -> dict[str, Any]:
        """What is told to ``make_gp``; an exact GP has no inducing points."""
        chosen: dict[str, Any] = {"random_state": self.split, "verbose": False, **self.parameters}
        if "n_inducing" in make_gp(self.method).get_params():
            chosen["n_inducing"] = self.n_inducing
        return chosen

    def settings(self) -> dict[str, Any]:
        """All that the result depends on."""
        parameters = make_gp(self.method).get_params() | self.overrides()
        return {
            "recipe_version": RECIPE_VERSION,
            "data": self.data,
            "method": self.method,
            "split": self.split,
            "proportions": list(self.proportions),
            "parameters": {name: parameters[name] for name in sorted(parameters.keys() - WITHOUT_EFFECT)},
        }

    def key(self) -> str:
        """The same for two fits exactly if their settings are."""
        text = json.dumps(self.settings(), sort_keys=True, default=repr)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def execute(fit: Fit, parts: Parts) -> dict[str, Any]:
    """Train, measure and describe; an error becomes part of the record."""
    record: dict[str, Any] = {
        "key": fit.key(),
        "purpose": fit.purpose,
        **fit.settings(),
        "n_train": len(parts.x),
        "n_test": len(parts.x_test),
        "n_validation": len(parts.x_validation),
        "n_features": parts.x.shape[1],
        "candid": candid.__version__,
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
    }
    start = time.perf_counter()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        try:
            record |= _measured(make_gp(fit.method, recipe="candid", **fit.overrides()), parts)
            record["error"] = None
        except Exception as error:
            record["error"] = f"{type(error).__name__}: {error}"
            record["traceback"] = traceback.format_exc()
    record["total_seconds"] = time.perf_counter() - start
    record["warnings"] = list(dict.fromkeys(str(entry.message) for entry in caught))
    record["finished"] = datetime.now(UTC).isoformat(timespec="seconds")
    return record


def _measured(gp: GPRegressor, parts: Parts) -> dict[str, Any]:
    start = time.perf_counter()
    gp.fit(parts.x, parts.y)
    seconds = time.perf_counter() - start
    scores = summary(parts.y_test, gp.predict_distribution(parts.x_test))
    scores["validation_nll"] = nll(parts.y_validation, gp.predict_distribution(parts.x_validation))
    for name, value in scores.items():
        if not math.isfinite(value):
            raise ArithmeticError(f"the metric {name} is {value}")
    history = gp.history_
    return {
        **scores,
        "seconds": seconds,
        "epochs": history[-1]["epoch"] if history else 0,
        "objective_start": history[0]["loss"] if history and history[0]["epoch"] == 0 else None,
        "objective_end": history[-1]["loss"] if history else None,
        "jitter": gp.jitter_,
    }
