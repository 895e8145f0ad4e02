"""One fit of a benchmark, and the record of it."""

from __future__ import annotations

import hashlib
import json
import math
import time
import traceback
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.base import BaseEstimator
from sklearn.metrics import roc_auc_score

import candid
from candid.bench.protocol import Parts
from candid.estimators import make_gp
from candid.kernels import Kernel
from candid.metrics import summary
from candid.parameters import hyperparameters
from candid.predictive import PredictiveCategorical

__all__ = ["RECIPE_VERSION", "Fit", "execute", "key_of"]

#: Raise this when training changes in a way that the parameters of an estimator do not show (a new one whose default
#: changes what is done, too): results are then computed anew.
RECIPE_VERSION = 3
# What is on record only where it is not the usual.
PROTOCOL = {"task": "regression", "inputs": "standardised", "most_rows": None, "targets": "standardised"}
# Parameters that change nothing about the result.
WITHOUT_EFFECT = {"verbose", "callbacks", "checkpoint_dir", "device", "n_threads"}


@dataclass(frozen=True)
class Fit:
    """A method on the training part of a split.

    ``parameters`` are those that are tried or chosen, and the length if it is not our recipe's; ``setting`` are those
    that the table and its row prescribe; ``row`` is what tables call it, by default the method. ``purpose`` is
    "result", or "choice" for a fit that only serves to choose a parameter. Without ``n_inducing`` our recipe decides.
    ``task``, ``inputs``, ``most_rows`` and ``targets`` are those of the benchmark.
    """

    data: str
    method: str
    split: int
    n_inducing: int | None
    proportions: tuple[float, ...]
    parameters: Mapping[str, Any] = field(default_factory=dict)
    purpose: str = "result"
    setting: Mapping[str, Any] = field(default_factory=dict)
    row: str | None = None
    task: str = "regression"
    inputs: str = "standardised"
    most_rows: int | None = None
    targets: str = "standardised"

    @property
    def name(self) -> str:
        """What tables call it."""
        return self.row or self.method

    def overrides(self) -> dict[str, Any]:
        """What is told to ``make_gp``; an exact GP has no inducing points."""
        chosen: dict[str, Any] = {"random_state": self.split, "verbose": False, **self.setting, **self.parameters}
        if self.n_inducing is not None and "n_inducing" in self._estimator().get_params():
            chosen["n_inducing"] = self.n_inducing
        return chosen

    def estimator(self) -> BaseEstimator:
        """The model that is fitted."""
        return self._estimator(**self.overrides())

    def _estimator(self, **overrides: Any) -> BaseEstimator:
        return make_gp(self.method, recipe="candid", task=self.task, **overrides)

    def settings(self) -> dict[str, Any]:
        """All that the result depends on."""
        parameters = self._estimator().get_params() | self.overrides()
        protocol = {name: getattr(self, name) for name, usual in PROTOCOL.items() if getattr(self, name) != usual}
        return {
            "recipe_version": RECIPE_VERSION,
            "data": self.data,
            "method": self.method,
            "split": self.split,
            "proportions": list(self.proportions),
            **protocol,
            "parameters": {name: parameters[name] for name in sorted(parameters.keys() - WITHOUT_EFFECT)},
        }

    def key(self) -> str:
        """The same for two fits exactly if their settings are."""
        return key_of(self.settings())

    def agrees_with(self, record: Mapping[str, Any]) -> bool:
        """Whether a record of this key has the same parameters: a default of the estimator may have changed since."""
        ours, theirs = self.settings()["parameters"], record.get("parameters", {})
        return all(_text(ours[name]) == _text(theirs[name]) for name in ours.keys() & theirs.keys())


def key_of(settings: Mapping[str, Any]) -> str:
    """A hash of the settings of a fit.

    Parameters that have the estimator's default do not count, so that an estimator can get new ones without any fit
    having to be done again.
    """
    defaults = type(make_gp(settings["method"], task=settings.get("task", PROTOCOL["task"])))().get_params()
    changed = {
        name: value
        for name, value in settings["parameters"].items()
        if name not in defaults or _text(value) != _text(defaults[name])
    }
    return hashlib.sha256(_text({**settings, "parameters": changed}).encode()).hexdigest()[:16]


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True, default=repr)


def execute(fit: Fit, parts: Parts, keep: Callable[[Any], None] = lambda p: None) -> dict[str, Any]:
    """Train, measure and describe; an error becomes part of the record. ``keep`` hears the predictions of test rows."""
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
            record |= _measured(fit.estimator(), parts, keep)
            record["error"] = None
        except Exception as error:
            record["error"] = f"{type(error).__name__}: {error}"
            record["traceback"] = _calls(error)
    record["total_seconds"] = time.perf_counter() - start
    record["warnings"] = list(dict.fromkeys(str(entry.message) for entry in caught))
    record["finished"] = datetime.now(UTC).isoformat(timespec="seconds")
    return record


def _calls(error: Exception) -> list[str]:
    """Where an error came from, the outermost call first; without directories, which are nobody else's."""
    frames = traceback.extract_tb(error.__traceback__)
    return [f"{Path(frame.filename).name}:{frame.lineno} in {frame.name}: {frame.line}" for frame in frames]


def _measured(gp: Any, parts: Parts, keep: Callable[[Any], None]) -> dict[str, Any]:
    start = time.perf_counter()
    gp.fit(parts.x, parts.y)
    seconds = time.perf_counter() - start
    prediction = gp.predict_distribution(parts.x_test)
    scores = _scores(parts.y_test, prediction)
    if len(parts.x_validation):
        scores["validation_nll"] = _scores(parts.y_validation, gp.predict_distribution(parts.x_validation))["nll"]
    for name, value in scores.items():
        if not math.isfinite(value):
            raise ArithmeticError(f"the metric {name} is {value}")
    keep(prediction)
    history = gp.history_
    return {
        **scores,
        **_of_targets(parts.y_test, prediction),
        **_of_sites(gp),
        "lengthscale": _lengthscale(getattr(gp, "kernel_", None)),
        "mean_lengthscale": _lengthscale(getattr(gp, "mean_kernel_", None)),
        "seconds": seconds,
        "epochs": history[-1]["epoch"] if history else 0,
        "objective_start": history[0]["loss"] if history and history[0]["epoch"] == 0 else None,
        "objective_end": history[-1]["loss"] if history else None,
        "jitter": getattr(gp, "jitter_", None),
    }


def _scores(y: np.ndarray, prediction: Any) -> dict[str, float]:
    if isinstance(prediction, PredictiveCategorical):
        scores = {"nll": float(-prediction.log_prob(y).mean()), "mistaken": float((prediction.mode != y).mean())}
        return {**scores, "misranked": 1 - _area(y, prediction)} if len(prediction.classes) == 2 else scores
    return summary(y, prediction)


def _of_targets(y: np.ndarray, prediction: Any) -> dict[str, list[float]]:
    """NLL of each of several targets, where these are predicted one by one."""
    log_density = prediction.log_prob(y) if y.ndim > 1 else np.empty(0)
    return {"nll_of_targets": (-log_density.mean(0)).tolist()} if log_density.ndim > 1 else {}


def _of_sites(gp: Any) -> dict[str, list[float]]:
    """What the sites of a deep model count in its mixture."""
    weights = getattr(gp, "quadrature_weights_", np.empty(0))
    return {"quadrature_weights": weights.round(9).tolist()} if len(weights) > 1 else {}


def _area(y: np.ndarray, prediction: PredictiveCategorical) -> float:
    """Area under the curve of two classes: how often a row of the second is thought likelier to be of it."""
    second = y == prediction.classes[1]
    return float(roc_auc_score(second, prediction.probabilities[:, 1])) if 0 < second.sum() < len(y) else 0.5


@torch.no_grad()
def _lengthscale(kernel: Kernel | None) -> float | None:
    """The geometric mean over features, in the units of the standardised rows.

    None where a kernel has no lengthscale, or more than one set of them.
    """
    if kernel is None:
        return None
    found = [entry.value for name, entry in hyperparameters(kernel) if name.split(".")[-1] == "lengthscale"]
    return float(found[0].double().log().mean().exp()) if len(found) == 1 else None
