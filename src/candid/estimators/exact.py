"""The exact GP."""

from __future__ import annotations

from numbers import Integral
from typing import Any, ClassVar

import torch
from sklearn.utils._param_validation import Interval, StrOptions

from candid.engines import Plan, Problem
from candid.estimators.base import GPRegressor, gp_estimator
from candid.estimators.fitting import Setting
from candid.estimators.inputs import Table
from candid.families import Exact
from candid.methods import Composition

__all__ = ["ExactGPRegressor"]

# A factorisation takes seconds and gigabytes beyond this.
MOST_ROWS = 5000


@gp_estimator
class ExactGPRegressor(GPRegressor):
    """Exact Gaussian process regression, for up to a few thousand rows.

    Hyper-parameters maximise the log marginal likelihood by L-BFGS, in float64.

    Parameters
    ----------
    solver : {"cholesky"}, default="cholesky"
        How linear systems with the N×N covariance are solved.
    max_epochs : int, default=40
        Most rounds of L-BFGS, five iterations each; it usually converges sooner.
    kernel, ard, mean, likelihood, priors, fixed, alpha, standardize, time_budget, validation_fraction, patience, \
n_restarts, device, n_threads, predict_dtype, random_state, verbose, checkpoint_dir, callbacks
        As for :class:`SparseGPRegressor`.

    Attributes
    ----------
    predictor_, kernel_, noise_, history_, jitter_, n_features_in_, feature_names_in_
        As for :class:`SparseGPRegressor`.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from candid import ExactGPRegressor
    >>> X, y = load_diabetes(return_X_y=True)
    >>> mean, std = ExactGPRegressor().fit(X, y).predict(X[:3], return_std=True)
    """

    solver: str = "cholesky"
    max_epochs: int = 40

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **GPRegressor._parameter_constraints,
        "solver": [StrOptions({"cholesky"})],
        "max_epochs": [Interval(Integral, 0, None, closed="left")],
    }

    def _composition(self) -> Composition:
        return Composition("exact", None, "marginal_likelihood", {"all": "lbfgs"})

    def _model_dtype(self) -> torch.dtype:
        return torch.float64

    def _check_table(self, table: Table) -> None:
        if len(table) > MOST_ROWS:
            raise ValueError(
                f"an exact GP on {len(table)} rows would need a matrix of {len(table)}² entries; beyond {MOST_ROWS} "
                'rows use inducing points: candid.make_gp("ppgpr-chol") or candid.make_gp("svgp")'
            )

    def _plan(self, n_rows: int, seed: int) -> Plan:
        return Plan(
            steppers=self._composition().steppers,
            max_epochs=self.max_epochs,
            batch_size=n_rows,
            patience=self.patience,
            seed=seed,
        )

    def _build(self, setting: Setting, seed: int) -> Problem:
        rows = setting.rows
        kernel, mean, likelihood, prior = self._parts(setting)
        if setting.start is not None:
            for part, earlier in ((kernel, "kernel"), (mean, "mean")):
                part.load_state_dict(getattr(setting.start.family, earlier).state_dict())
            if likelihood.known is None:
                likelihood.load_state_dict(setting.start.likelihood.state_dict())
        family = Exact(kernel, mean, rows.x, likelihood.sites(rows.y), rows.weight).to(rows.x)
        return Problem(family, likelihood, self._composition().objective, prior=prior)
