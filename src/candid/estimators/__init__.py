"""scikit-learn estimators: one class for each family, one function for every method."""

from candid.estimators.exact import ExactGPRegressor
from candid.estimators.factory import make_gp
from candid.estimators.files import load
from candid.estimators.neighbors import NeighborGPRegressor
from candid.estimators.network import NetworkRegressor
from candid.estimators.sparse import SparseGPRegressor

__all__ = ["ExactGPRegressor", "NeighborGPRegressor", "NetworkRegressor", "SparseGPRegressor", "load", "make_gp"]
