"""Do the predictions of some methods come true? Fits on one split, whose predictions of the test rows are kept."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from candid.bench.fit import Fit, execute
from candid.bench.markdown import NOTHING, number, table
from candid.bench.plan import Plan
from candid.bench.protocol import make_parts
from candid.bench.results import Results
from candid.bench.spec import Budget, Spec
from candid.datasets import Dataset
from candid.metrics import coverage, crps, nll, rmse, wasserstein_to_normal, z_scores
from candid.predictive import Predictive, PredictiveMixture, PredictiveNormal

__all__ = ["COLUMNS", "Calibration", "calibrate", "calibration_page", "calibration_rows"]

# Probabilities of the central intervals whose coverage is reported.
LEVELS = (0.5, 0.9, 0.95)
#: What is said of each method.
COLUMNS = ("method", "NLL", "RMSE", "CRPS", *(f"in {100 * level:g} %" for level in LEVELS), "W₁", "epochs", "seconds")


@dataclass(frozen=True)
class Calibration:
    """What some methods predict for the test rows of a split, and the records of their fits.

    ``predictions`` has no entry for a fit that failed.
    """

    targets: np.ndarray
    predictions: Mapping[str, Predictive]
    records: Mapping[str, Mapping[str, Any]]


def calibrate(
    spec: Spec,
    budget: Budget,
    data: Mapping[str, Dataset],
    directory: Path,
    tell: Callable[[Fit, Mapping[str, Any] | None], None] = lambda fit, record: None,
) -> Calibration:
    """Fit every row of a budget of one data set and one split, unless its predictions are there already.

    Parameters
    ----------
    spec : Spec
        Where rows, common parameters and proportions come from.
    budget : Budget
    data : mapping
        Name → data set.
    directory : Path
        Records go to ``results.jsonl``, the predictions of each fit to a file that is named after its key.
    tell : callable
        Hears of a fit before, with None, and after it, with its record.
    """
    plan, results = Plan(spec, budget), Results(directory / "results.jsonl")
    pairs = plan.pairs({name: len(entry.X) for name, entry in data.items()})
    parts = make_parts(data[budget.data[0]], budget.splits[0], spec.proportions, spec.inputs)
    predictions: dict[str, Predictive] = {}
    records: dict[str, Mapping[str, Any]] = {}
    for pair in pairs:
        fit = plan.final(*pair, budget.splits[0], {})
        path = directory / f"{fit.key()}.npz"
        record = results.finished(fit) if path.is_file() else None
        if record is None:
            tell(fit, None)
            record = execute(fit, parts, keep=lambda p, path=path: _save(path, p))
            results.append(record)
        records[fit.name] = record
        if record["error"] is None:
            predictions[fit.name] = _load(path)
        tell(fit, record)
    return Calibration(parts.y_test, predictions, records)


def calibration_rows(calibration: Calibration) -> list[tuple[str, ...]]:
    """One row for each method, in the order of :data:`COLUMNS`."""
    return [_row(name, record, calibration) for name, record in calibration.records.items()]


def calibration_page(spec: Spec, budget: Budget, calibration: Calibration, pictures: Sequence[str]) -> str:
    """The figures and the pictures in Markdown."""
    data, split = budget.data[0], budget.splits[0]
    introduction = (
        f"{len(calibration.targets):,} test rows of split {split}, {budget.size}, {spec.recipe}. Metrics are in "
        "standardised units. An interval of 50 % should hold half of the targets; W₁ is the Wasserstein distance "
        "between z-scores and N(0, 1), which is zero for perfect calibration."
    )
    failed = [f"- {name}: {record['error']}" for name, record in calibration.records.items() if record["error"]]
    parts = [f"# Calibration on {data}", introduction, table(COLUMNS, calibration_rows(calibration), left=1)]
    parts += [f"![{Path(name).stem} of {data}]({name})" for name in pictures]
    parts += ["## Fits that failed", "\n".join(failed)] if failed else []
    return "\n\n".join(parts) + "\n"


def _row(name: str, record: Mapping[str, Any], calibration: Calibration) -> tuple[str, ...]:
    if name not in calibration.predictions:
        return (name, "failed", *[NOTHING] * (len(COLUMNS) - 2))
    y, p = calibration.targets, calibration.predictions[name]
    metrics = [number(metric(y, p)) for metric in (nll, rmse, crps)]
    shares = [f"{100 * coverage(y, p, level):.1f} %" for level in LEVELS]
    distance = number(wasserstein_to_normal(z_scores(y, p)))
    return (name, *metrics, *shares, distance, str(record["epochs"]), number(record["seconds"], 1))


def _save(path: Path, p: Predictive) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    mixture = isinstance(p, PredictiveMixture)
    names = ("means", "latent_stds", "noise_stds", "weights") if mixture else ("mean", "latent_std", "noise_std")
    np.savez_compressed(path, **{name: getattr(p, name) for name in names})


def _load(path: Path) -> Predictive:
    with np.load(path) as file:
        kind = PredictiveMixture if "weights" in file else PredictiveNormal
        return kind(*(file[name] for name in file))
