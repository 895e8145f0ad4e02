"""What all regressors share: parameters, fitting, predicting."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any, ClassVar, Self

import numpy as np
import torch
from sklearn.base import BaseEstimator, MultiOutputMixin, RegressorMixin
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted

from candid.engines import SCHEDULES, Plan, Problem, Rows
from candid.estimators.draws import joint_draws
from candid.estimators.files import save
from candid.estimators.fitting import Fitted, Setting, fit_best
from candid.estimators.inputs import Table, read_inputs, read_noise, read_table
from candid.estimators.table_predictor import TablePredictor
from candid.families import Mean, make_mean
from candid.kernels import Kernel, make_kernel
from candid.likelihoods import Gaussian
from candid.methods import Composition, check_compatible
from candid.parameters import hyperparameters
from candid.predictive import Predictive, PredictiveNormal
from candid.priors import HyperPrior, attach

__all__ = ["GPRegressor", "Regressor", "gp_estimator"]


def gp_estimator(cls):
    """Make a class with annotated fields a scikit-learn estimator: the fields are its constructor's parameters."""
    return dataclass(kw_only=True, eq=False, repr=False)(cls)


@gp_estimator
class Regressor(MultiOutputMixin, RegressorMixin, BaseEstimator):
    """Shared parameters and behaviour; see the final classes for their documentation."""

    likelihood: str = "gaussian"
    alpha: float | np.ndarray | None = None
    standardize: bool = True
    batch_size: int = 1024
    max_epochs: int | None = None
    lr: float | None = None
    schedule: str = "cosine"
    patience: int | None = None
    time_budget: float | None = None
    validation_fraction: float = 0.0
    n_restarts: int = 1
    device: str = "auto"
    dtype: str = "float32"
    n_threads: int | None = None
    predict_dtype: str = "float64"
    random_state: Any = None
    verbose: bool = True
    checkpoint_dir: str | None = None
    callbacks: tuple[Callable[[dict[str, Any]], Any], ...] = ()

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "likelihood": [str],
        "alpha": [Interval(Real, 0, None, closed="left"), "array-like", None],
        "standardize": ["boolean"],
        "batch_size": [Interval(Integral, 1, None, closed="left")],
        "max_epochs": [Interval(Integral, 0, None, closed="left"), None],
        "lr": [Interval(Real, 0, None, closed="neither"), None],
        "schedule": [StrOptions(set(SCHEDULES))],
        "time_budget": [Interval(Real, 0, None, closed="neither"), None],
        "validation_fraction": [Interval(Real, 0, 1, closed="left")],
        "patience": [Interval(Integral, 1, None, closed="left"), None],
        "n_restarts": [Interval(Integral, 1, None, closed="left")],
        "device": [str],
        "dtype": [StrOptions({"float32", "float64"})],
        "n_threads": [Interval(Integral, 1, None, closed="left"), None],
        "predict_dtype": [StrOptions({"float32", "float64"})],
        "random_state": ["random_state"],
        "verbose": ["boolean"],
        "checkpoint_dir": [str, None],
        "callbacks": [tuple, list],
    }
    #: Parameters that shape the model; between calls of ``partial_fit`` they must stay the same.
    _shaping: ClassVar[tuple[str, ...]] = ("likelihood", "standardize")

    # What the final classes say of themselves

    @abstractmethod
    def _composition(self) -> Composition:
        """Family, weights, objective and steppers that the parameters stand for."""

    @abstractmethod
    def _model_dtype(self) -> torch.dtype:
        """What training computes in."""

    @abstractmethod
    def _build(self, setting: Setting, seed: int) -> Problem:
        """A problem at its starting point, or where ``setting.start`` has left off."""

    @abstractmethod
    def _plan(self, setting: Setting, problem: Problem, seed: int) -> Plan:
        """How to train that problem."""

    def _check_table(self, table: Table) -> None:
        """Raise where this kind of model cannot take the table."""

    def _given_order(self) -> Any:
        """The indices of the rows in an order that matters to the model, or None."""
        return None

    def _complete(self, predictor: TablePredictor, likelihood: Gaussian, held_out: Rows) -> None:
        """Once training is over, show the held-out rows to a predictor that has a use for them."""

    # Fitting

    def fit(self, X, y, sample_weight=None) -> Self:
        """Fit the model.

        Parameters
        ----------
        X : array-like or data frame of shape (N, D)
            Numbers only; numpy, pandas, polars or torch.
        y : array-like of shape (N,) or (N, P)
            Several columns are fitted as outputs that are independent given the inputs.
        sample_weight : array-like of shape (N,), optional
            A row of weight 2 counts as two rows.

        Returns
        -------
        self
        """
        self._validate_params()
        return self._train(self._read(X, y, sample_weight, reset=True), start=None)

    def partial_fit(self, X, y, sample_weight=None) -> Self:
        """Add rows and continue training from the present parameters, on all rows seen so far.

        The first call is a fit. The rows are kept in memory (not in saved files) for this purpose; a model that was
        loaded from a file has none, and is fitted anew. Parameters that shape the model must not have changed.
        """
        fitted: Fitted | None = getattr(self, "_fitted", None)
        if fitted is None:
            return self.fit(X, y, sample_weight)
        self._validate_params()
        for name, before in self._shape.items():
            if repr(getattr(self, name)) != before:
                raise ValueError(f"{name} has changed since the model was fitted; call fit to change it")
        return self._train(self._read(X, y, sample_weight, reset=False), start=fitted)

    def _read(self, X, y, sample_weight, reset: bool) -> Table:
        return read_table(self, X, y, sample_weight, self.alpha, reset, self._given_order())

    def _repeatable_state(self) -> Any:
        """The source of the seed; a run that may be resumed must find its own seed again."""
        return 0 if self.random_state is None and self.checkpoint_dir is not None else self.random_state

    def _train(self, table: Table, start: Fitted | None) -> Self:
        made_of = self._composition()
        check_compatible(made_of.family, made_of.objective, self.likelihood)
        if self.patience is not None and not self.validation_fraction:
            raise ValueError("patience watches held-out rows: set validation_fraction as well, for example to 0.1")
        seed = int(check_random_state(self._repeatable_state()).randint(2**31 - 1))
        self._fitted = fit_best(self, table, seed, start)
        self.predictor_: TablePredictor = self._fitted.predictor
        if self.predict_dtype == "float32":
            self.predictor_.inner.float()
        self.history_ = self._fitted.history
        self._shape = {name: repr(getattr(self, name)) for name in self._shaping}
        self._vector_target = table.vector
        self.noise_ = self._shaped(self.predictor_.noise_variance.sqrt().double().numpy())
        return self

    # Predicting

    def predict(self, X, return_std: bool = False, return_cov: bool = False):
        """Predictive mean, and with it the standard deviation or the joint covariance of new observations.

        Both include the noise; :meth:`predict_distribution` tells noise and model uncertainty apart.

        Returns
        -------
        mean : ndarray of shape (N,) or (N, P)
        std : ndarray of the same shape, if ``return_std``
        covariance : ndarray of shape (N, N) or (N, N, P), if ``return_cov``
        """
        if return_std and return_cov:
            raise ValueError("ask for return_std or return_cov, not for both")
        x = self._inputs(X)
        if return_std:
            mean, variance = self.predictor_.moments(x)
            noise = self.predictor_.noise_variance.double().numpy()
            prediction = PredictiveNormal(*map(self._shaped, (mean, np.sqrt(variance), np.sqrt(noise))))
            return prediction.mean, prediction.std
        if return_cov:
            mean, covariance = self._joint(x)
            return self._shaped(mean), covariance[..., 0] if self._vector_target else covariance
        return self._shaped(self.predictor_.moments(x, mean_only=True)[0])

    def predict_distribution(self, X, alpha=None) -> Predictive:
        """The predictive distribution of each row, in the units of y: normal, or a mixture of normals.

        Parameters
        ----------
        X : array-like of shape (N, D)
        alpha : float or array-like of shape (N,) or (N, P), optional
            Known noise variance of these rows, instead of what the model has learned or averaged.
        """
        x = self._inputs(X)
        noise = None if alpha is None else read_noise(alpha, (len(x), self.predictor_.n_outputs))
        return self.predictor_.distribution(x, noise, self._vector_target)

    def sample_y(self, X, n_samples: int = 1, random_state=0) -> np.ndarray:
        """Joint draws of new observations, (N, n_samples) or (N, P, n_samples)."""
        x = self._inputs(X)
        with torch.no_grad():
            joint = self.predictor_.joint(x)
        draws = joint_draws(joint, self.predictor_.noise_variance, n_samples, check_random_state(random_state))
        return draws[:, 0] if self._vector_target else draws

    def score(self, X, y, sample_weight=None) -> float:
        """R² of the predictive mean; :mod:`candid.metrics` has scores of the whole distribution."""
        return super().score(X, y, sample_weight)

    def save(self, path) -> None:
        """Write the fitted model to one file without pickle; :func:`candid.load` reads it."""
        check_is_fitted(self)
        save(self, path)

    def _inputs(self, X) -> torch.Tensor:
        if not self.__sklearn_is_fitted__():
            # Raises with scikit-learn's own words; for a fitted model it would take as long as a small prediction.
            check_is_fitted(self)
        return torch.from_numpy(read_inputs(self, X))

    def _joint(self, x: torch.Tensor) -> tuple[np.ndarray, np.ndarray]:
        """Mean (row, output) and covariance (row, row, output) of new observations."""
        with torch.no_grad():
            joint = self.predictor_.joint(x).mixed()
            noise = torch.diag_embed(self.predictor_.noise_variance[:, None].expand(-1, joint.mean.shape[0]))
            covariance = (joint.covariance + noise).movedim(0, -1)
        return joint.mean.double().numpy(), covariance.double().numpy()

    def _shaped(self, values: np.ndarray):
        """Drop the output axis where y was a vector."""
        if not self._vector_target:
            return values
        return values[..., 0] if values.ndim > 1 else float(values[0])

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "predictor_")


@gp_estimator
class GPRegressor(Regressor):
    """What all GPs have beyond that: a kernel, a mean function, and priors of their hyper-parameters."""

    kernel: str | Kernel = "matern52"
    ard: bool = True
    mean: str = "constant"
    priors: dict[str, Any] | None = None
    fixed: tuple[str, ...] = ()

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **Regressor._parameter_constraints,
        "kernel": [str, torch.nn.Module],
        "ard": ["boolean"],
        "mean": [StrOptions({"zero", "constant", "linear"})],
        "priors": [dict, None],
        "fixed": [tuple, list],
    }
    _shaping: ClassVar[tuple[str, ...]] = ("kernel", "ard", "mean", *Regressor._shaping)

    def _make_kernel(self, n_features: int, n_outputs: int, seed: int) -> Kernel:
        """The kernel, of the covariance where there are several; ``seed`` is that of networks."""
        return make_kernel(self.kernel, n_features, self.ard, (n_outputs,))

    def _make_mean(self, kernel: Kernel, n_features: int, n_outputs: int, seed: int) -> Mean:
        return make_mean(self.mean, n_features, n_outputs)

    def _parts(self, setting: Setting, seed: int) -> tuple[Kernel, Mean, Gaussian, HyperPrior | None]:
        """Kernel, mean function and likelihood as the parameters describe them, and the priors that go with them.

        Their values are those of the start that training goes on from, if there is one; restarts begin elsewhere.
        """
        rows, start = setting.rows, setting.start
        n_features, n_outputs = rows.x.shape[1], rows.y.shape[1]
        kernel = self._make_kernel(n_features, n_outputs, seed)
        parts = torch.nn.ModuleDict(
            {
                "kernel": kernel,
                "mean": self._make_mean(kernel, n_features, n_outputs, seed),
                "likelihood": Gaussian(n_outputs=n_outputs, known=rows.noise, weight=rows.weight),
            }
        ).to(rows.x)
        prior = attach(parts, self.priors, self.fixed)
        kernel, mean, likelihood = parts["kernel"], parts["mean"], parts["likelihood"]
        if start is not None:
            for part, earlier in (
                (kernel, start.family.kernel),
                (mean, start.family.mean),
                (likelihood, start.likelihood),
            ):
                part.load_state_dict(earlier.state_dict())
        elif setting.restart:
            _move(parts, seed)
        return kernel, mean, likelihood, prior  # pyright: ignore[reportReturnType]

    def _train(self, table: Table, start: Fitted | None) -> Self:
        super()._train(table, start)
        self.kernel_, self.jitter_ = self._fitted.kernel, self._fitted.jitter
        return self


@torch.no_grad()
def _move(module: torch.nn.Module, seed: int) -> None:
    """Move learned hyper-parameters away from where a first run starts."""
    generator = torch.Generator().manual_seed(seed)
    for _, parameter in hyperparameters(module):
        if not parameter.fixed:
            parameter.raw.add_(0.5 * torch.randn(parameter.raw.shape, generator=generator).to(parameter.raw))
