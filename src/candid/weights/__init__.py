"""q(v): what is known about the whitened inducing values, v ~ N(0, I) before the data."""

from candid.weights.base import Weights
from candid.weights.delta import Delta
from candid.weights.normal import Diagonal, Full, Solved
from candid.weights.solve import optimal_weights

__all__ = ["Delta", "Diagonal", "Full", "Solved", "Weights", "optimal_weights"]
