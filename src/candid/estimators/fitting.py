"""From a checked table to a fitted model: scaling, held-out rows, restarts, checkpoints."""

from __future__ import annotations

import copy
import math
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from candid.engines import Checkpoint, Problem, ProgressBar, Rows, pick_device, threads, train
from candid.estimators.fingerprint import checkpoint_of
from candid.estimators.inputs import Table, check_range
from candid.estimators.observations import observe
from candid.estimators.scaling import Standardizer
from candid.estimators.table_predictor import TablePredictor
from candid.kernels import Kernel, in_units
from candid.likelihoods import NOISE_FLOOR

__all__ = ["Fitted", "Setting", "add_rows", "add_rows_to_loaded", "fit_best", "reached"]

Callback = Callable[[dict[str, Any]], Any]

# On tables up to this length a second thread does not pay, and it is slow where cores are shared.
SMALL_TABLE = 256
# Jitter above this share of the kernel's diagonal is worth telling the user about.
LARGE_JITTER = 1e-3
SMALLEST_NOISE = 1e-10
# A fit on fewer rows knows too little of scales and lengths to go on from.
FEWEST_ROWS = 20
# Standard deviations whose squares are float64 numbers.
LARGEST_SCALE = 1e150
# Targets that vary less than so many deviations of the least noise that can be learned are badly told apart from noise.
SMALL_TARGETS = 10.0


class Budget:
    """Seconds for a whole fit: starting points and restarts count as well as training."""

    def __init__(self, seconds: float | None) -> None:
        self._start = time.perf_counter()
        self._end = None if seconds is None else self._start + seconds

    def elapsed(self) -> float:
        return time.perf_counter() - self._start

    def left(self) -> float | None:
        return None if self._end is None else max(self._end - time.perf_counter(), 0.0)

    def spent(self) -> bool:
        return self.left() == 0.0


@dataclass(frozen=True)
class Setting:
    """What a model is built for.

    Standardised rows, the scaling of the inputs, a problem to go on from (or None), which restart it is, the time, how
    many latent functions there are, and the place of each row in an order that was given (or None).
    """

    rows: Rows
    inputs: Standardizer
    start: Problem | None
    restart: int
    budget: Budget
    n_latents: int
    place: np.ndarray | None = None

    def outgrown(self, n_points: int, n_wanted: int) -> bool:
        """Whether a model that has fewer inducing points than it wants could have twice as many on these rows."""
        return n_points < n_wanted and min(n_wanted, len(self.rows.x.unique(dim=0))) >= 2 * n_points


@dataclass(frozen=True)
class Fitted:
    """A trained problem with all that is needed to predict or to go on training.

    ``latents`` is the scaling of the latent functions: that of the targets where these are real numbers.
    """

    problem: Problem
    training: Table
    held_out: Table | None
    inputs: Standardizer
    targets: Standardizer
    latents: Standardizer
    predictor: TablePredictor
    history: list[dict[str, Any]]
    jitter: float

    @property
    def knows_little(self) -> bool:
        """Whether there were so few rows that it is better to fit anew than to go on from here."""
        return len(self.training) < FEWEST_ROWS

    def rows_and(self, table: Table) -> Table:
        """All rows seen so far, and those of ``table``."""
        training = self.training if table.place is not None else replace(self.training, place=None)
        return (training if self.held_out is None else training.append(self.held_out)).append(table)

    @property
    def kernel(self) -> Kernel:
        """The fitted kernel in the units of the table."""
        return self._in_units(self.problem.family.kernel, self.latents.scale)

    @property
    def mean_kernel(self) -> Kernel | None:
        """That of the mean, of unit amplitude, where the mean has one of its own."""
        kernel = getattr(self.problem.family, "mean_kernel", None)
        return None if kernel is None else self._in_units(kernel, np.ones_like(self.latents.scale))

    def _in_units(self, kernel: Kernel, y_scale: np.ndarray) -> Kernel:
        x_shift, x_scale = torch.as_tensor(self.inputs.shift), torch.as_tensor(self.inputs.scale)
        if (n_hidden := self.problem.family.hidden_inputs) is not None:
            x_shift, x_scale = x_shift.new_zeros(n_hidden), x_scale.new_ones(n_hidden)
        return in_units(copy.deepcopy(kernel).double().cpu(), x_scale, torch.as_tensor(y_scale), x_shift)


def fit_best(estimator: Any, table: Table, seed: int, start: Fitted | None) -> Fitted:
    """Train ``n_restarts`` times and keep the best run: by its held-out NLL, or else by its objective.

    ``start`` is an earlier fit to which the rows of ``table`` are added: its scaling, its rows and its parameters are
    where the (single) run goes on from.
    """
    budget = Budget(estimator.time_budget)
    inputs, targets = (start.inputs, start.targets) if start is not None else _scalings(estimator, table)
    training, held_out = _hold_out(table, estimator.validation_fraction, seed)
    if start is not None:
        training, held_out = start.training.append(training), _joined(start.held_out, held_out)
    estimator._check_table(training)
    n_latents = estimator._n_latents(training)
    latents = targets if estimator._latents_are_targets else Standardizer.identity(n_latents)
    place = {"device": pick_device(estimator.device), "dtype": estimator._model_dtype()}
    rows = _tensors(training, inputs, targets, **place)
    held_out_rows = _tensors(held_out, inputs, targets, **place) if held_out is not None else None
    # Densities in the units of y differ from those of standardised targets by the Jacobian.
    offset = float(training.observed_shares() @ np.log(targets.scale))

    runs: list[tuple[float, Problem, list[dict[str, Any]]]] = []
    checkpoints: list[Checkpoint] = []
    with (
        threads(estimator.n_threads or (1 if len(training) <= SMALL_TABLE else None)),
        ProgressBar(type(estimator).__name__, estimator.verbose) as progress,
    ):
        for restart in range(estimator.n_restarts if start is None else 1):
            if restart and budget.spent():
                break
            # A copy, so that a run that is broken off leaves the earlier fit as it was.
            earlier = copy.deepcopy(start.problem) if start is not None else None
            checkpoint = checkpoint_of(estimator, training, [seed, restart, earlier, *_arrays(held_out)])
            if checkpoint is not None:
                checkpoints.append(checkpoint)
            setting = Setting(rows, inputs, earlier, restart, budget, n_latents, training.place)
            problem = estimator._build(setting, seed + restart)
            callbacks = _informed(
                estimator.callbacks, lambda problem=problem: _predictor(problem, inputs, targets, latents)
            )
            plan = replace(
                estimator._plan(setting, problem, seed + restart),
                time_budget=budget.left(),
                offset=offset,
                spent=budget.elapsed(),
                with_start=True,
            )
            history = train(problem, rows, plan, held_out_rows, checkpoint, callbacks, progress)
            runs.append((reached(history, estimator.patience), problem, history))
    _, problem, history = min(runs, key=lambda run: run[0])
    predictor = _predictor(problem, inputs, targets, latents)
    if held_out_rows is not None:
        estimator._complete(predictor, problem.likelihood, held_out_rows)
    fitted = Fitted(problem, training, held_out, inputs, targets, latents, predictor, history, _jitter(problem))
    for checkpoint in checkpoints:
        checkpoint.delete()
    return fitted


def add_rows(estimator: Any, table: Table, fitted: Fitted) -> Fitted:
    """An earlier fit with more rows to predict from, and the same parameters."""
    # No order of rows matters any more.
    training = replace(fitted.training, place=None).append(table)
    rows = _tensors(table, fitted.inputs, fitted.targets, torch.device("cpu"), torch.float64)
    estimator._complete(fitted.predictor, fitted.problem.likelihood, rows)
    return replace(fitted, training=training)


def add_rows_to_loaded(estimator: Any, table: Table, predictor: TablePredictor) -> None:
    """More rows for a predictor that comes from a file, which knows no training rows but those it predicts from."""
    inputs, latents = predictor.scalings
    n_targets = table.y.shape[1]
    targets = latents if estimator._latents_are_targets else predictor.observation.target_scaling(n_targets)
    if estimator._n_latents(table) != predictor.n_outputs or len(targets.scale) != n_targets:
        raise ValueError(f"the model was fitted on {predictor.n_targets} target(s), these rows have {n_targets}")
    rows = _tensors(table, inputs, targets, torch.device("cpu"), torch.float64)
    estimator._complete(predictor, predictor.observation.likelihood(predictor.y_scale), rows)


def reached(history: list[dict[str, Any]], patience: int | None) -> float:
    """What a run has reached: the held-out NLL of the epoch it ended with, or where nothing is held out, its loss."""
    if not history:
        return math.inf
    if "validation_nll" not in history[-1]:
        return history[-1]["loss"]
    kept = history if patience is not None else history[-1:]
    return min(record["validation_nll"] for record in kept)


def _informed(callbacks: Sequence[Callback], model: Callable[[], TablePredictor]) -> list[Callback]:
    """Callbacks whose records can be asked for the model as it is: ``record["model"]()`` is a predictor."""
    return [lambda record, callback=callback: callback({**record, "model": model}) for callback in callbacks]


def _jitter(problem: Problem) -> float:
    """What factorisations needed; a large one is worth a warning."""
    jitter = float(problem.family.jitter.max())
    if jitter > LARGE_JITTER:
        warnings.warn(
            f"kernel matrices needed a jitter of {jitter:.0e} of their diagonal, so uncertainties below that are not "
            "resolved; duplicate inputs or a too smooth kernel are the usual cause, and float64 helps",
            stacklevel=4,
        )
    return jitter


@torch.no_grad()
def _predictor(problem: Problem, inputs: Standardizer, targets: Standardizer, latents: Standardizer) -> TablePredictor:
    """The present parameters as a predictor in the units of the table."""
    return TablePredictor(problem.family.predictor().cpu(), inputs, latents, observe(problem.observed(), targets))


def _scalings(estimator: Any, table: Table) -> tuple[Standardizer, Standardizer]:
    """Of inputs and targets; those that are not real numbers stay what they are."""
    targets = Standardizer.identity(table.y.shape[1])
    if not estimator.standardize:
        if estimator._real_targets and table.noise is None:
            _warn_of_small_targets(Standardizer.fit(table.y, table.weight).scale)
        return Standardizer.identity(table.x.shape[1]), targets
    if estimator._real_targets:
        targets = Standardizer.fit(table.y, table.weight)
        if not ((targets.scale > 1 / LARGEST_SCALE) & (targets.scale < LARGEST_SCALE)).all():
            raise ValueError(
                f"the standard deviation of y is {targets.scale.max():.0e}, so its variance does not fit into a "
                "float64 number; give y in another unit"
            )
    return Standardizer.fit(table.x, table.weight), targets


def _warn_of_small_targets(deviations: np.ndarray) -> None:
    """Where the least noise that can be learned is much of what there is to learn."""
    least = math.sqrt(NOISE_FLOOR)
    if (deviations < SMALL_TARGETS * least).any():
        warnings.warn(
            f"y has a standard deviation of {deviations.min():.2g} only, and a standard deviation of the noise below "
            f"{least:g} cannot be learned, so predictions will be too uncertain; use standardize=True, give y in a "
            "smaller unit, or the variance of its noise as alpha",
            stacklevel=9,
        )


def _hold_out(table: Table, fraction: float, seed: int) -> tuple[Table, Table | None]:
    """Set a share of the rows apart for early stopping; at least one row stays on each side."""
    count = min(math.ceil(fraction * len(table)), len(table) - 1) if fraction > 0 else 0
    if not count:
        return table, None
    order = np.random.default_rng(seed).permutation(len(table))
    return table.rows(np.sort(order[count:])), table.rows(np.sort(order[:count]))


def _arrays(table: Table | None) -> list[np.ndarray]:
    return [] if table is None else [table.x, table.y, table.weight]


def _joined(first: Table | None, second: Table | None) -> Table | None:
    return second if first is None else first if second is None else first.append(second)


def _tensors(
    table: Table, inputs: Standardizer, targets: Standardizer, device: torch.device, dtype: torch.dtype
) -> Rows:
    x, y = inputs(table.x), targets(table.y)
    check_range(x, dtype, "X")
    check_range(y, dtype, "y")
    # Noise that is known to be zero becomes the least that can be resolved.
    noise = None if table.noise is None else np.maximum(table.noise / targets.scale**2, SMALLEST_NOISE)
    parts = (
        None if part is None else torch.as_tensor(part, dtype=dtype, device=device)
        for part in (x, y, table.weight, noise)
    )
    return Rows(*parts)  # pyright: ignore[reportArgumentType]
