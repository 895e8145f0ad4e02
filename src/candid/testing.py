"""Help for running scikit-learn's estimator checks on candid's estimators."""

from __future__ import annotations

from sklearn.base import BaseEstimator

__all__ = ["expected_failed_checks"]


def expected_failed_checks(estimator: BaseEstimator) -> dict[str, str]:
    """Checks of scikit-learn that an estimator is not meant to pass, each with the reason. At present there are none.

    Give it to ``parametrize_with_checks(..., expected_failed_checks=expected_failed_checks)``.
    """
    return {}
