"""Row objectives: one number for each row (and chain), from the marginal of its latent values.

Outputs are summed; sites are averaged or mixed; chains are left alone. With r = y − mean, residual c and spread s, and
Gaussian noise σ²:

===========  ======================================================================
elbo         log N(r; 0, σ²) − (c+s)/(2σ²)
predictive   log N(r; 0, c+s+σ²)
vfitc        log N(r; 0, c+σ²) − s/(2(c+σ²))
fitc_elbo    log N(r; 0, c+σ²) − (c+s)/(2(c+σ²))
robust       (γ/g)·expm1(log E_q[p^g] − (g/γ) log ∫p^γ),  g = γ − 1
polya_gamma  bound of the elbo's term for logistic likelihoods; there is none here
===========  ======================================================================
"""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor

from candid.marginal import Marginal

__all__ = [
    "BlurredRowLikelihood",
    "LogisticRowLikelihood",
    "RobustRowLikelihood",
    "RowLikelihood",
    "elbo",
    "fitc_elbo",
    "polya_gamma",
    "predictive",
    "robust",
    "vfitc",
]


@runtime_checkable
class RowLikelihood(Protocol):
    """A likelihood at the rows of a batch: both averages over f ~ N(mean, variance)."""

    def expected_log_density(self, y: Tensor, mean: Tensor, variance: Tensor) -> Tensor: ...

    def log_expected_density(self, y: Tensor, mean: Tensor, variance: Tensor) -> Tensor: ...


@runtime_checkable
class BlurredRowLikelihood(RowLikelihood, Protocol):
    """A likelihood that can take a part of f's variance for noise: p(y|g) = E p(y|g + e) for e ~ N(0, variance)."""

    def blurred(self, variance: Tensor) -> RowLikelihood: ...


@runtime_checkable
class LogisticRowLikelihood(Protocol):
    """A likelihood with a bound by Pólya–Gamma variables."""

    def expected_log_bound(self, y: Tensor, mean: Tensor, variance: Tensor) -> Tensor: ...


@runtime_checkable
class RobustRowLikelihood(Protocol):
    """A likelihood with a γ-score."""

    def robust_score(self, y: Tensor, mean: Tensor, variance: Tensor, gamma: float) -> Tensor: ...


def elbo(marginal: Marginal, likelihood: RowLikelihood, y: Float[Tensor, "n p"]) -> Float[Tensor, "*chains n"]:
    """E_q log p(y|f). With a point estimate of v this is the data term of ``map``."""
    return _site_mean(marginal, likelihood.expected_log_density(y, marginal.mean, marginal.variance))


def predictive(marginal: Marginal, likelihood: RowLikelihood, y: Float[Tensor, "n p"]) -> Float[Tensor, "*chains n"]:
    """log E_q p(y|f): the log-density that prediction will use."""
    terms = likelihood.log_expected_density(y, marginal.mean, marginal.uncertainty).sum(-1)
    # log Σ_j ω_j E_j p(y|f)
    return terms if marginal.log_weight is None else torch.logsumexp(marginal.log_weight + terms, dim=-2)


def vfitc(marginal: Marginal, likelihood: BlurredRowLikelihood, y: Float[Tensor, "n p"]) -> Float[Tensor, "*chains n"]:
    """E_q(v) log E p(y|f) over f given v: the residual counts as noise, the spread as uncertainty.

    For Gaussian noise log N(r; 0, c+σ²) − s/(2(c+σ²)); with the best q(v), all rows give FITC's marginal likelihood.
    """
    blurred = likelihood.blurred(marginal.residual)
    return _site_mean(marginal, blurred.expected_log_density(y, marginal.mean, marginal.spread))


def fitc_elbo(
    marginal: Marginal, likelihood: BlurredRowLikelihood, y: Float[Tensor, "n p"]
) -> Float[Tensor, "*chains n"]:
    """The ELBO under the blurred likelihood, where the residual counts twice: as noise and as uncertainty.

    For Gaussian noise log N(r; 0, c+σ²) − (c+s)/(2(c+σ²)).
    """
    blurred = likelihood.blurred(marginal.residual)
    return _site_mean(marginal, blurred.expected_log_density(y, marginal.mean, marginal.variance))


def robust(
    marginal: Marginal, likelihood: RobustRowLikelihood, y: Float[Tensor, "n p"], gamma: float = 1.03
) -> Float[Tensor, "*chains n"]:
    """The γ-score of q: far outliers cost a bounded amount. γ > 1; as γ → 1 it becomes the ELBO's data term."""
    return _site_mean(marginal, likelihood.robust_score(y, marginal.mean, marginal.variance, gamma))


def polya_gamma(
    marginal: Marginal, likelihood: LogisticRowLikelihood, y: Float[Tensor, "n p"]
) -> Float[Tensor, "*chains n"]:
    """A lower bound of E_q log p(y|f), in which y is normal given Pólya–Gamma variables ω.

    q(ω) is the best one, with c = √E f², and held fixed when this is differentiated: it makes a natural gradient step
    of rate one with all rows end at the best q(v) for these ω.
    """
    return _site_mean(marginal, likelihood.expected_log_bound(y, marginal.mean, marginal.variance))


def _site_mean(marginal: Marginal, terms: Tensor) -> Tensor:
    """Σ_j ω_j term_j over sites, of terms that are summed over outputs."""
    terms = terms.sum(-1)
    return terms if marginal.log_weight is None else (marginal.log_weight.exp() * terms).sum(-2)
