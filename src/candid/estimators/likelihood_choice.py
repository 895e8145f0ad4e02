"""Regression with a choice of likelihoods: normal noise, Student's t noise, counts."""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
import torch
from sklearn.utils._param_validation import Interval

from candid.engines import Rows
from candid.estimators.core import gp_estimator
from candid.estimators.inputs import Table
from candid.estimators.several_outputs import NAMES, SeveralOutputs
from candid.likelihoods import Binomial, Likelihood, NegativeBinomial, StudentT
from candid.likelihoods.student_t import FREEDOM
from candid.predictive import Predictive

__all__ = ["COUNTS", "LikelihoodChoice"]

#: Likelihoods of counts, which are not standardised.
COUNTS = ("binomial", "negative-binomial")
#: All that there are for numbers.
OF_NUMBERS = ("gaussian", "student-t", *COUNTS)


@gp_estimator
class LikelihoodChoice(SeveralOutputs):
    """Parameters of likelihoods other than the normal one, and what follows from them."""

    n_trials: int | np.ndarray | None = None
    freedom: float | None = None

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **SeveralOutputs._parameter_constraints,
        "n_trials": [Interval(Integral, 1, None, closed="left"), "array-like", None],
        "freedom": [Interval(Real, 2, FREEDOM[1], closed="neither"), None],
    }

    @property
    def _real_targets(self) -> bool:
        return self.likelihood not in COUNTS

    def _known(self) -> tuple[str, Any]:
        if self.alpha is not None and self.likelihood != "gaussian":
            raise ValueError(f"alpha is a variance of normal noise; likelihood={self.likelihood!r} has none")
        if (self.likelihood == "binomial") != (self.n_trials is not None):
            raise ValueError("n_trials, the number of trials in each row, is for likelihood='binomial', which needs it")
        each = self.likelihood == "binomial" and not isinstance(self.n_trials, Integral)
        return ("n_trials", self.n_trials) if each else ("alpha", self.alpha)

    def _make_likelihood(self, rows: Rows) -> Likelihood:
        n_outputs = rows.y.shape[1]
        if self.likelihood == "student-t":
            return StudentT.with_freedom(self.freedom, n_outputs)
        if self.likelihood == "negative-binomial":
            return NegativeBinomial(n_outputs=n_outputs)
        if self.likelihood == "binomial":
            if rows.noise is not None:
                return Binomial(rows.noise)
            assert isinstance(self.n_trials, Integral)
            return Binomial(torch.full((1, n_outputs), float(self.n_trials)))
        return super()._make_likelihood(rows)

    def _check_combination(self) -> None:
        if self._likelihood_name() not in (*OF_NUMBERS, *NAMES):
            names = " or ".join(map(repr, OF_NUMBERS))
            raise ValueError(
                f"regression has no {self.likelihood!r} likelihood; use likelihood={names}, or for labels a classifier"
            )
        super()._check_combination()

    def _check_table(self, table: Table) -> None:
        super()._check_table(table)
        if self._real_targets:
            return
        if (table.y < 0).any() or (table.y != np.floor(table.y)).any():
            raise ValueError(f"likelihood={self.likelihood!r} is for counts 0, 1, 2, …, and y has other numbers")
        trials = self.n_trials if table.noise is None else table.noise
        if self.likelihood == "binomial" and ((table.y > trials).any() or np.any(np.asarray(trials) < 1)):
            raise ValueError("y must not be larger than n_trials, and there must be one trial at least in each row")

    def predict_distribution(self, X, alpha=None, n_trials=None) -> Predictive:
        """The predictive distribution of each row, in the units of y, of the kind that the likelihood has.

        Parameters
        ----------
        X : array-like of shape (N, D)
        alpha : float or array-like of shape (N,) or (N, P), optional
            Known variance of normal noise in these rows, instead of what the model has learned or averaged.
        n_trials : int or array-like of shape (N,) or (N, P), optional
            Numbers of trials of binomial counts, where each row has its own.
        """
        x = self._inputs(X)
        if self.likelihood in COUNTS and alpha is not None:
            raise ValueError(f"alpha is a variance of normal noise; likelihood={self.likelihood!r} has none")
        if self.likelihood != "binomial" and n_trials is not None:
            raise ValueError(f"n_trials is for binomial counts; likelihood={self.likelihood!r} has no trials")
        name, known = ("n_trials", n_trials) if self.likelihood == "binomial" else ("alpha", alpha)
        return self._distribution(x, name, known)
