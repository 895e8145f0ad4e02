"""Scorers for scikit-learn's model selection: ``GridSearchCV(gp, grid, scoring=candid.metrics.nll_scorer)``.

They are negated losses, because a larger score wins there. The estimator may also be a pipeline that ends in one of
Candid's.
"""

from __future__ import annotations

from collections.abc import Callable
from types import MappingProxyType
from typing import Any

from numpy.typing import ArrayLike

from candid.metrics._checks import average
from candid.metrics.regression import crps, nll, rmse
from candid.predictive import PredictiveCategorical

__all__ = ["SCORERS", "crps_scorer", "nll_scorer", "rmse_scorer"]


def nll_scorer(estimator: Any, X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
    """Mean log predictive density of ``y``, or of its labels the log probability."""
    prediction = _distribution(estimator, X)
    if isinstance(prediction, PredictiveCategorical):
        return average(prediction.log_prob(y), sample_weight)
    return -nll(y, prediction, sample_weight=sample_weight)


def crps_scorer(estimator: Any, X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
    """Mean continuous ranked probability score, negated."""
    return -crps(y, _distribution(estimator, X), sample_weight=sample_weight)


def rmse_scorer(estimator: Any, X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
    """Root mean squared error of the predictive mean, negated."""
    return -rmse(y, _distribution(estimator, X), sample_weight=sample_weight)


SCORERS: MappingProxyType[str, Callable[..., float]] = MappingProxyType(
    {"candid_nll": nll_scorer, "candid_crps": crps_scorer, "candid_rmse": rmse_scorer}
)


def _distribution(estimator: Any, X: Any) -> Any:
    if hasattr(estimator, "predict_distribution"):
        return estimator.predict_distribution(X)
    if hasattr(estimator, "steps"):
        for _, step in estimator.steps[:-1]:
            if step is not None and step != "passthrough":
                X = step.transform(X)
        return _distribution(estimator.steps[-1][1], X)
    raise TypeError(
        f"{type(estimator).__name__} has no predict_distribution: this scorer is for Candid's estimators "
        "and for pipelines that end in one"
    )
