"""scikit-learn estimators: one class for each family, one function for every method."""

from candid.estimators.exact import ExactGPRegressor
from candid.estimators.factory import make_gp
from candid.estimators.files import load
from candid.estimators.sparse import SparseGPRegressor

__all__ = ["ExactGPRegressor", "SparseGPRegressor", "load", "make_gp"]
