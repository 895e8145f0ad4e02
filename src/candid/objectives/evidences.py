"""Evidences: the joint log-density of groups of rows under the prior and the noise.

A row of weight w counts as w identical rows: these say of f what one row with noise σ²/w says, and their agreement with
each other adds −½(w−1) log(2πσ²) − ½ log w.

On a low-rank prior, with Q = AᵀA and residual variances c:

    sgpr = log N(y; mu, Q + σ²I) − Σ_i c_i/(2σ²)         (Titsias 2009, a lower bound of log p(y))
    fitc = log N(y; mu, Q + diag(c) + σ²I)               (Snelson and Ghahramani 2006)

Their cost is that of M²N, and nothing of size N×N is built.

Where each row is known given the rows before it, the chain rule is a sum over rows: log p(y) = Σ_n log p(y_n | …).
"""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor

from candid.linalg import low_rank_log_density, normal_log_density
from candid.marginal import JointPrior, LowRankPrior, Marginal

__all__ = ["NoiseRows", "chain_rule", "fitc", "marginal_likelihood", "sgpr"]


@runtime_checkable
class NoiseRows(Protocol):
    """A Gaussian likelihood at the rows of a batch."""

    @property
    def variance(self) -> Tensor: ...


def marginal_likelihood(
    prior: JointPrior, likelihood: NoiseRows, y: Float[Tensor, "*#chains n p"], weight: Float[Tensor, "*#chains n"]
) -> Float[Tensor, "*chains"]:
    """log p(y) of all rows together, summed over independent outputs; of groups of rows, that of each group."""
    noise, _ = torch.broadcast_tensors(likelihood.variance, y)
    # log N(y; mu, K + diag(σ²/w))
    covariance = prior.covariance + torch.diag_embed((noise / weight.unsqueeze(-1)).mT)
    residual = (y - prior.mean).mT.expand(covariance.shape[:-1])
    return normal_log_density(covariance, residual).sum(-1) + _agreement(noise, weight)


def sgpr(
    prior: LowRankPrior, likelihood: NoiseRows, y: Float[Tensor, "n p"], weight: Float[Tensor, " n"]
) -> Float[Tensor, "*chains"]:
    """The ELBO of all rows with the best q(v), summed over independent outputs."""
    noise, _ = torch.broadcast_tensors(likelihood.variance, y)
    # Σ_i w_i c_i/(2σ²)
    unexplained = 0.5 * (weight.unsqueeze(-1) * prior.residual / noise).sum((-2, -1))
    return _low_rank_density(prior, noise, y, weight) - unexplained


def fitc(
    prior: LowRankPrior, likelihood: NoiseRows, y: Float[Tensor, "n p"], weight: Float[Tensor, " n"]
) -> Float[Tensor, "*chains"]:
    """log p(y) under FITC's prior, summed over independent outputs.

    FITC's residuals are independent, also those of identical rows: they are noise like any other.
    """
    return _low_rank_density(prior, prior.residual + likelihood.variance, y, weight)


def chain_rule(
    prior: Marginal, likelihood: NoiseRows, y: Float[Tensor, "n p"], weight: Float[Tensor, " n"]
) -> Float[Tensor, "*chains"]:
    """What rows add to log p(y), each given the rows before it, summed over independent outputs."""
    noise, _ = torch.broadcast_tensors(likelihood.variance, y)
    # log N(y; mean, variance + σ²/w)
    total = prior.variance + noise / weight.unsqueeze(-1)
    densities = -0.5 * ((2 * torch.pi * total).log() + (y - prior.mean).square() / total)
    return densities.sum((-2, -1)) + _agreement(noise, weight)


def _low_rank_density(
    prior: LowRankPrior, noise: Float[Tensor, "*#chains n p"], y: Float[Tensor, "n p"], weight: Float[Tensor, " n"]
) -> Float[Tensor, "*chains"]:
    """log N(y; mu, Q + diag(noise)) of weighted rows."""
    joint = low_rank_log_density(prior.features, (noise / weight.unsqueeze(-1)).mT, (y - prior.mean).mT)
    return joint.sum(-1) + _agreement(noise, weight)


def _agreement(noise: Float[Tensor, "*chains n p"], weight: Float[Tensor, "*#chains n"]) -> Float[Tensor, "*chains"]:
    """What the w identical rows behind each row add by agreeing with each other."""
    # −½(w−1) log(2πσ²) − ½ log w
    copies = (weight.unsqueeze(-1) - 1) * (2 * torch.pi * noise).log() + weight.log().unsqueeze(-1)
    return -0.5 * copies.sum((-2, -1))
