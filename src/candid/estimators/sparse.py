"""GPs with inducing points."""

from __future__ import annotations

import math
from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
import torch
from sklearn.utils._param_validation import Interval, StrOptions

from candid.engines import (
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
from candid.methods import Composition, inducing_points
from candid.weights import WEIGHTS

__all__ = ["SparseGPRegressor"]

# Share of the kernel's diagonal at which factorisations start.
JITTER = {torch.float32: 1e-6, torch.float64: 1e-8}
# The warm start fits hyper-parameters to this many rows, in at most this share of the time.
WARM_ROWS, WARM_SHARE = 600, 0.25
# q(u) has a closed form for every β > 0, and takes this one for β = 0.
LEAST_BETA = 1e-3
# Default length of training: this many epochs, but at least so many steps from a warm start, or from elsewhere.
DEFAULT_EPOCHS, WARM_STEPS, COLD_STEPS = 30, 100, 1000
DEFAULT_RATE = 0.01


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
        by k-means, q(u) in closed form. An array (in the units of X) is a warm start with these inducing points.
        "kmeans" and "random" only place the inducing points and leave the rest cold.
    batch_size : int, default=1024
    max_epochs : int, optional
        By default 30 epochs, or 100 steps where that is more (1000 from a cold start).
    lr : float, optional
        Learning rate of Adam, by default 0.01. From a warm start on less than ten thousand rows it is in proportion to
        the rows (but at least 0.001), because there the start is close to the optimum.
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

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **GPRegressor._parameter_constraints,
        "objective": [str],
        "covariance": [StrOptions({"none", "diagonal", "full"})],
        "beta": [Interval(Real, 0, None, closed="left")],
        "n_inducing": [Interval(Integral, 1, None, closed="left")],
        "init": [StrOptions({"warm", "kmeans", "random"}), "array-like"],
    }
    _shaping: ClassVar[tuple[str, ...]] = (*GPRegressor._shaping, "covariance", "dtype")

    def _composition(self) -> Composition:
        return inducing_points(self.objective, self.covariance)

    def _model_dtype(self) -> torch.dtype:
        return getattr(torch, self.dtype)

    @property
    def _warm(self) -> bool:
        """Whether a new model starts close to the optimum."""
        return not (isinstance(self.init, str) and self.init in ("kmeans", "random"))

    def _plan(self, setting: Setting, seed: int) -> Plan:
        n_rows, kept = len(setting.rows), self._kept(setting) is not None
        steps = WARM_STEPS if self._warm or kept else COLD_STEPS
        epochs = max(DEFAULT_EPOCHS, math.ceil(steps / n_batches(n_rows, self.batch_size)))
        close = self._warm and not kept
        rate = DEFAULT_RATE * min(max(n_rows / 10_000, 0.1), 1.0) if close else DEFAULT_RATE
        return Plan(
            steppers=self._composition().steppers,
            max_epochs=epochs if self.max_epochs is None else self.max_epochs,
            batch_size=self.batch_size,
            lr=rate if self.lr is None else self.lr,
            schedule=self.schedule,
            patience=self.patience,
            seed=seed,
        )

    def _build(self, setting: Setting, seed: int) -> Problem:
        rows, made_of = setting.rows, self._composition()
        kernel, mean, likelihood, prior = self._parts(setting, seed)
        kept = self._kept(setting)
        if self._warm and kept is None:
            time_left = setting.budget.left()
            share = None if time_left is None else WARM_SHARE * time_left
            fit_hyperparameters(kernel, mean, likelihood, prior, rows, WARM_ROWS, seed, time_budget=share)
        points = self._points(setting, seed).to(rows.x) if kept is None else kept.points.detach()
        weights = WEIGHTS[str(made_of.weights)](points.shape[-2], tuple(points.shape[:-2]))
        family = Inducing(kernel, mean, points, weights, JITTER[rows.x.dtype]).to(rows.x)
        if kept is not None:
            weights.load_state_dict(kept.weights.state_dict())
        elif self._warm:
            elbo = self.objective == "elbo"
            match_noise(family, likelihood, prior, rows, share=1.0 if elbo else 0.5)
            solve_weights(family, likelihood, rows, max(self.beta, LEAST_BETA), residual_is_noise=not elbo)
        return Problem(family, likelihood, made_of.objective, {"kl": self.beta}, prior)

    def _kept(self, setting: Setting) -> Inducing | None:
        """The family whose points and q(v) training goes on with.

        A model of few rows had few points; with more rows it may have more, and then starts from new ones. Points that
        the user gave are as many as they are.
        """
        family = setting.start.family if setting.start is not None else None
        wanted = self.n_inducing if isinstance(self.init, str) else 1
        return family if isinstance(family, Inducing) and family.points.shape[-2] >= wanted else None

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
