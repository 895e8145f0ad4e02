"""Two classes: y is 0 or 1, and 1 with probability σ(f) or Φ(f)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid
from torch.special import log_ndtr

from candid.likelihoods import polya_gamma
from candid.likelihoods.base import Likelihood, Surrogate
from candid.likelihoods.quadrature import average, log_average, window

__all__ = ["Bernoulli", "LogitRows", "ProbitRows"]

Link = Literal["logit", "probit"]
# Φ(f) is nowhere farther than 0.01 from σ(1.702 f).
STEEPER = 1.702


@dataclass(frozen=True)
class LogitRows:
    """p(y = 1|f) = σ(f) = 1/(1 + exp(−f)), by quadrature."""

    def expected_log_density(self, y: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
        """E log p(y|f) for f ~ N(mean, variance)."""
        return average(logsigmoid, _sign(y) * mean, variance)

    def log_expected_density(self, y: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
        """log E p(y|f) for f ~ N(mean, variance)."""
        # p(y|f) = σ(±f), with derivative of the logarithm σ(∓f)
        mean = _sign(y) * mean
        ends = window(logsigmoid, lambda f: torch.sigmoid(-f), mean, variance)
        return log_average(logsigmoid, mean, variance, ends)

    def expected_log_bound(self, y: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
        """A lower bound of E log p(y|f) by Pólya–Gamma variables."""
        return polya_gamma.expected_log_bound(torch.ones_like(y), y - 0.5, mean, variance)

    def pseudo_observations(self, y: Tensor, mean: Tensor, variance: Tensor) -> tuple[Tensor, Tensor]:
        """(y − ½)/E ω with precision E ω, for ω ~ PG(1, √E f²)."""
        precision = polya_gamma.mean_precision(torch.sqrt(mean.square() + variance))
        return (y - 0.5) / precision, precision


@dataclass(frozen=True)
class ProbitRows:
    """p(y = 1|f) = Φ(f); the predictive probability is Φ(mean/√(1 + variance))."""

    def expected_log_density(self, y: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
        """E log p(y|f) for f ~ N(mean, variance), by quadrature."""
        return average(log_ndtr, _sign(y) * mean, variance)

    def log_expected_density(self, y: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
        """log E p(y|f) for f ~ N(mean, variance)."""
        return log_ndtr(_sign(y) * mean * torch.rsqrt(1 + variance))

    def pseudo_observations(self, y: Tensor, mean: Tensor, variance: Tensor) -> tuple[Tensor, Tensor]:
        """Those of a logistic function, Φ(f) ≈ σ(1.7 f)."""
        targets, precision = LogitRows().pseudo_observations(y, STEEPER * mean, STEEPER**2 * variance)
        return targets / STEEPER, STEEPER**2 * precision


class Bernoulli(Likelihood):
    """Two classes, y ∈ {0, 1}; there is nothing to learn.

    Parameters
    ----------
    link : {"logit", "probit"}
        Whether the probability of the second class is the logistic function of f or the normal distribution function.
    """

    def __init__(self, link: Link = "logit") -> None:
        super().__init__()
        if link not in get_args(Link):
            raise ValueError(f"link must be one of {', '.join(get_args(Link))}, got {link!r}")
        self.link = link

    def at(self, index: Tensor | None = None, known: Tensor | None = None) -> LogitRows | ProbitRows:
        return LogitRows() if self.link == "logit" else ProbitRows()

    def surrogate(self, y: Tensor) -> Surrogate:
        # Around f = 0, a label says of f what ±2 says with noise of variance 4.
        steeper = 1.0 if self.link == "logit" else STEEPER
        return Surrogate(2 * _sign(y) / steeper, unit=4 / steeper**2)


def _sign(y: Tensor) -> Tensor:
    return 2 * y - 1
