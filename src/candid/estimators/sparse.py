"""GPs with inducing points."""

from __future__ import annotations

import math
from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
import torch
from sklearn.utils._param_validation import Interval, StrOptions

from candid.engines import (
    SCHEDULES,
    Plan,
    Problem,
    fit_hyperparameters,
    match_noise,
    n_batches,
    place_points,
    solve_weights,
)
from candid.estimators.base import GPRegressor, gp_estimator
from candid.estimators.fitting import Setting
from candid.families import Inducing
from candid.methods import Composition
from candid.weights import Delta, Diagonal, Full

__all__ = ["SparseGPRegressor"]

WEIGHTS = {"delta": Delta, "diagonal": Diagonal, "full": Full}
# What a covariance of q(u) is called among the weights.
COVARIANCES = {"none": "delta", "diagonal": "diagonal", "full": "full"}
# Share of the kernel's diagonal at which factorisations start.
JITTER = {torch.float32: 1e-5, torch.float64: 1e-8}
# The warm start fits hyper-parameters to this many rows.
WARM_ROWS = 600
# Default length of training: this many epochs, but at least so many steps.
DEFAULT_EPOCHS, DEFAULT_STEPS = 30, 100


@gp_estimator
class SparseGPRegressor(GPRegressor):
    """Gaussian process regression with inducing points, for 10² to 10⁷ rows.

    Parameters
    ----------
    objective : {"predictive", "elbo"}, default="predictive"
        What is maximised: the log of the predictive density (PPGPR), or the evidence lower bound (SVGP).
    covariance : {"full", "diagonal", "none"}, default="full"
        Covariance of q(u), the distribution of the inducing values; "none" is a point estimate.
    beta : float, default=0.2
        Weight of the KL penalty (of −log p(u) for a point estimate).
    n_inducing : int, default=500
        Number of inducing points; at most one for each distinct row is used.
    init : {"warm", "kmeans", "random"} or array of shape (M, D), default="warm"
        Where training starts. "warm": kernel and noise from the exact marginal likelihood of some rows, inducing points
        by k-means, q(u) in closed form. "kmeans", "random" and an array (in the units of X) only place the inducing
        points and leave the rest cold.
    batch_size : int, default=1024
    max_epochs : int, optional
        By default 30 epochs, or 100 steps where that is more.
    lr : float, optional
        Learning rate of Adam. By default 0.01 from ten thousand rows on, and in proportion to the rows below that,
        where the warm start is close to the optimum already (but at least 0.001).
    schedule : {"cosine", "step", "constant"}, default="cosine"
        How the learning rate decays.
    dtype : {"float32", "float64"}, default="float32"
        Precision of training.
    kernel : str or Kernel, default="matern52"
        "rbf", "matern12", "matern32", "matern52", "rq", "periodic", "linear", a sum or product of these
        ("matern52 + linear"), or an object of :mod:`candid.kernels`.
    ard : bool, default=True
        One lengthscale for each feature, or one for all.
    mean : {"constant", "zero", "linear"}, default="constant"
        Prior mean function.
    likelihood : {"gaussian"}, default="gaussian"
    priors : dict, optional
        Hyper-parameter name → prior or bound of :mod:`candid.priors`, on the standardised scale.
    fixed : tuple of str, default=()
        Hyper-parameters that stay where they start, e.g. ``("lengthscale",)``.
    alpha : float or array of shape (N,) or (N, P), optional
        Known noise variance in squared units of y; by default the noise is learned.
    standardize : bool, default=True
        Standardise inputs and targets for training; results are in original units in any case.
    time_budget : float, optional
        Seconds after which the fit ends with what it has; starting points and restarts count.
    validation_fraction : float, default=0.0
        Share of the rows that is held out to watch the NLL.
    patience : int, optional
        Stop after so many epochs without a better held-out NLL, and go back to the best epoch.
    n_restarts : int, default=1
        Trainings from different starting points; the one with the best objective is kept.
    device : str, default="auto"
    n_threads : int, optional
        Threads of the fit. By default as many as torch is set to, and one for tables of up to 256 rows.
    predict_dtype : {"float64", "float32"}, default="float64"
        Precision of predictions.
    random_state : int, RandomState or None
        With an int, a fit can be repeated bit for bit on one machine.
    verbose : bool, default=True
        Show a progress bar on a terminal.
    checkpoint_dir : str, optional
        Where an interrupted fit leaves what it needs to go on; the same fit, called again, resumes.
    callbacks : tuple of callables, default=()
        Called after each epoch with its record (a dict); a true answer stops training.

    Attributes
    ----------
    predictor_ : TablePredictor
        Latent mean and variance as differentiable torch functions, in original units.
    kernel_ : Kernel
        The fitted kernel, in the units of the table.
    noise_ : float or ndarray
        Standard deviation of the noise, in units of y.
    history_ : list of dict
        One record for each epoch.
    jitter_ : float
        Share of the kernel's diagonal that factorisations needed.
    n_features_in_, feature_names_in_
        As in scikit-learn.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from candid import SparseGPRegressor
    >>> X, y = load_diabetes(return_X_y=True)
    >>> gp = SparseGPRegressor(n_inducing=50, random_state=0).fit(X, y)
    >>> mean, std = gp.predict(X[:3], return_std=True)
    """

    objective: str = "predictive"
    covariance: str = "full"
    beta: float = 0.2
    n_inducing: int = 500
    init: str | np.ndarray = "warm"
    batch_size: int = 1024
    max_epochs: int | None = None
    lr: float | None = None
    schedule: str = "cosine"
    dtype: str = "float32"

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **GPRegressor._parameter_constraints,
        "objective": [StrOptions({"predictive", "elbo"})],
        "covariance": [StrOptions(set(COVARIANCES))],
        "beta": [Interval(Real, 0, None, closed="left")],
        "n_inducing": [Interval(Integral, 1, None, closed="left")],
        "init": [StrOptions({"warm", "kmeans", "random"}), "array-like"],
        "batch_size": [Interval(Integral, 1, None, closed="left")],
        "max_epochs": [Interval(Integral, 0, None, closed="left"), None],
        "lr": [Interval(Real, 0, None, closed="neither"), None],
        "schedule": [StrOptions(set(SCHEDULES))],
        "dtype": [StrOptions({"float32", "float64"})],
    }

    def _composition(self) -> Composition:
        return Composition("inducing", COVARIANCES[self.covariance], self.objective, {"all": "adam"})

    def _model_dtype(self) -> torch.dtype:
        return getattr(torch, self.dtype)

    def _plan(self, n_rows: int, seed: int) -> Plan:
        per_epoch = n_batches(n_rows, self.batch_size)
        epochs = max(DEFAULT_EPOCHS, math.ceil(DEFAULT_STEPS / per_epoch))
        return Plan(
            steppers=self._composition().steppers,
            max_epochs=epochs if self.max_epochs is None else self.max_epochs,
            batch_size=self.batch_size,
            lr=0.01 * min(max(n_rows / 10_000, 0.1), 1.0) if self.lr is None else self.lr,
            schedule=self.schedule,
            patience=self.patience,
            seed=seed,
        )

    def _build(self, setting: Setting, seed: int) -> Problem:
        rows, warm = setting.rows, isinstance(self.init, str) and self.init == "warm"
        points = None
        if setting.start is None:
            kernel, mean, likelihood, prior = self._parts(setting)
            if warm:
                fit_hyperparameters(kernel, mean, likelihood, prior, rows, WARM_ROWS, seed)
        else:
            family, likelihood, prior = setting.start.family, setting.start.likelihood, setting.start.prior
            assert isinstance(family, Inducing)
            likelihood.known = setting.known_noise
            if not warm:
                return Problem(family, likelihood, self.objective, {"kl": self.beta}, prior)
            kernel, mean = family.kernel, family.mean
            # A model of few rows had few points; with more rows it may have more.
            points = family.points.detach() if family.points.shape[-2] >= self.n_inducing else None
        points = self._points(setting, seed).to(rows.x) if points is None else points
        weights = WEIGHTS[COVARIANCES[self.covariance]](points.shape[-2], points.shape[:1])
        family = Inducing(kernel, mean, points, weights, JITTER[rows.x.dtype]).to(rows.x)
        if warm:
            elbo = self.objective == "elbo"
            if elbo:
                match_noise(family, likelihood, rows)
            solve_weights(family, likelihood, rows, max(self.beta, 1e-3), residual_is_noise=not elbo)
        return Problem(family, likelihood, self.objective, {"kl": self.beta}, prior)

    def _points(self, setting: Setting, seed: int) -> torch.Tensor:
        """Inducing points of each output, (P, M, D)."""
        rows = setting.rows
        n_outputs, n_features = rows.y.shape[1], rows.x.shape[1]
        if not isinstance(self.init, str):
            given = np.asarray(self.init, dtype=np.float64)
            if given.ndim != 2 or given.shape[1] != n_features or not len(given):
                raise ValueError(
                    f"init must have shape (M, {n_features}), a column for each feature; got {given.shape}"
                )
            if not np.isfinite(given).all():
                raise ValueError("init has inducing points at NaN or infinity; give finite ones, in the units of X")
            return torch.as_tensor(setting.inputs(given)).expand(n_outputs, *given.shape)
        how = "random" if self.init == "random" else "kmeans"
        x = rows.x.double().cpu().numpy()
        return torch.as_tensor(place_points(x, self.n_inducing, how, seed)).expand(n_outputs, -1, -1)
