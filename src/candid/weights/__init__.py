"""q(v): what is known about the whitened inducing values, v ~ N(0, I) before the data."""

from candid.weights.base import Weights
from candid.weights.critic import Critic
from candid.weights.delta import Delta
from candid.weights.implicit import Implicit
from candid.weights.natural import natural_step
from candid.weights.normal import Diagonal, Full, Solved
from candid.weights.solve import optimal_weights

#: Kinds of q(v) by the name under which a method speaks of them.
WEIGHTS: dict[str, type[Weights]] = {"delta": Delta, "diagonal": Diagonal, "full": Full, "solved": Solved}

__all__ = [
    "WEIGHTS",
    "Critic",
    "Delta",
    "Diagonal",
    "Full",
    "Implicit",
    "Solved",
    "Weights",
    "natural_step",
    "optimal_weights",
]
