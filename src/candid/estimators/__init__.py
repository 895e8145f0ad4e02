"""scikit-learn estimators: one class for each family, one function for every method."""

from candid.estimators.bayesian import BayesianGPRegressor
from candid.estimators.bayesian_classifier import BayesianGPClassifier
from candid.estimators.deep import DeepGPRegressor
from candid.estimators.deep_classifier import DeepGPClassifier
from candid.estimators.exact import ExactGPRegressor
from candid.estimators.factory import make_gp
from candid.estimators.files import load
from candid.estimators.neighbor_classifier import NeighborGPClassifier
from candid.estimators.neighbors import NeighborGPRegressor
from candid.estimators.network import NetworkRegressor
from candid.estimators.sparse import SparseGPRegressor
from candid.estimators.sparse_classifier import SparseGPClassifier

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
    "load",
    "make_gp",
]
