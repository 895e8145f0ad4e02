"""Row objectives: one number for each row (and chain), from the marginal of its latent values.

Outputs are summed; sites are averaged or mixed; chains are left alone.
"""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor

from candid.marginal import Marginal

__all__ = ["RowLikelihood", "elbo", "predictive"]


@runtime_checkable
class RowLikelihood(Protocol):
    """A likelihood at the rows of a batch: both averages over f ~ N(mean, variance)."""

    def expected_log_density(self, y: Tensor, mean: Tensor, variance: Tensor) -> Tensor: ...

    def log_expected_density(self, y: Tensor, mean: Tensor, variance: Tensor) -> Tensor: ...


def elbo(marginal: Marginal, likelihood: RowLikelihood, y: Float[Tensor, "n p"]) -> Float[Tensor, "*chains n"]:
    """E_q log p(y|f). With a point estimate of v this is the data term of ``map``."""
    terms = likelihood.expected_log_density(y, marginal.mean, marginal.variance).sum(-1)
    # Σ_j ω_j E_j log p(y|f)
    return terms if marginal.log_weight is None else (marginal.log_weight.exp() * terms).sum(-2)


def predictive(marginal: Marginal, likelihood: RowLikelihood, y: Float[Tensor, "n p"]) -> Float[Tensor, "*chains n"]:
    """log E_q p(y|f): the log-density that prediction will use."""
    terms = likelihood.log_expected_density(y, marginal.mean, marginal.variance).sum(-1)
    # log Σ_j ω_j E_j p(y|f)
    return terms if marginal.log_weight is None else torch.logsumexp(marginal.log_weight + terms, dim=-2)
