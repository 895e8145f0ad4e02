"""Several outputs that are mixtures of independent latent functions: y = Aᵀf + ε, with a noise for each output.

Given f ~ N(mean, diag(variance)) at a row, y is normal with mean Aᵀmean and covariance Aᵀ diag(variance) A + diag(σ²).
The expectation of log p(y|f) needs only the diagonal of that, its logarithm of the expectation all of it. Entries of y
that are NaN have not been observed, and both are those of the others.

References
----------
P. Goovaerts (1997), Geostatistics for natural resources evaluation: the linear model of coregionalisation.
"""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass
from typing import Self

import torch
from jaxtyping import Float
from torch import Tensor

from candid.likelihoods.base import Likelihood, Surrogate
from candid.likelihoods.gaussian import Gaussian
from candid.linalg import normal_log_density
from candid.parameters import real

__all__ = ["Coregionalised", "CoregionalisedRows"]

LOG_2PI = math.log(2 * math.pi)
# How often what is missing is filled in from the leading components, which are then computed anew.
FILLING_ROUNDS = 10
# A latent function of less than this share of the variance of the first one starts as if it had as much.
LEAST_SHARE = 1e-3


@dataclass(frozen=True)
class CoregionalisedRows:
    """The likelihood at given rows; noise ``variance`` broadcasts over (row, output)."""

    mixing: Float[Tensor, "w p"]
    variance: Tensor

    def expected_log_density(
        self, y: Float[Tensor, "n p"], mean: Float[Tensor, "*axes n w"], variance: Float[Tensor, "*#axes n w"]
    ) -> Float[Tensor, "*axes n p"]:
        """E log p(y|f), output by output; zero where an entry is missing."""
        observed, y = _observed(y)
        # log N(y; Aᵀmean, σ²) − (A²)ᵀvariance/(2σ²)
        squares = (y - mean @ self.mixing).square() + variance @ self.mixing.square()
        terms = -0.5 * (LOG_2PI + self.variance.log() + squares / self.variance)
        return torch.where(observed, terms, 0.0)

    def log_expected_density(
        self, y: Float[Tensor, "n p"], mean: Float[Tensor, "*axes n w"], variance: Float[Tensor, "*#axes n w"]
    ) -> Float[Tensor, "*axes n 1"]:
        """log E p(y|f) of all outputs together."""
        return self._log_density(y, mean, variance, self.variance)

    def robust_score(self, y: Tensor, mean: Tensor, variance: Tensor, gamma: float) -> Tensor:
        """γ-score of the outputs together; see :meth:`~candid.likelihoods.gaussian.GaussianRows.robust_score`."""
        g, observed = gamma - 1, _observed(y)[0]
        number = observed.to(mean.dtype).sum(-1, keepdim=True)
        log_noise = torch.where(observed, self.variance.log(), 0.0).sum(-1, keepdim=True)
        # p(y|f)^g = N(y; Aᵀf, σ²/g) · Π (2πσ²)^((1−g)/2) g^(−½)
        shape = 0.5 * (1 - g) * (number * LOG_2PI + log_noise) - 0.5 * number * math.log(g)
        log_power = self._log_density(y, mean, variance, self.variance / g) + shape
        # log ∫p^γ = −(g/2) Σ log 2πσ² − (number/2) log γ
        log_integral = -0.5 * g * (number * LOG_2PI + log_noise) - 0.5 * number * math.log(gamma)
        return (gamma / g) * torch.expm1(log_power - (g / gamma) * log_integral)

    def covariance(self, variance: Float[Tensor, "*axes w"]) -> Float[Tensor, "*axes p p"]:
        """Aᵀ diag(variance) A: what the latent functions contribute to the covariance of the outputs."""
        return (self.mixing.mT * variance.unsqueeze(-2)) @ self.mixing

    def pseudo_observations(self, y: Tensor, mean: Tensor, variance: Tensor) -> tuple[Tensor, Tensor]:
        """What the outputs say of each latent function, if the others are where they are believed to be."""
        observed, y = _observed(y)
        precision = torch.where(observed, self.variance.reciprocal(), 0.0)
        # Σ_p a_wp²/σ_p², and (Σ_p a_wp/σ_p² (y − Aᵀmean))/that + mean
        total = precision @ self.mixing.square().mT
        pull = (precision * (y - mean @ self.mixing)) @ self.mixing.mT
        return mean + pull / total.clamp_min(torch.finfo(total.dtype).tiny), total

    def _log_density(self, y: Tensor, mean: Tensor, variance: Tensor, noise: Tensor) -> Tensor:
        observed, y = _observed(y)
        residual = torch.where(observed, y - mean @ self.mixing, 0.0)
        covariance = self.covariance(variance) + torch.diag_embed(noise.expand_as(residual))
        # A missing entry is made an independent one of variance 1 at its mean, which adds −½ log 2π.
        both = observed.unsqueeze(-1) & observed.unsqueeze(-2)
        covariance = torch.where(both, covariance, torch.eye(y.shape[-1], dtype=y.dtype, device=y.device))
        missing = (~observed).to(y.dtype).sum(-1, keepdim=True)
        return normal_log_density(covariance, residual).unsqueeze(-1) + 0.5 * LOG_2PI * missing


class Coregionalised(Likelihood):
    """Outputs that share latent functions.

    Parameters
    ----------
    y : Tensor
        Training targets, N×P, standardised; NaN where one is missing.
    n_latents : int
        Number of latent functions, W. They start as the principal components of the targets.
    noise : Gaussian
        Of the P outputs.
    """

    def __init__(self, y: Float[Tensor, "n p"], n_latents: int, noise: Gaussian) -> None:
        super().__init__()
        self.mixing = real(_loadings(y, n_latents))
        self.noise = noise

    @property
    def n_latents(self) -> int:
        return self.mixing.raw.shape[-2]

    def at(self, index: Tensor | None = None, known: Tensor | None = None) -> CoregionalisedRows:
        return CoregionalisedRows(self.mixing.value, self.noise.at(index, known).variance)

    def subset(self, index: Tensor) -> Self:
        part = copy.deepcopy(self)
        part.noise = self.noise.subset(index)
        return part

    @torch.no_grad()
    def surrogate(self, y: Tensor) -> Surrogate:
        """The latent values with the least squares, if the noise were the same in all outputs."""
        mixing = self.mixing.value
        # (A Aᵀ)⁻¹ A y, of what is observed or filled in
        return Surrogate(torch.linalg.lstsq(mixing.mT, _filled(y, mixing).mT).solution.mT)

    @torch.no_grad()
    def adopt(self, noise: Tensor) -> None:
        if self.noise.noise is not None:
            # (A²)ᵀσ_f², and what the latent functions leave out is for training to find
            self.noise.noise.set(noise.mean(-2, keepdim=True) @ self.mixing.value.square())


def _observed(y: Tensor) -> tuple[Tensor, Tensor]:
    """Which entries are there, and y with zeros for the others."""
    observed = ~torch.isnan(y)
    return observed, torch.where(observed, y, 0.0)


@torch.no_grad()
def _loadings(y: Tensor, number: int) -> Float[Tensor, "w p"]:
    """Leading directions of the targets, each as long as the standard deviation of its component."""
    filled, observed = torch.nan_to_num(y.double(), nan=0.0), ~torch.isnan(y)
    for _ in range(0 if bool(observed.all()) else FILLING_ROUNDS):
        leading = _directions(filled)[1][:number]
        filled = torch.where(observed, filled, filled @ leading.mT @ leading)
    deviations, directions = _directions(filled)
    deviations = torch.maximum(deviations, math.sqrt(LEAST_SHARE) * deviations[:1]).clamp_min(LEAST_SHARE)
    if number > len(deviations):
        raise ValueError(f"{number} latent functions need as many outputs and rows, but there are {len(deviations)}")
    return (deviations[:number, None] * directions[:number]).to(torch.get_default_dtype())


def _directions(y: Tensor) -> tuple[Tensor, Tensor]:
    """Standard deviations along the principal directions, and these."""
    _, singular, directions = torch.linalg.svd(y - y.mean(0), full_matrices=False)
    return singular / math.sqrt(len(y)), directions


def _filled(y: Tensor, mixing: Tensor) -> Tensor:
    """Targets in which a missing entry is what the latent functions make of the others."""
    observed, filled = _observed(y)
    if bool(observed.all()):
        return y
    projection = torch.linalg.lstsq(mixing.mT, torch.eye(y.shape[-1]).to(mixing)).solution.mT @ mixing
    for _ in range(FILLING_ROUNDS):
        filled = torch.where(observed, y, filled @ projection)
    return filled
