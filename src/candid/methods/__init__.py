"""THE table: every method is a family × weights × objective × steppers, and nothing else.

A row says what a published method is made of, which estimator and flat parameters give it, what our own recipe changes
and what the published protocol was. Adding a method is adding a row here, or one class in one room.
"""

from candid.methods.bayesian import SAMPLED_OBJECTIVES, sampled_points
from candid.methods.compatibility import check_compatible, compatible
from candid.methods.composition import (
    COLLAPSED,
    EXACT,
    NEIGHBOURS,
    NETWORK,
    Composition,
    inducing_points,
    layers_of_gps,
    usual_beta,
)
from candid.methods.inducing import COLLAPSED_MOST_ROWS
from candid.methods.method import Method
from candid.methods.table import METHODS, MethodTable, find_method, methods

__all__ = [
    "COLLAPSED",
    "COLLAPSED_MOST_ROWS",
    "EXACT",
    "METHODS",
    "NEIGHBOURS",
    "NETWORK",
    "SAMPLED_OBJECTIVES",
    "Composition",
    "Method",
    "MethodTable",
    "check_compatible",
    "compatible",
    "find_method",
    "inducing_points",
    "layers_of_gps",
    "methods",
    "sampled_points",
    "usual_beta",
]
