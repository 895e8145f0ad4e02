"""scikit-learn's own checks: all of them on every class, and those about odd tables on variants."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from sklearn.utils.estimator_checks import estimator_checks_generator, parametrize_with_checks

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

# With their defaults, except for sizes that take long on a short table.
SHORT = {"n_inducing": 10, "max_epochs": 5}
SAMPLES = {"n_inducing": 10, "burn_in": 5, "n_samples": 4, "thin": 1}
LAYERS = {"hidden_widths": (2,), **SHORT}
RANDOM_SITES = {"propagation": "sampling", "objective": "elbo"}
MODELS = [
    BayesianGPClassifier(**SAMPLES),
    BayesianGPRegressor(**SAMPLES),
    DeepGPClassifier(**LAYERS),
    DeepGPRegressor(hidden_widths=(3,), n_inducing=20, max_epochs=20),
    ExactGPRegressor(),
    NeighborGPClassifier(n_neighbors=10, max_epochs=2),
    NeighborGPRegressor(),
    NetworkRegressor(max_epochs=20),
    SparseGPClassifier(**SHORT),
    SparseGPRegressor(n_inducing=20, max_epochs=20),
]
VARIANTS = [
    BayesianGPRegressor(hidden_widths=(2,), **SAMPLES),
    DeepGPClassifier(**LAYERS, **RANDOM_SITES),
    DeepGPRegressor(**LAYERS, **RANDOM_SITES, covariance="full"),
    NeighborGPRegressor(objective="mll"),
    NeighborGPRegressor(objective="vecchia"),
    NeighborGPRegressor(objective="swsgp"),
    NeighborGPRegressor(objective="alc"),
    SparseGPClassifier(**SHORT, objective="elbo", covariance="diagonal"),
    SparseGPClassifier(**SHORT, objective="polya_gamma"),
    SparseGPRegressor(**SHORT, covariance="diagonal"),
    SparseGPRegressor(**SHORT, objective="elbo", covariance="none"),
    SparseGPRegressor(**SHORT, outputs="coregionalised"),
]
# What depends on the model, not on how tables are read.
CHECKS_OF_VARIANTS = {
    "check_dict_unchanged",
    "check_estimators_pickle",
    "check_fit2d_1feature",
    "check_fit2d_1sample",
    "check_fit_idempotent",
    "check_methods_subset_invariance",
    "check_regressor_multioutput",
    "check_sample_weight_equivalence_on_dense_data",
}


@parametrize_with_checks(MODELS, expected_failed_checks=expected_failed_checks)
def test_check(estimator, check):
    check(estimator)


def checks_of_variants() -> Iterator[Any]:
    for variant in VARIANTS:
        for estimator, check in estimator_checks_generator(variant):
            name = getattr(check, "func", check).__name__
            if name in CHECKS_OF_VARIANTS:
                yield pytest.param(estimator, check, id=f"{variant}-{name}")


@pytest.mark.parametrize(("estimator", "check"), list(checks_of_variants()))
def test_check_of_variants(estimator, check):
    check(estimator)


def test_no_check_is_expected_to_fail():
    assert all(expected_failed_checks(model) == {} for model in MODELS)
