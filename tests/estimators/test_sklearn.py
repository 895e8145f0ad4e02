"""scikit-learn's own checks, on every class with its default parameters and on some variants."""

from __future__ import annotations

from sklearn.utils.estimator_checks import parametrize_with_checks

from candid import (
    BayesianGPClassifier,
    BayesianGPRegressor,
    DeepGPClassifier,
    DeepGPRegressor,
    ExactGPRegressor,
    NeighborGPClassifier,
    NeighborGPRegressor,
    NetworkRegressor,
    SparseGPClassifier,
    SparseGPRegressor,
)
from candid.testing import expected_failed_checks

MODELS = [
    BayesianGPClassifier(n_inducing=20, burn_in=20, n_samples=8, thin=2),
    BayesianGPRegressor(),
    DeepGPClassifier(),
    DeepGPClassifier(hidden_widths=(2,), n_inducing=10, max_epochs=5, propagation="sampling", objective="elbo"),
    DeepGPRegressor(),
    DeepGPRegressor(hidden_widths=(3,), propagation="sampling", objective="elbo", covariance="full"),
    ExactGPRegressor(),
    NeighborGPClassifier(),
    NeighborGPRegressor(),
    NeighborGPRegressor(objective="mll"),
    NeighborGPRegressor(objective="vecchia"),
    NeighborGPRegressor(objective="swsgp"),
    NeighborGPRegressor(objective="alc"),
    NetworkRegressor(),
    SparseGPClassifier(),
    SparseGPClassifier(objective="elbo", covariance="diagonal"),
    SparseGPClassifier(objective="polya_gamma"),
    SparseGPRegressor(),
    SparseGPRegressor(covariance="diagonal"),
    SparseGPRegressor(objective="elbo", covariance="none"),
]


@parametrize_with_checks(MODELS, expected_failed_checks=expected_failed_checks)
def test_check(estimator, check):
    check(estimator)


def test_no_check_is_expected_to_fail():
    assert all(expected_failed_checks(model) == {} for model in MODELS)
