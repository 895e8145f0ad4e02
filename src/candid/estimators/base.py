"""What all regressors share: targets, predicting."""

from __future__ import annotations

from numbers import Real
from typing import Any, ClassVar, Self

import numpy as np
import torch
from sklearn.base import MultiOutputMixin, RegressorMixin
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Interval

from candid.engines import Rows
from candid.estimators.core import Estimator, gp_estimator
from candid.estimators.draws import joint_draws
from candid.estimators.gp import GP
from candid.estimators.inputs import Table, read_known, read_table
from candid.estimators.observations import CoregionalisedObservation
from candid.likelihoods import Gaussian, Likelihood
from candid.predictive import Predictive, PredictiveNormal

__all__ = ["GPRegressor", "Regressor", "gp_estimator"]


@gp_estimator
class Regressor(MultiOutputMixin, RegressorMixin, Estimator):
    """Targets that are numbers: real ones, unless the likelihood says otherwise."""

    likelihood: str = "gaussian"
    alpha: float | np.ndarray | None = None

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **Estimator._parameter_constraints,
        "likelihood": [str],
        "alpha": [Interval(Real, 0, None, closed="left"), "array-like", None],
    }
    _shaping: ClassVar[tuple[str, ...]] = ("likelihood", *Estimator._shaping)

    def _likelihood_name(self) -> str:
        return self.likelihood

    def _make_likelihood(self, rows: Rows) -> Likelihood:
        if self._likelihood_name() != "gaussian":
            raise ValueError(f"likelihood={self._likelihood_name()!r} is for classes; use a classifier")
        return Gaussian(n_outputs=rows.y.shape[1], known=rows.noise, weight=rows.weight)

    @property
    def _real_targets(self) -> bool:
        return True

    def _n_latents(self, table: Table) -> int:
        return table.y.shape[1]

    def _known(self) -> tuple[str, Any]:
        """What is known of how each row was observed, or None, and the name of the parameter that says so."""
        if self.alpha is not None and self._likelihood_name() != "gaussian":
            raise ValueError(f"alpha is a variance of normal noise; likelihood={self._likelihood_name()!r} has none")
        return "alpha", self.alpha

    # Fitting

    def fit(self, X, y, sample_weight=None) -> Self:
        """Fit the model.

        Parameters
        ----------
        X : array-like or data frame of shape (N, D)
            Numbers only; numpy, pandas, polars or torch.
        y : array-like of shape (N,) or (N, P)
            Several columns are outputs, which are independent given the inputs unless the model has ``outputs`` that
            say otherwise; models that have this parameter take NaN in one of several columns for an entry that was not
            observed.
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

        The first call is a fit. The next one is a fit of all rows as long as there were fewer than 20 of them, where
        there could be twice as many inducing points as a model of few rows had, and where targets are missing for the
        first time. The rows are kept in memory (not in saved files) for this purpose; a model that was loaded from a
        file has none, and is fitted anew. Parameters that shape the model must not have changed.
        """
        start = self._goes_on()
        if start is None:
            return self.fit(X, y, sample_weight)
        return self._go_on(self._read(X, y, sample_weight, reset=False), start)

    def _read(self, X, y, sample_weight, reset: bool) -> Table:
        name, known = self._known()
        return read_table(self, X, y, sample_weight, known, reset, self._given_order(), name)

    def _report(self) -> None:
        self.__dict__.pop("noise_", None)
        if self._real_targets:
            self.noise_ = self._shaped(self.predictor_.noise_variance.sqrt().double().numpy())

    # Predicting

    def predict(self, X, return_std: bool = False, return_cov: bool = False):
        """Predictive mean, and with it the standard deviation or the joint covariance of new observations.

        Both include the noise; :meth:`predict_distribution` tells noise and model uncertainty apart.

        Returns
        -------
        mean : ndarray of shape (N,) or (N, P)
        std : ndarray of the same shape, if ``return_std``
        covariance : ndarray of shape (N, N) or (N, N, P), if ``return_cov``; (N, N, P, P) where outputs are correlated
        """
        if return_std and return_cov:
            raise ValueError("ask for return_std or return_cov, not for both")
        x = self._inputs(X)
        if not self._real_targets:
            return self._predict_counts(x, return_std, return_cov)
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
        return self._distribution(self._inputs(X), "alpha", alpha)

    def _distribution(self, x: torch.Tensor, name: str = "", known: Any = None) -> Predictive:
        """Of new observations at some rows, of which something may be ``known`` by the ``name`` of a parameter."""
        if known is not None:
            known = read_known(known, (len(x), self.predictor_.n_targets), name)
        return self.predictor_.distribution(x, known, self._vector_target)  # pyright: ignore[reportReturnType]

    def _predict_counts(self, x: torch.Tensor, return_std: bool, return_cov: bool):
        if return_cov:
            raise ValueError("counts have no joint normal distribution; ask for return_std, or for sample_y")
        prediction = self._distribution(x)
        return (prediction.mean, prediction.std) if return_std else prediction.mean

    def sample_y(self, X, n_samples: int = 1, random_state=0) -> np.ndarray:
        """Joint draws of new observations, (N, n_samples) or (N, P, n_samples)."""
        x = self._inputs(X)
        with torch.no_grad():
            joint = self.predictor_.joint(x)
        draws = joint_draws(joint, self.predictor_.observation, n_samples, check_random_state(random_state))
        return draws[:, 0] if self._vector_target else draws

    def score(self, X, y, sample_weight=None) -> float:
        """R² of the predictive mean; :mod:`candid.metrics` has scores of the whole distribution."""
        return super().score(X, y, sample_weight)

    def _joint(self, x: torch.Tensor) -> tuple[np.ndarray, np.ndarray]:
        """Mean (row, output) and covariance (row, row, output) of new observations.

        Where outputs are correlated, the covariance has another axis of them.
        """
        with torch.no_grad():
            joint, observation = self.predictor_.joint(x), self.predictor_.observation
            if isinstance(observation, CoregionalisedObservation):
                return observation.together(joint)
            joint = joint.mixed()
            noise = torch.diag_embed(self.predictor_.noise_variance[:, None].expand(-1, joint.mean.shape[0]))
            covariance = (joint.covariance + noise).movedim(0, -1)
        return joint.mean.double().numpy(), covariance.double().numpy()

    def _shaped(self, values: np.ndarray):
        """Drop the output axis where y was a vector."""
        if not self._vector_target:
            return values
        return values[..., 0] if values.ndim > 1 else float(values[0])


@gp_estimator
class GPRegressor(GP, Regressor):
    """A GP whose targets are numbers."""

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **GP._parameter_constraints,
        **Regressor._parameter_constraints,
    }
    _shaping: ClassVar[tuple[str, ...]] = (*GP._shaping, "likelihood")
