"""Small tables, and models fitted to them once."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from candid import ExactGPRegressor, NeighborGPRegressor, SparseGPRegressor, make_gp


@pytest.fixture(scope="session")
def table() -> tuple[np.ndarray, np.ndarray]:
    """120 noisy rows of a smooth function of three features in very different units."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(120, 3)) * [1.0, 50.0, 0.01] + [0.0, 1000.0, 5.0]
    y = 30.0 * np.sin(X[:, 0]) + 0.2 * (X[:, 1] - 1000.0) + rng.normal(scale=3.0, size=120) + 200.0
    return X, y


@pytest.fixture(scope="session")
def new_rows() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(1)
    X = rng.normal(size=(40, 3)) * [1.0, 50.0, 0.01] + [0.0, 1000.0, 5.0]
    y = 30.0 * np.sin(X[:, 0]) + 0.2 * (X[:, 1] - 1000.0) + rng.normal(scale=3.0, size=40) + 200.0
    return X, y


@pytest.fixture(scope="session")
def quick():
    """Makes sparse models that train in a blink: ``quick(covariance="none")``."""
    return partial(SparseGPRegressor, n_inducing=20, max_epochs=20, lr=0.01, random_state=0)


METHODS = ("exact", "svgp", "ppgpr-chol", "ppgpr-mf", "ppgpr-delta", "map", "loo-k", "mll-k", "vecchia")
NEIGHBOURS = {"n_neighbors": 12, "max_epochs": 8}


@pytest.fixture(scope="session")
def fitted(table):
    """One fitted model of each method."""
    short = {"exact": {}, **dict.fromkeys(("loo-k", "mll-k", "vecchia"), NEIGHBOURS)}
    inducing = {"n_inducing": 20, "max_epochs": 20}
    return {name: make_gp(name, random_state=0, **short.get(name, inducing)).fit(*table) for name in METHODS}


@pytest.fixture(params=METHODS)
def model(request, fitted):
    """Each of the fitted models in turn."""
    return fitted[request.param]


@pytest.fixture(params=[ExactGPRegressor, SparseGPRegressor, NeighborGPRegressor])
def kind(request):
    """Each estimator class in turn."""
    return request.param


@pytest.fixture
def make(kind, quick):
    """Makes models of each class in turn that train in a blink."""
    short = {SparseGPRegressor: quick, NeighborGPRegressor: partial(NeighborGPRegressor, random_state=0, **NEIGHBOURS)}
    return short.get(kind, kind)
