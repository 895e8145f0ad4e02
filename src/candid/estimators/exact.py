"""The exact GP."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from sklearn.utils._param_validation import StrOptions

from candid.engines import Plan, Problem, Resolvable
from candid.estimators.base import GPRegressor, gp_estimator
from candid.estimators.fitting import Setting
from candid.estimators.inputs import Table
from candid.families import Exact
from candid.methods import EXACT, Composition, find_method

__all__ = ["ExactGPRegressor"]

# Rounds of L-BFGS after which even a stubborn fit is good enough.
DEFAULT_ROUNDS = 40
# Share of a prior variance that rounding may make of what is left of it.
LEAST_LEFT = 1e-9


@gp_estimator
class ExactGPRegressor(GPRegressor):
    """Exact Gaussian process regression, for up to a few thousand rows.

    Hyper-parameters maximise the log marginal likelihood by L-BFGS, in float64.

    Parameters
    ----------
    solver : {"cholesky"}, default="cholesky"
        How linear systems with the N×N covariance are solved.
    max_epochs : int, optional
        Most rounds of L-BFGS, five iterations each; by default 40, and it usually converges sooner.
    batch_size, lr, schedule, dtype
        Shared with the other estimators, without effect here: all rows, a line search, float64.
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

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **GPRegressor._parameter_constraints,
        "solver": [StrOptions({"cholesky"})],
    }

    def _composition(self) -> Composition:
        return EXACT

    def _model_dtype(self) -> torch.dtype:
        return torch.float64

    def _check_table(self, table: Table) -> None:
        most = find_method("exact").most_rows
        if most is not None and len(table) > most:
            raise ValueError(
                f"an exact GP on {len(table)} rows would need a matrix of {len(table)}² entries; beyond {most} rows "
                'use inducing points: candid.make_gp("ppgpr-chol") or candid.make_gp("svgp")'
            )

    def _plan(self, setting: Setting, problem: Problem, seed: int) -> Plan:
        return Plan(
            steppers=EXACT.steppers,
            max_epochs=DEFAULT_ROUNDS if self.max_epochs is None else self.max_epochs,
            batch_size=len(setting.rows),
            patience=self.patience,
            seed=seed,
        )

    def _build(self, setting: Setting, seed: int) -> Problem:
        rows = setting.rows
        kernel, mean, likelihood, prior = self._parts(setting, seed)
        family = Exact(kernel, mean, rows.x, likelihood.sites(rows.y), rows.weight).to(rows.x)
        # What is left of the prior variance is a difference, of which a kernel that is too large leaves no digits.
        limited = Resolvable(prior, kernel, likelihood, rows, LEAST_LEFT)
        return Problem(family, likelihood, EXACT.objective, prior=limited)
