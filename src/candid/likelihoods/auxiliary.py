"""Sites with parameters: auxiliary variables that turn observations into real numbers with normal noise.

Given an auxiliary variable a of its own, each observation says of f what a target with normal noise says. q(a) of every
training row is log-normal, and its location and scale are learned: parameters of the size of the data, which are looked
up for the rows that are needed and have gradients (sparse ones) for these only. The divergence of q from the prior of a
is the penalty ``kl_aux``; it is averaged over the rows of a batch, by a formula or by quadrature rather than from
samples, so that its gradient has no noise. In place of an average over q stands one sample.

References
----------
M. Jankowiak, G. Pleiss (2022), Scalable cross validation losses for Gaussian process models.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn.functional import embedding

from candid.likelihoods.base import Likelihood, Sites
from candid.likelihoods.bernoulli import Bernoulli, LogitRows
from candid.likelihoods.coregionalised import Coregionalised, CoregionalisedSites
from candid.likelihoods.counts import Binomial, NegativeBinomial
from candid.likelihoods.gaussian import Gaussian
from candid.likelihoods.normal_sites import NormalSites, normal_observations
from candid.likelihoods.one_against_all import OneAgainstAll, indicators
from candid.likelihoods.partly_observed import PartlyObserved
from candid.likelihoods.polya_gamma import CLOSEST_LOCATION, CLOSEST_SCALE, LogNormal
from candid.likelihoods.random_numbers import normal_numbers
from candid.likelihoods.student_t import StudentT
from candid.marginal import Batch, Marginal

__all__ = ["AuxiliarySites", "PolyaGammaSites", "StudentTSites", "make_sites", "new_observations"]

LOG_2PI = math.log(2 * math.pi)

# What random numbers are for; each purpose has its own.
STANDING, TRAINING = range(2)


class AuxiliarySites(Sites):
    """Targets, and q(a) of each: log a ~ N(location, scale²).

    Samples follow from the seed and the step. Without gradients, where training only asks how it stands, they are the
    same at every step.

    Parameters
    ----------
    targets : Tensor
        Of the training rows, N×P.
    location, scale : float or Tensor
        Where those of all rows start, or of each.
    weight : Tensor, optional
        Of the training rows: a row of weight w is w rows, each with an a of its own, whose average counts.
    seed : int
        Of the samples.
    """

    targets: Tensor
    weight: Tensor

    def __init__(
        self,
        targets: Float[Tensor, "n p"],
        location: float | Tensor,
        scale: float | Tensor,
        weight: Float[Tensor, " n"] | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__()
        weight = torch.ones_like(targets[:, 0]) if weight is None else weight
        self.register_buffer("weight", weight, persistent=False)
        self.register_buffer("targets", targets, persistent=False)
        self.location = nn.Parameter(torch.zeros_like(targets) + location)
        self.log_scale = nn.Parameter((torch.zeros_like(targets) + scale).log())
        self.seed, self.step = seed, 0

    def refresh(self, step: int) -> None:
        self.step = step

    def forward(self, index: Int[Tensor, " n"]) -> tuple[Float[Tensor, "n p"], Float[Tensor, "n p"]]:
        purpose = (TRAINING, self.step) if torch.is_grad_enabled() else (STANDING, 0)
        noise = normal_numbers(index, self.targets.shape[-1], self.seed, *purpose)
        return self._observed(index, self._averages(index).sample(noise.to(self.targets)))

    def settled(self, index: Int[Tensor, " n"]) -> tuple[Float[Tensor, "n p"], Float[Tensor, "n p"]]:
        """With one value of each a that stands for q(a)."""
        return self._observed(index, self._middle(self._averages(index)))

    def penalties(self, batch: Batch, marginal: Marginal) -> dict[str, Tensor]:
        assert batch.index is not None
        divergence = self._divergence(batch.index, self._q(batch.index)).sum(-1)
        # N Σ_batch w·KL / Σ_batch w
        return {"kl_aux": batch.total * (batch.weight @ divergence) / batch.weight.sum()}

    def own_parameters(self) -> list[nn.Parameter]:
        return [self.location, self.log_scale]

    def _q(self, index: Tensor) -> LogNormal:
        location, log_scale = (embedding(index, values, sparse=True) for values in (self.location, self.log_scale))
        return LogNormal(location, log_scale.exp())

    def _averages(self, index: Tensor) -> LogNormal:
        """The log-normal distributions with mean and variance of averages over as many rows as the weights say."""
        q, count = self._q(index), self.weight[index].clamp_min(1.0).unsqueeze(-1)
        # For independent ones, (variance/mean²) of the average is that of each, exp(scale²) − 1, divided by w.
        square = torch.log1p(torch.expm1(q.scale.square()) / count)
        return LogNormal(q.location + 0.5 * (q.scale.square() - square), square.sqrt())

    @abstractmethod
    def _observed(self, index: Tensor, auxiliary: Tensor) -> tuple[Tensor, Tensor]:
        """Targets of f and their noise variances (row × output), given the auxiliary variables of some rows."""

    @abstractmethod
    def _middle(self, q: LogNormal) -> Tensor:
        """The value of a that predictions use."""

    @abstractmethod
    def _divergence(self, index: Tensor, q: LogNormal) -> Tensor:
        """KL(q ‖ p) of the auxiliary variables of some rows (row × output)."""


class PolyaGammaSites(AuxiliarySites):
    """Labels 0 and 1 with a logistic link: given ω, y − ½ over ω with noise variance 1/ω. A priori ω ~ PG(1, 0).

    The term E 1/ω of the bound on the evidence is left out: leave-one-out densities in place of the evidence do not
    hold it back.
    """

    def __init__(self, targets: Float[Tensor, "n p"], weight: Float[Tensor, " n"] | None = None, seed: int = 0) -> None:
        super().__init__(targets, CLOSEST_LOCATION, CLOSEST_SCALE, weight, seed)

    def _observed(self, index: Tensor, auxiliary: Tensor) -> tuple[Tensor, Tensor]:
        variance = auxiliary.reciprocal()
        return (self.targets[index] - 0.5) * variance, variance

    def _middle(self, q: LogNormal) -> Tensor:
        """1/E[1/ω], with which targets and noise variances are those on average."""
        return 1 / q.moment(-1)

    def agreeing(self, index: Tensor, mean: Tensor, variance: Tensor) -> tuple[Tensor, Tensor]:
        targets, precision = LogitRows().pseudo_observations(self.targets[index], mean, variance)
        return targets, precision.reciprocal()

    def log_density(self, index: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
        return LogitRows().log_expected_density(self.targets[index], mean, variance)

    def _divergence(self, index: Tensor, q: LogNormal) -> Tensor:
        return q.divergence()


class StudentTSites(AuxiliarySites):
    """Real numbers with outliers: given λ, y has normal noise of variance s²/λ. A priori λ ~ Gamma(ν/2, ν/2).

    The divergence has a closed form, and q starts where it is least.
    """

    def __init__(
        self,
        likelihood: StudentT,
        targets: Float[Tensor, "n p"],
        weight: Float[Tensor, " n"] | None = None,
        seed: int = 0,
    ) -> None:
        # The closest log-normal distribution has E λ = 1 and scale² = 2/ν.
        square = 2 / likelihood.freedom.value.detach()
        super().__init__(targets, -0.5 * square, square.sqrt(), weight, seed)
        self.likelihood = likelihood

    @torch.no_grad()
    def begin(self, where: Bool[Tensor, "n p"], mean: Float[Tensor, "n p"], variance: Float[Tensor, "n p"]) -> None:
        """Let q of some entries start with E[λ|y], if the other rows say that f ~ N(mean, variance).

        All others stay where the divergence is least: if they started there too, they would hold on to the few degrees
        of freedom that training starts from.
        """
        average = self.likelihood.at().expected_auxiliary(self.targets, mean, variance)
        # E λ = exp(location + ½ scale²)
        location = average.log() - 0.5 * (2 * self.log_scale).exp()
        self.location.copy_(torch.where(where, location, self.location))

    def _observed(self, index: Tensor, auxiliary: Tensor) -> tuple[Tensor, Tensor]:
        return self.targets[index], self.likelihood.scale.value.square() / auxiliary

    def _middle(self, q: LogNormal) -> Tensor:
        """E λ, with which precisions are those on average."""
        return q.moment(1)

    def _divergence(self, index: Tensor, q: LogNormal) -> Tensor:
        half = 0.5 * self.likelihood.freedom.value
        # E log q = −location − log scale − ½ log 2πe
        negative_entropy = -q.location - q.scale.log() - 0.5 * (LOG_2PI + 1)
        # E log p = ½ν log ½ν − log Γ(½ν) + (½ν − 1) E log λ − ½ν E λ
        expected = half * half.log() - torch.lgamma(half) + (half - 1) * q.location - half * q.moment(1)
        return negative_entropy - expected


def make_sites(
    likelihood: Likelihood, y: Float[Tensor, "n p"], weight: Float[Tensor, " n"] | None = None, seed: int = 0
) -> Sites:
    """What a family that conditions on data sees of it; ``seed`` is that of auxiliary variables, if there are any."""
    if isinstance(likelihood, Gaussian):
        return likelihood.sites(y)
    if isinstance(likelihood, Bernoulli) and likelihood.link == "logit":
        return PolyaGammaSites(y, weight, seed)
    if isinstance(likelihood, OneAgainstAll):
        return PolyaGammaSites(indicators(y, likelihood.n_classes), weight, seed)
    if isinstance(likelihood, (Coregionalised, PartlyObserved)):
        return CoregionalisedSites(likelihood, y)
    if isinstance(likelihood, StudentT):
        return StudentTSites(likelihood, y, weight, seed)
    if isinstance(likelihood, (Binomial, NegativeBinomial)):
        every = torch.arange(len(y), device=y.device)
        return NormalSites(likelihood, y, likelihood.at(every).logits(y))
    raise TypeError(f"there are no auxiliary variables that make {type(likelihood).__name__} observations normal")


def new_observations(
    likelihood: Likelihood,
    rows: Any,
    y: Float[Tensor, "n y"],
    mean: Float[Tensor, "n p"],
    variance: Float[Tensor, "n p"],
) -> tuple[Float[Tensor, "n p"], Float[Tensor, "n p"]]:
    """What rows that are not training rows show, as far as that follows from what is predicted there.

    Parameters
    ----------
    likelihood : Likelihood
    rows : object
        The likelihood at these rows.
    y : Tensor
        The observations.
    mean, variance : Tensor
        Of the latent functions there.

    Returns
    -------
    targets, precision : Tensor
        Of normal observations.
    """
    if isinstance(likelihood, (Binomial, NegativeBinomial)):
        return normal_observations(rows, y, mean, variance, rows.logits(y))
    return rows.pseudo_observations(y, mean, variance)
