"""Factorisations and solves that do not crash, with gradients written by hand where a closed form exists."""

from candid.linalg.autograd import first_order
from candid.linalg.cholesky import Factor, NotPositiveDefinite, cholesky
from candid.linalg.coefficients import kernel_coefficients
from candid.linalg.conditional import condition
from candid.linalg.density import normal_log_density
from candid.linalg.divergence import divergence_from_standard
from candid.linalg.incomplete import incomplete_moments
from candid.linalg.joint_conditional import condition_together
from candid.linalg.low_rank import low_rank_log_density
from candid.linalg.neighbours import ApproximateIndex, Graph, NeighbourIndex, nearest
from candid.linalg.ordering import ORDERINGS
from candid.linalg.projection import project
from candid.linalg.relative import (
    WhitenedPair,
    lower_product,
    residual_squares,
    transposed_lower_product,
    whiten_pair,
)
from candid.linalg.stationary_conditional import (
    CompiledProfile,
    can_compile,
    condition_stationary,
    machine_code_takes,
    without_machine_code,
)
from candid.linalg.subset import Inferred, infer
from candid.linalg.whitening import whiten

__all__ = [
    "ORDERINGS",
    "ApproximateIndex",
    "CompiledProfile",
    "Factor",
    "Graph",
    "Inferred",
    "NeighbourIndex",
    "NotPositiveDefinite",
    "WhitenedPair",
    "can_compile",
    "cholesky",
    "condition",
    "condition_stationary",
    "condition_together",
    "divergence_from_standard",
    "first_order",
    "incomplete_moments",
    "infer",
    "kernel_coefficients",
    "low_rank_log_density",
    "lower_product",
    "machine_code_takes",
    "nearest",
    "normal_log_density",
    "project",
    "residual_squares",
    "transposed_lower_product",
    "whiten",
    "whiten_pair",
    "without_machine_code",
]
