"""Gaussian processes for large tables that say honestly how sure they are."""

from candid import datasets, kernels, metrics, plots, priors, testing
from candid.estimators import (
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
    load,
    make_gp,
)
from candid.methods import methods

__version__ = "0.1.0"

__all__ = [
    "BayesianGPClassifier",
    "BayesianGPRegressor",
    "DeepGPClassifier",
    "DeepGPRegressor",
    "ExactGPRegressor",
    "NeighborGPClassifier",
    "NeighborGPRegressor",
    "NetworkRegressor",
    "SparseGPClassifier",
    "SparseGPRegressor",
    "__version__",
    "datasets",
    "kernels",
    "load",
    "make_gp",
    "methods",
    "metrics",
    "plots",
    "priors",
    "testing",
]
