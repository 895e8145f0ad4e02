"""Pólya–Gamma variables ω, which turn the logistic likelihood into a Gaussian one.

σ(f) = ½ ∫ exp(f/2 − ωf²/2) PG(ω; 1, 0) dω, so that given ω a label y ∈ {−1, 1} is an observation y/(2ω) of f with noise
variance 1/ω. Here are the density of PG(1, 0), and a log-normal q(ω) with its divergence from it.

References
----------
Polson, Scott, Windle (2013): the augmentation. Biane, Pitman, Yor (2001): both series of the density. Wenzel,
Galy-Fajou, Donner, Kloft, Opper (2019): the bound for Gaussian processes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from candid.likelihoods.quadrature import gauss_hermite

__all__ = ["CLOSEST_LOCATION", "CLOSEST_SCALE", "LogNormal", "expected_log_bound", "log_density", "mean_precision"]

# The log-normal distribution that is closest to PG(1, 0).
CLOSEST_LOCATION, CLOSEST_SCALE = -1.69, 0.77
# Where the two series meet. There the fifth term of the first is 4e-17, and the fourth of the second 1e-25.
BORDER = 0.25
# Good to 1e-6 for scales up to 1; the closest log-normal to PG(1, c) has a smaller scale than that to PG(1, 0).
N_NODES = 32
# Below this, c² is a rounding error of one.
SMALL = 1e-3
LOG_2PI = math.log(2 * math.pi)


def mean_precision(c: Tensor) -> Tensor:
    """E ω = tanh(c/2)/(2c) for ω ~ PG(1, c), c ≥ 0."""
    # Where c is small, the series ¼ − c²/48
    small = c < SMALL
    safe = torch.where(small, 1.0, c)
    return torch.where(small, 0.25 - c.square() / 48, torch.tanh(0.5 * safe) / (2 * safe))


def expected_log_bound(power: Tensor, slope: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
    """Lower bound of E log σ(f)^a σ(−f)^b for f ~ N(mean, variance), with power = a + b and slope = (a − b)/2.

    With ω ~ PG(power, c) and c² = E f² it is the best one; as c is held fixed when this is differentiated, what moves
    the mean or the variance sees a normal likelihood of precision E ω.
    """
    square = mean.square() + variance
    c = square.detach().sqrt()
    # (a + b)(log σ(c) − c/2 − ½ E[ω](f² − c²)) + (a − b)/2 · f
    fixed = logsigmoid(c) - 0.5 * c
    return power * (fixed - 0.5 * mean_precision(c) * (square - square.detach())) + slope * mean


def log_density(omega: Tensor) -> Tensor:
    """log PG(ω; 1, 0), to machine precision for every ω > 0."""
    return _regular_part(omega.log()) - 0.125 / omega - 0.5 * math.pi**2 * omega


@dataclass(frozen=True)
class LogNormal:
    """q(ω): log ω ~ N(location, scale²)."""

    location: Tensor
    scale: Tensor

    def sample(self, noise: Tensor) -> Tensor:
        """ω as a function of standard normal numbers, through which it can be differentiated."""
        return torch.exp(self.location + self.scale * noise)

    def moment(self, power: int) -> Tensor:
        """E ω^power = exp(power·location + ½ power²·scale²)."""
        return torch.exp(power * self.location + 0.5 * power**2 * self.scale.square())

    def divergence(self, n_nodes: int = N_NODES) -> Tensor:
        """KL(q ‖ PG(1, 0)).

        Only what grows no faster than log ω is left to Gauss–Hermite quadrature; E ω and E 1/ω are known.
        """
        nodes, weights = gauss_hermite(n_nodes, self.location.dtype, self.location.device)
        logarithms = self.location.unsqueeze(-1) + self.scale.unsqueeze(-1) * nodes
        known = 0.125 * self.moment(-1) + 0.5 * math.pi**2 * self.moment(1)
        # E log q = −location − log scale − ½ log 2πe
        negative_entropy = -self.location - self.scale.log() - 0.5 * (LOG_2PI + 1)
        return negative_entropy + known - _regular_part(logarithms) @ weights

    def sampled_divergence(self, noise: Tensor) -> Tensor:
        """log q(ω) − log PG(ω; 1, 0) at one ω for each number in ``noise``: on average the divergence."""
        log_omega = self.location + self.scale * noise
        log_q = -log_omega - self.scale.log() - 0.5 * (LOG_2PI + noise.square())
        return log_q - log_density(log_omega.exp())


def _regular_part(log_omega: Tensor) -> Tensor:
    """log PG(ω; 1, 0) + 1/(8ω) + π²ω/2: linear in log ω on the left, constant on the right.

    For small ω the density is (2πω³)^(−½) Σ (−1)ⁿ(2n+1) exp(−(2n+1)²/(8ω)), for large ω
    2π Σ (−1)ⁿ(2n+1) exp(−(2n+1)²π²ω/2). Each is computed on its own side only, so that neither overflows.
    """
    border = math.log(BORDER)
    log_small, log_large = log_omega.clamp(max=border), log_omega.clamp(min=border)
    small, large = log_small.exp(), log_large.exp()
    on_the_left = 0.5 * math.pi**2 * small - 0.5 * LOG_2PI - 1.5 * log_small + _log_series(0.5 / small)
    on_the_right = 0.125 / large + LOG_2PI + _log_series(2 * math.pi**2 * large)
    return torch.where(log_omega <= border, on_the_left, on_the_right)


def _log_series(rate: Tensor) -> Tensor:
    """log Σ (−1)ⁿ(2n+1) exp(−n(n+1)·rate), for rates of at least 2."""
    return torch.log1p(-3 * torch.exp(-2 * rate) + 5 * torch.exp(-6 * rate) - 7 * torch.exp(-12 * rate))
