"""Where training starts: hyper-parameters from some rows, inducing points from the inputs."""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import pairwise_distances_argmin
from threadpoolctl import threadpool_limits
from torch import Tensor

from candid.engines.loop import Callback, Plan, train
from candid.engines.problem import Problem
from candid.engines.resolution import JITTER, Resolvable
from candid.engines.rows import Rows, n_batches
from candid.families import Exact, Inducing, Mean, Neighbours
from candid.kernels import Kernel
from candid.likelihoods import Gaussian
from candid.parameters import hyperparameters
from candid.priors import HyperPrior

__all__ = ["fit_by_evidence", "fit_by_neighbours", "fit_points", "nearest_rows", "place_points"]

# k-means sees at most this many rows for each centre: more do not move the centres by much.
ROWS_PER_CENTRE = 30
# Leave-one-out steps: rows in a batch, neighbours of a row, learning rate.
LOO_BATCH, LOO_NEIGHBOURS, LOO_RATE = 128, 32, 0.1
# Lengthscales start at most so many times smaller or larger than the standard deviation of the inputs.
LENGTHS = 1e4
# Inducing points move for so many epochs at least, and then as long as each of them gains so much per row.
FIRST_EPOCHS, LEAST_GAIN = 6, 0.002


def place_points(x: np.ndarray, n_points: int, how: str, seed: int, lengths: np.ndarray | None = None) -> np.ndarray:
    """Inducing points (M×D) for inputs ``x``: centres of k-means, or a random choice of distinct rows.

    With ``lengths`` of each feature, k-means measures distances in these units. There are never more points than
    distinct rows.
    """
    if lengths is not None:
        return place_points(x / lengths, n_points, how, seed) * lengths
    generator = np.random.default_rng(seed)
    candidates = x[generator.permutation(len(x))[: ROWS_PER_CENTRE * n_points]]
    distinct = np.unique(candidates, axis=0)
    if len(distinct) <= n_points:
        return distinct
    if how == "random":
        return distinct[generator.permutation(len(distinct))[:n_points]]
    start = distinct[generator.permutation(len(distinct))[:n_points]]
    # One thread: with more, scikit-learn adds up in an order that changes from run to run.
    with warnings.catch_warnings(), threadpool_limits(1, user_api="openmp"):
        warnings.simplefilter("ignore", ConvergenceWarning)
        options: dict[str, Any] = {"init": start, "n_init": 1, "max_iter": 20}
        centres = KMeans(n_points, **options).fit(candidates).cluster_centers_
    return np.unique(centres, axis=0)


def nearest_rows(x: np.ndarray, places: np.ndarray) -> np.ndarray:
    """Which rows of ``x`` are nearest to some places, each of them once."""
    return np.unique(pairwise_distances_argmin(places, x))


def fit_by_evidence(
    kernel: Kernel,
    mean: Mean,
    likelihood: Gaussian,
    prior: HyperPrior | None,
    rows: Rows,
    seed: int,
    max_epochs: int = 12,
    time_budget: float | None = None,
    jitter: float | None = None,
) -> None:
    """Move kernel, mean and noise, in place, to the maximum of the exact marginal likelihood of all rows.

    If there is to be a model with inducing points, its ``jitter`` limits the kernel (:class:`Resolvable`).
    """
    every = rows.to(torch.float64)
    family = Exact(kernel, mean, every.x, likelihood.sites(every.y), every.weight)
    plan = Plan({"all": "lbfgs"}, max_epochs, batch_size=len(rows), time_budget=time_budget, seed=seed)
    problem = Problem(family, likelihood, "marginal_likelihood", prior=prior)
    _fit(problem, every, plan, likelihood, rows.x.dtype, jitter)


def fit_by_neighbours(
    kernel: Kernel,
    mean: Mean,
    likelihood: Gaussian,
    prior: HyperPrior | None,
    rows: Rows,
    seed: int,
    n_steps: int = 150,
    time_budget: float | None = None,
    jitter: float | None = None,
) -> None:
    """Move kernel, mean and noise, in place, by some steps of the leave-one-out likelihood of nearest neighbours.

    A ``jitter`` limits the kernel, as in :func:`fit_by_evidence`.

    A random choice of rows would be cheaper still, but rows of such a choice are far apart: they know little of short
    lengthscales and of the noise, and can take a wiggly function for a nearly linear one of huge amplitude.
    """
    every = rows.to(torch.float64)
    family = Neighbours(kernel, mean, every.x, likelihood.sites(every.y), every.weight, LOO_NEIGHBOURS)
    plan = Plan(
        {"all": "adam"},
        max_epochs=math.ceil(n_steps / n_batches(len(rows), LOO_BATCH)),
        batch_size=LOO_BATCH,
        lr=LOO_RATE,
        schedule="cosine",
        max_steps=n_steps,
        time_budget=time_budget,
        seed=seed,
    )
    _fit(Problem(family, likelihood, "predictive", prior=prior), every, plan, likelihood, rows.x.dtype, jitter)


def fit_points(
    family: Inducing,
    likelihood: Gaussian,
    prior: HyperPrior | None,
    rows: Rows,
    objective: str,
    seed: int,
    share: float = 1.0,
    time_budget: float | None = None,
    max_epochs: int = 60,
) -> None:
    """Move inducing points, kernel and mean, in place, towards the maximum of "fitc" or "sgpr" of all rows.

    These evidences know the best q(u) of any inducing points, so that the points find their places among each other.
    The noise stays as it is: "fitc" has variances of its own besides it, and on short tables would have no other.
    Where rows are a ``share`` of a table, so is what the prior counts. The points move as long as it pays.
    """
    plan = Plan({"all": "lbfgs"}, max_epochs, batch_size=len(rows), time_budget=time_budget, seed=seed)
    dtype, given = rows.x.dtype, copy.deepcopy(likelihood).requires_grad_(False)
    problem = Problem(family, given, objective, {"prior": share}, prior)
    _fit(problem, rows.to(torch.float64), plan, given, dtype, JITTER[dtype], [_WhileItPays()])
    family.to(dtype)


class _WhileItPays:
    """Ends training when an epoch has gained too little."""

    def __init__(self) -> None:
        self._loss = math.inf

    def __call__(self, record: dict[str, Any]) -> bool:
        gain, self._loss = self._loss - record["loss"], record["loss"]
        return record["epoch"] > FIRST_EPOCHS and gain < LEAST_GAIN


def _fit(
    problem: Problem,
    rows: Rows,
    plan: Plan,
    likelihood: Gaussian,
    dtype: torch.dtype,
    jitter: float | None,
    callbacks: Sequence[Callback] = (),
) -> None:
    """Train in float64, keep the result away from where nothing can be learned, and go back to ``dtype``."""
    if jitter is not None:
        problem.prior = Resolvable(problem.prior, problem.family.kernel, likelihood, rows, jitter)
    train(problem.double(), rows, plan, callbacks=callbacks)
    _keep_lengths(problem.family.kernel, rows.x)
    _leave_floor(likelihood)
    for part in (problem.family.kernel, problem.family.mean, likelihood):
        part.to(dtype)


@torch.no_grad()
def _keep_lengths(kernel: Kernel, x: Tensor) -> None:
    """Keep lengthscales near the spread of the inputs. Far outside, they change nothing but rounding errors."""
    spread = x.std(0, correction=0)
    spread = torch.where(spread > 0, spread, 1.0)
    for name, parameter in hyperparameters(kernel):
        unbounded = (parameter.lower, parameter.upper) == (0.0, math.inf)
        if name.endswith("lengthscale") and unbounded and not parameter.fixed:
            least, most = (spread, spread) if parameter.raw.shape[-1] == len(spread) else (spread.min(), spread.max())
            parameter.set(parameter.value.clamp(least / LENGTHS, most * LENGTHS))


@torch.no_grad()
def _leave_floor(likelihood: Gaussian) -> None:
    """Keep a learned noise at twice its floor: on the floor it has no gradient, and would stay there for ever."""
    noise = likelihood.noise
    if noise is not None and noise.upper == math.inf and noise.lower > 0 and not noise.fixed:
        noise.raw.clamp_(min=math.log(noise.lower))
