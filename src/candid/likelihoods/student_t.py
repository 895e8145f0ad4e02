"""Real targets with outliers: (y − f)/scale has Student's t distribution.

Both averages over f are integrals over one positive number whose integrands are smooth whatever the latent variance, so
evenly spaced nodes on its logarithmic scale converge exponentially.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from candid.likelihoods.base import Likelihood, Surrogate
from candid.likelihoods.quadrature import positions
from candid.parameters import Hyperparameter, positive

__all__ = ["StudentT", "StudentTRows", "normal_deviation"]

N_NODES = 96
# Integrands are left out where they are below exp(−DEPTH) of their height.
DEPTH = 22.0
# As that of Gaussian noise: a model that believes in less is ruined by the first row that disagrees.
SCALE_FLOOR = 1e-2
# Up to two degrees of freedom there is no variance; a thousand are nearly Gaussian, and their nodes still close enough
# for rows that are a thousand scales away.
FREEDOM = (2.0, 1e3)
# Standard deviations beyond which a start takes rows for outliers.
OUTLYING = 4.0


@dataclass(frozen=True)
class StudentTRows:
    """The likelihood at given rows: ``scale`` and degrees of freedom broadcast over (row, output)."""

    scale: Tensor
    freedom: Tensor

    def expected_log_density(self, y: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
        """E log p(y|f) for f ~ N(mean, variance)."""
        # log p = log Γ((ν+1)/2)/Γ(ν/2) − ½ log πνs² − (ν+1)/2 · log(1 + (y − f)²/(νs²))
        freedom = self.freedom.double()
        constant = torch.lgamma(0.5 * (freedom + 1)) - torch.lgamma(0.5 * freedom) - 0.5 * torch.log(math.pi * freedom)
        width = self.freedom * self.scale.square()
        misfit = _expected_log1p_square((y - mean).square() / width, variance / width)
        return constant.to(y.dtype) - self.scale.log() - 0.5 * (self.freedom + 1) * misfit

    def log_expected_density(self, y: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
        """log E p(y|f) for f ~ N(mean, variance)."""
        weight, density, _ = self._by_precision(y, mean, variance)
        return torch.logsumexp(weight + density, dim=0) - torch.logsumexp(weight, dim=0)

    def expected_auxiliary(self, y: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
        """E[λ|y], where the other rows say that f ~ N(mean, variance)."""
        weight, density, u = self._by_precision(y, mean, variance)
        return (torch.softmax(weight + density, dim=0) * u.exp()).sum(0)

    def _by_precision(self, y: Tensor, mean: Tensor, variance: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Logarithms of the prior's density and of that of y at nodes u = log λ, and the nodes; node × row × output."""
        # Student's t is a normal distribution of variance s²/λ with λ ~ Gamma(ν/2, ν/2), so
        # E p(y|f) = ∫ N(y; mean, variance + s²/λ) Gamma(λ; ν/2, ν/2) dλ
        square, variance, noise, freedom = torch.broadcast_tensors(
            (y - mean).square(), variance, self.scale.square(), self.freedom
        )
        u = _log_precisions(square / noise, freedom)
        # Up to a constant, log Gamma(λ; ν/2, ν/2)·λ = (ν/2)(u − exp(u)) with u = log λ
        log_weight = 0.5 * freedom * (u - torch.expm1(u))
        total = variance + noise * torch.exp(-u)
        log_normal = -0.5 * (math.log(2 * math.pi) + total.log() + square / total)
        return log_weight, log_normal, u

    def pseudo_observations(self, y: Tensor, mean: Tensor, variance: Tensor) -> tuple[Tensor, Tensor]:
        """The observations themselves, with precision E[λ]/s² of the best gamma distribution of λ."""
        # E λ = (ν + 1)/(ν + E(y − f)²/s²)
        square = self.scale.square()
        misfit = ((y - mean).square() + variance) / square
        return y, (self.freedom + 1) / ((self.freedom + misfit) * square)


class StudentT(Likelihood):
    """Student's t noise; scale and degrees of freedom are learned, one of each for every output.

    Parameters
    ----------
    scale, freedom : float
        Where they start. ``scale`` is that of the bulk of the rows: the variance of the noise is
        scale² · freedom/(freedom − 2).
    n_outputs : int
    batch_shape : tuple of int
        Leading dimensions (chains).
    """

    def __init__(
        self, scale: float = 0.3, freedom: float = 4.0, n_outputs: int = 1, batch_shape: tuple[int, ...] = ()
    ) -> None:
        super().__init__()
        shape = (*batch_shape, 1, n_outputs)
        self.scale = positive(torch.full(shape, scale), floor=SCALE_FLOOR)
        self.freedom = Hyperparameter(torch.full(shape, freedom), *FREEDOM)

    @classmethod
    def with_freedom(cls, freedom: float | None, n_outputs: int) -> StudentT:
        """With given degrees of freedom, which then are not learned, or with None, which start at four."""
        if freedom is None:
            return cls(n_outputs=n_outputs)
        likelihood = cls(freedom=freedom, n_outputs=n_outputs)
        likelihood.freedom.fix()
        return likelihood

    def at(self, index: Tensor | None = None, known: Tensor | None = None) -> StudentTRows:
        return StudentTRows(self.scale.value, self.freedom.value)

    def surrogate(self, y: Tensor) -> Surrogate:
        # Outliers, by the median and the median distance from it, come closer.
        centre = y.median(0).values
        distance = OUTLYING * normal_deviation(y - centre)
        return Surrogate(torch.where(distance > 0, y.clamp(centre - distance, centre + distance), y))

    @torch.no_grad()
    def adopt(self, noise: Tensor, y: Tensor) -> None:
        # noise = s²ν/(ν − 2)
        if not self.scale.fixed:
            freedom = self.freedom.value
            square = noise * (freedom - 2) / freedom
            self.scale.set(square.sqrt().clamp_min(2 * self.scale.lower).expand_as(self.scale.raw))


def normal_deviation(values: Tensor) -> Tensor:
    """The standard deviation, around zero, of normal numbers of the same median size, whatever the largest are."""
    return 1.4826 * values.abs().median(0).values


def _expected_log1p_square(square: Tensor, variance: Tensor) -> Tensor:
    """E log(1 + z²) for z ~ N(m, variance), from ``square`` = m²."""
    # log(1 + z²) = ∫ (1 − exp(−tz²)) exp(−t)/t dt over t > 0, and
    # E exp(−tz²) = (1 + 2t·variance)^(−½) exp(−t m²/(1 + 2t·variance))
    square, variance = torch.broadcast_tensors(square, variance)
    # With u = log t, the integrand is below t E z² on the left and falls like exp(−t) on the right.
    low = -DEPTH - torch.log1p(square + variance).detach()
    high = torch.full_like(low, math.log(2 * DEPTH))
    u = _between(low, high)
    t = u.exp()
    growth = 1 + 2 * t * variance
    decay = 0.5 * torch.log1p(2 * t * variance) + t * square / growth
    return (-torch.expm1(-decay) * torch.exp(-t)).sum(0) * (high - low) / N_NODES


@torch.no_grad()
def _log_precisions(square: Tensor, freedom: Tensor) -> Tensor:
    """Nodes for log λ that cover its prior, and what an outlier at distance √square (in scales) makes of it."""
    # The prior's density of u = log λ is exp(−DEPTH) of its height, which it has at zero, where exp(u) − 1 − u = c with
    # c = 2·DEPTH/ν. That is inside of −(c + √2c) and log(1 + c + √2c).
    c = 2 * DEPTH / freedom
    reach = c + torch.sqrt(2 * c)
    # Without latent variance, the most probable λ of an outlier is about 1/(1 + square/ν).
    return _between(-torch.log1p(square / freedom) - reach, torch.log1p(reach))


def _between(low: Tensor, high: Tensor) -> Tensor:
    """Evenly spaced nodes, on a new first axis."""
    return low + (high - low) * positions(N_NODES, low.dtype, low.device).view(-1, *[1] * low.ndim)
