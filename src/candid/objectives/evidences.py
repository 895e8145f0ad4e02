"""Evidences: the joint log-density of groups of rows under the prior and the noise."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor

from candid.linalg import normal_log_density
from candid.marginal import JointPrior

__all__ = ["NoiseRows", "marginal_likelihood"]


@runtime_checkable
class NoiseRows(Protocol):
    """A Gaussian likelihood at the rows of a batch."""

    @property
    def variance(self) -> Tensor: ...


def marginal_likelihood(
    prior: JointPrior, likelihood: NoiseRows, y: Float[Tensor, "n p"], weight: Float[Tensor, " n"]
) -> Float[Tensor, "*chains"]:
    """log p(y) of all rows together, summed over independent outputs.

    A row of weight w counts as w identical rows: these say of f what one row with noise σ²/w says, and their
    agreement with each other adds −½(w−1) log(2πσ²) − ½ log w.
    """
    noise = likelihood.variance.expand(torch.broadcast_shapes(likelihood.variance.shape, y.shape))
    # log N(y; mu, K + diag(σ²/w))
    covariance = prior.covariance + torch.diag_embed((noise / weight.unsqueeze(-1)).mT)
    residual = (y - prior.mean).mT.expand(covariance.shape[:-1])
    joint = normal_log_density(covariance, residual).sum(-1)
    agreement = -0.5 * ((weight.unsqueeze(-1) - 1) * (2 * torch.pi * noise).log() + weight.log().unsqueeze(-1))
    return joint + agreement.sum((-2, -1))
