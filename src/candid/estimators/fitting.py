"""From a checked table to a fitted model: scaling, held-out rows, restarts, checkpoints."""

from __future__ import annotations

import copy
import math
import time
import warnings
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from candid.engines import Checkpoint, Problem, ProgressBar, Rows, pick_device, threads, train
from candid.estimators.fingerprint import checkpoint_of
from candid.estimators.inputs import Table, check_range
from candid.estimators.scaling import Standardizer
from candid.estimators.table_predictor import TablePredictor
from candid.kernels import Kernel, in_units
from candid.parameters import hyperparameters

__all__ = ["Fitted", "Setting", "fit_best"]

# On tables up to this length a second thread does not pay, and it is slow where cores are shared.
SMALL_TABLE = 256
# Jitter above this share of the kernel's diagonal is worth telling the user about.
LARGE_JITTER = 1e-3
SMALLEST_NOISE = 1e-10
# Standard deviations whose squares are float64 numbers.
LARGEST_SCALE = 1e150


@dataclass(frozen=True)
class Setting:
    """What a model is built for: standardised rows, known noise, the scaling, and a problem to go on from (or None)."""

    rows: Rows
    known_noise: Tensor | None
    inputs: Standardizer
    start: Problem | None


@dataclass(frozen=True)
class Fitted:
    """A trained problem with all that is needed to predict or to go on training."""

    problem: Problem
    table: Table
    inputs: Standardizer
    targets: Standardizer
    predictor: TablePredictor
    history: list[dict[str, Any]]
    jitter: float

    @property
    def kernel(self) -> Kernel:
        """The fitted kernel in the units of the table."""
        fitted = copy.deepcopy(self.problem.family.kernel).double().cpu()
        x_scale, y_scale = torch.as_tensor(self.inputs.scale), torch.as_tensor(self.targets.scale)
        return in_units(fitted, x_scale, y_scale)  # pyright: ignore[reportArgumentType]


class Budget:
    """Seconds for a whole fit: starting points and restarts count as well as training."""

    def __init__(self, seconds: float | None) -> None:
        self._end = None if seconds is None else time.perf_counter() + seconds

    def left(self) -> float | None:
        return None if self._end is None else max(self._end - time.perf_counter(), 0.0)

    def spent(self) -> bool:
        return self.left() == 0.0


def fit_best(estimator: Any, table: Table, seed: int, start: Fitted | None) -> Fitted:
    """Train ``n_restarts`` times and keep the run with the best training objective.

    ``start`` is an earlier fit whose scaling and parameters the (single) run goes on from.
    """
    device, dtype = pick_device(estimator.device), estimator._model_dtype()
    inputs, targets = (start.inputs, start.targets) if start is not None else _scalings(estimator, table)
    training, held_out = _hold_out(table, estimator.validation_fraction, seed)
    rows = _tensors(training, inputs, targets, device, dtype)
    held_out_rows = _tensors(held_out, inputs, targets, device, dtype) if held_out is not None else None
    known_noise = _known_noise(training, targets, device, dtype)
    # A copy, so that a run that is broken off leaves the earlier fit as it was.
    setting = Setting(rows, known_noise, inputs, copy.deepcopy(start.problem) if start is not None else None)
    # Densities in the units of y differ from those of standardised targets by the Jacobian.
    offset = float(np.log(targets.scale).sum())
    name = type(estimator).__name__

    candidates: list[tuple[float, Problem, list[dict[str, Any]]]] = []
    checkpoints: list[Checkpoint] = []
    budget = Budget(estimator.time_budget)
    with (
        threads(estimator.n_threads or (1 if len(table) <= SMALL_TABLE else None)),
        ProgressBar(name, estimator.verbose) as progress,
    ):
        for restart in range(estimator.n_restarts if start is None else 1):
            if restart and budget.spent():
                break
            problem = estimator._build(setting, seed + restart)
            if restart:
                _perturb(problem, seed + restart)
            checkpoint = checkpoint_of(estimator, table, [seed, restart, setting.start])
            if checkpoint is not None:
                checkpoints.append(checkpoint)
            plan = replace(estimator._plan(len(rows), seed + restart), time_budget=budget.left(), offset=offset)
            history = train(problem, rows, plan, held_out_rows, checkpoint, estimator.callbacks, progress)
            candidates.append((history[-1]["loss"] if history else math.inf, problem, history))
    _, problem, history = min(candidates, key=lambda candidate: candidate[0])
    fitted = _finish(problem, table, inputs, targets, history)
    for checkpoint in checkpoints:
        checkpoint.delete()
    return fitted


def _finish(
    problem: Problem, table: Table, inputs: Standardizer, targets: Standardizer, history: list[dict[str, Any]]
) -> Fitted:
    with torch.no_grad():
        inner = problem.family.predictor().cpu()
        noise = problem.likelihood.at(None).variance.double().cpu().flatten()
    predictor = TablePredictor(inner, inputs, targets, noise * torch.as_tensor(targets.scale).square())
    jitter = float(problem.family.jitter.max())
    if jitter > LARGE_JITTER:
        warnings.warn(
            f"kernel matrices needed a jitter of {jitter:.0e} of their diagonal, so uncertainties below that are not "
            "resolved; duplicate inputs or a too smooth kernel are the usual cause, dtype='float64' helps",
            stacklevel=4,
        )
    return Fitted(problem, table, inputs, targets, predictor, history, jitter)


def _scalings(estimator: Any, table: Table) -> tuple[Standardizer, Standardizer]:
    if estimator.standardize:
        targets = Standardizer.fit(table.y, table.weight)
        if not ((targets.scale > 1 / LARGEST_SCALE) & (targets.scale < LARGEST_SCALE)).all():
            raise ValueError(
                f"the standard deviation of y is {targets.scale.max():.0e}, so its variance does not fit into a "
                "float64 number; give y in another unit"
            )
        return Standardizer.fit(table.x, table.weight), targets
    return Standardizer.identity(table.x.shape[1]), Standardizer.identity(table.y.shape[1])


def _hold_out(table: Table, fraction: float, seed: int) -> tuple[Table, Table | None]:
    """Set a share of the rows apart for early stopping; at least one row stays on each side."""
    count = min(math.ceil(fraction * len(table)), len(table) - 1) if fraction > 0 else 0
    if not count:
        return table, None
    order = np.random.default_rng(seed).permutation(len(table))
    return table.rows(np.sort(order[count:])), table.rows(np.sort(order[:count]))


def _tensors(
    table: Table, inputs: Standardizer, targets: Standardizer, device: torch.device, dtype: torch.dtype
) -> Rows:
    x, y = inputs(table.x), targets(table.y)
    check_range(x, dtype, "X")
    check_range(y, dtype, "y")
    return Rows(*(torch.as_tensor(part, dtype=dtype, device=device) for part in (x, y, table.weight)))


def _known_noise(training: Table, targets: Standardizer, device: torch.device, dtype: torch.dtype) -> Tensor | None:
    """Known noise variances of the training rows in standardised units; zero becomes the least that can be resolved."""
    if training.noise is None:
        return None
    standardised = np.maximum(training.noise / targets.scale**2, SMALLEST_NOISE)
    return torch.as_tensor(standardised, dtype=dtype, device=device)


def _perturb(problem: Problem, seed: int) -> None:
    """Move learned hyper-parameters away from where the first run started."""
    generator = torch.Generator().manual_seed(seed)
    for _, parameter in hyperparameters(problem):
        if not parameter.fixed:
            noise = 0.5 * torch.randn(parameter.raw.shape, generator=generator)
            parameter.raw.data.add_(noise.to(parameter.raw))
