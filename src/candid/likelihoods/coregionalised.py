"""Several outputs that are mixtures of independent latent functions: y = Aᵀf + ε, with a noise for each output.

Given f ~ N(mean, diag(variance)) at a row, y is normal with mean Aᵀmean and covariance Aᵀ diag(variance) A + diag(σ²).
The expectation of log p(y|f) needs only the diagonal of that, its logarithm of the expectation all of it. Entries of y
that are NaN have not been observed, and both are those of the others. Where latent functions depend on each other, as
given the observations of neighbours, they have a covariance V in place of diag(variance).

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

from candid.likelihoods.base import Likelihood, Sites, Surrogate
from candid.likelihoods.gaussian import Gaussian
from candid.likelihoods.partly_observed import PartlyObserved, observed_part
from candid.linalg import normal_log_density
from candid.parameters import real

__all__ = ["Coregionalised", "CoregionalisedRows", "CoregionalisedSites"]

LOG_2PI = math.log(2 * math.pi)
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
        (observed, y), mixing = observed_part(y), self.mixing.to(mean)
        # log N(y; Aᵀmean, σ²) − (A²)ᵀvariance/(2σ²)
        squares = (y - mean @ mixing).square() + variance @ mixing.square()
        terms = -0.5 * (LOG_2PI + self.variance.log() + squares / self.variance)
        return torch.where(observed, terms, 0.0)

    def log_expected_density(
        self, y: Float[Tensor, "n p"], mean: Float[Tensor, "*axes n w"], variance: Tensor
    ) -> Float[Tensor, "*axes n 1"]:
        """log E p(y|f) of all outputs together; ``variance`` (…, n, w), or covariances (…, n, w, w)."""
        return self._log_density(y, mean, variance, self.variance)

    def robust_score(self, y: Tensor, mean: Tensor, variance: Tensor, gamma: float) -> Tensor:
        """γ-score of the outputs together; see :meth:`~candid.likelihoods.gaussian.GaussianRows.robust_score`."""
        g, observed = gamma - 1, observed_part(y)[0]
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
        mixing = self.mixing.to(variance)
        return (mixing.mT * variance.unsqueeze(-2)) @ mixing

    def pseudo_observations(self, y: Tensor, mean: Tensor, variance: Tensor) -> tuple[Tensor, Tensor]:
        """What the outputs say of each latent function, if the others are about where they are believed to be.

        All latent functions may move at once: with G = A Σ⁻¹ Aᵀ of what is observed, a precision of Σ_v |G_wv| leaves
        room for what the others will explain. Where latent functions do not meet in any output, it is G_ww.
        """
        (observed, y), mixing = observed_part(y), self.mixing.to(mean)
        precision = torch.where(observed, self.variance.reciprocal(), 0.0)
        gram = (mixing * precision.unsqueeze(-2)) @ mixing.mT
        total = gram.abs().sum(-1)
        # AΣ⁻¹(y − Aᵀmean)/Σ_v |G_wv| + mean
        pull = (precision * (y - mean @ mixing)) @ mixing.mT
        return mean + pull / total.clamp_min(torch.finfo(total.dtype).tiny), total

    def _log_density(self, y: Tensor, mean: Tensor, variance: Tensor, noise: Tensor) -> Tensor:
        (observed, y), mixing = observed_part(y), self.mixing.to(mean)
        residual = torch.where(observed, y - mean @ mixing, 0.0)
        latent = mixing.mT @ variance @ mixing if variance.dim() > mean.dim() else self.covariance(variance)
        covariance = latent + torch.diag_embed(noise.expand_as(residual))
        # A missing entry is made an independent one of variance 1 at its mean, which adds −½ log 2π.
        both = observed.unsqueeze(-1) & observed.unsqueeze(-2)
        covariance = torch.where(both, covariance, torch.eye(y.shape[-1]).to(covariance))
        missing = (~observed).to(y.dtype).sum(-1, keepdim=True)
        return normal_log_density(covariance, residual).unsqueeze(-1) + 0.5 * LOG_2PI * missing


class Coregionalised(Likelihood):
    """Outputs that share latent functions.

    Parameters
    ----------
    y : Tensor
        Training targets, N×P, standardised; a guess where one is missing.
    n_latents : int
        Number of latent functions, W.
    noise : Gaussian
        Of the P outputs.
    weight : Tensor, optional
        Weights of the rows.
    changes : Tensor, optional
        By how much targets differ from those nearby, M×P.

    Attributes
    ----------
    candidates : list of Tensor
        Mixing matrices to start from, of which the first is taken. Latent functions are the principal components of the
        targets; or, if there is one for each target, combinations of targets that are correlated neither with each
        other nor in their changes, so that smooth ones and noise come apart; or the targets themselves.
    """

    def __init__(
        self,
        y: Float[Tensor, "n p"],
        n_latents: int,
        noise: Gaussian,
        weight: Float[Tensor, " n"] | None = None,
        changes: Float[Tensor, "m p"] | None = None,
    ) -> None:
        super().__init__()
        weight = torch.ones_like(y[:, 0]) if weight is None else weight
        self.candidates = _candidates(y, n_latents, weight, y[:0] if changes is None else changes)
        self.mixing = real(self.candidates[0])
        self.noise = noise
        # Data of the start alone: neither checkpoints nor other devices need it.
        self.guess = y

    def at(self, index: Tensor | None = None, known: Tensor | None = None) -> CoregionalisedRows:
        return CoregionalisedRows(self.mixing.value, self.noise.at(index, known).variance)

    def subset(self, index: Tensor) -> Self:
        """One that shares what is learned of the mixing."""
        part = copy.copy(self)
        part._modules = {**self._modules, "noise": self.noise.subset(index)}
        return part

    @torch.no_grad()
    def surrogate(self, y: Tensor) -> Surrogate:
        """The latent values with the least squares, if the noise were the same in all outputs."""
        # (A Aᵀ)⁻¹ A y
        complete, mixing = torch.where(torch.isnan(y), self.guess.to(y), y), self.mixing.value.to(y)
        return Surrogate(torch.linalg.lstsq(mixing.mT, complete.mT).solution.mT)

    @torch.no_grad()
    def adopt(self, noise: Tensor, y: Tensor) -> None:
        mixing = self.mixing.value
        # (A²)ᵀσ_f², and the mean square of what the latent functions leave out
        left_out = (y - self.surrogate(y).targets @ mixing).square().nanmean(0)
        self.noise.adopt(noise.mean(-2, keepdim=True) @ mixing.square() + left_out, y)


class CoregionalisedSites(Sites):
    """Targets and noise variances of outputs that share latent functions, for families that condition on the data.

    Targets that are missing are NaN. Outputs that are partly observed, but independent, are their own latent functions.
    """

    targets: Tensor

    def __init__(self, likelihood: Coregionalised | PartlyObserved, targets: Float[Tensor, "n p"]) -> None:
        super().__init__()
        self.likelihood = likelihood
        self.register_buffer("targets", targets, persistent=False)

    @property
    def mixing(self) -> Float[Tensor, "w p"]:
        """A."""
        if isinstance(self.likelihood, Coregionalised):
            return self.likelihood.mixing.value
        return torch.eye(self.targets.shape[-1]).to(self.targets)

    def forward(self, index: Tensor) -> tuple[Tensor, Tensor]:
        targets = self.targets[index]
        return targets, self.likelihood.at(index).variance.expand_as(targets)


@torch.no_grad()
def _candidates(
    y: Float[Tensor, "n p"], number: int, weight: Float[Tensor, " n"], changes: Float[Tensor, "m p"]
) -> list[Tensor]:
    """What components of unit variance give to the targets, (W, P)."""
    if number > y.shape[-1]:
        raise ValueError(
            f"{number} latent functions need as many outputs, but there are {y.shape[-1]}; with n_latents=None there "
            "is one for each output"
        )
    y, share = y.double(), (weight / weight.sum()).double().unsqueeze(-1)
    centred = y - (share * y).sum(0)
    covariance = centred.mT @ (share * centred)
    variances, directions = torch.linalg.eigh(covariance)
    deviations = variances.flip(-1).clamp_min(0.0).sqrt()
    least = max(math.sqrt(LEAST_SHARE) * float(deviations[0]), LEAST_SHARE)
    principal = deviations.clamp_min(least).unsqueeze(-1) * directions.mT.flip(0)
    found = [principal[:number]]
    # Components of hardly any variance stay as they are.
    n_alive = int((deviations > least).sum())
    if number == y.shape[-1] and len(changes) > 1 and n_alive > 1:
        apart = _with_changes_apart(principal[:n_alive], changes.double())
        found = [
            torch.cat([apart, principal[n_alive:]]),
            *found,
            torch.diag(covariance.diagonal().sqrt().clamp_min(least)),
        ]
    return [loadings.to(torch.get_default_dtype()) for loadings in found]


def _with_changes_apart(loadings: Float[Tensor, "w p"], changes: Float[Tensor, "m p"]) -> Float[Tensor, "w p"]:
    """Loadings of other components of the same space, whose changes are not correlated either.

    They are the min/max autocorrelation factors of P. Switzer and A. Green (1984).
    """
    of_components = torch.linalg.lstsq(loadings.mT, changes.mT).solution
    _, rotation = torch.linalg.eigh(of_components @ of_components.mT / len(changes))
    return rotation.mT @ loadings
