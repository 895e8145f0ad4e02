"""Help for running scikit-learn's estimator checks on candid's estimators."""

from __future__ import annotations

from sklearn.base import BaseEstimator

from candid.estimators import SparseGPRegressor

__all__ = ["expected_failed_checks"]


def expected_failed_checks(estimator: BaseEstimator) -> dict[str, str]:
    """Checks of scikit-learn that an estimator is not meant to pass, each with the reason.

    Give it to ``parametrize_with_checks(..., expected_failed_checks=expected_failed_checks)``.
    """
    if not isinstance(estimator, SparseGPRegressor):
        return {}
    reason = (
        "training is stochastic: a table with repeated rows is cut into other mini-batches and other k-means clusters "
        "than the same table with weights, so the two fits agree only statistically"
    )
    return {
        "check_sample_weight_equivalence_on_dense_data": reason,
        "check_sample_weight_equivalence_on_sparse_data": reason,
    }
