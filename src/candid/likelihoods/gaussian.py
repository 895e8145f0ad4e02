"""y = f + ε with ε ~ N(0, σ²): σ² learned, known and shared, or known for each row."""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass

import torch
from torch import Tensor

from candid.likelihoods.base import Likelihood, Sites, Surrogate
from candid.likelihoods.normal_rows import LOG_2PI, normal_terms
from candid.parameters import positive

__all__ = ["NOISE_FLOOR", "Gaussian", "GaussianRows", "GaussianSites"]

#: Smallest noise variance that can be learned, in units of the (standardised) target's variance: a model that believes
#: in less than one per cent of noise is ruined by the first row that disagrees.
NOISE_FLOOR = 1e-4


@dataclass(frozen=True)
class GaussianRows:
    """The Gaussian likelihood at given rows: noise ``variance`` broadcasts over (row, output)."""

    variance: Tensor

    def expected_log_density(self, y: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
        """E log p(y|f) for f ~ N(mean, variance)."""
        # log N(y; mean, σ²) − variance/(2σ²)
        return normal_terms(y, mean, self.variance, variance)

    def log_expected_density(self, y: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
        """log E p(y|f) for f ~ N(mean, variance)."""
        # log N(y; mean, variance + σ²)
        return normal_terms(y, mean, variance + self.variance)

    def pseudo_observations(self, y: Tensor, mean: Tensor, variance: Tensor) -> tuple[Tensor, Tensor]:
        """The observations themselves, and their precision 1/σ²."""
        return y, self.variance.reciprocal().expand_as(y)

    def blurred(self, variance: Tensor) -> GaussianRows:
        """The likelihood p(y|g) = E p(y|g + e) for e ~ N(0, variance), as one of the same kind."""
        return GaussianRows(self.variance + variance)

    def robust_score(self, y: Tensor, mean: Tensor, variance: Tensor, gamma: float) -> Tensor:
        """γ-score of f ~ N(mean, variance): E log p(y|f) where γ → 1, and bounded below where γ > 1.

        With g = γ − 1 it is (γ/g)(E[p(y|f)^g] / (∫p(y|f)^γ dy)^(g/γ) − 1). Because the integral divides, the score is
        proper: its expectation is largest at the true noise.
        """
        g = gamma - 1
        # log E[p^g] = −(g/2) log 2πσ² − ½ log(1 + g·variance/σ²) − ½ g r²/(σ² + g·variance)
        # log ∫p^γ  = −(g/2) log 2πσ² − ½ log γ
        # What log 2πσ² counts in log E[p^g] − (g/γ) log ∫p^γ is −(g/2)(1 − g/γ) = −g/(2γ).
        noise = self.variance
        normaliser = (g / gamma) * (LOG_2PI + noise.log() - math.log(gamma))
        misfit = torch.log1p(g * variance / noise) + g * (y - mean).square() / (noise + g * variance)
        return (gamma / g) * torch.expm1(-0.5 * (normaliser + misfit))


class Gaussian(Likelihood):
    """Gaussian noise, one variance for each output.

    Parameters
    ----------
    noise : float
        Where a learned noise *variance* starts.
    n_outputs : int
    known : Tensor, optional
        Known noise variances of the training rows (N×P) instead of a learned one. Rows that are not training rows then
        have their average, unless theirs are known too.
    weight : Tensor, optional
        Weights of the training rows, for that average.
    batch_shape : tuple of int
        Leading dimensions (chains) of a learned noise.
    """

    known: Tensor | None
    average: Tensor | None

    def __init__(
        self,
        noise: float = 0.1,
        n_outputs: int = 1,
        known: Tensor | None = None,
        weight: Tensor | None = None,
        batch_shape: tuple[int, ...] = (),
    ) -> None:
        super().__init__()
        start = torch.full((*batch_shape, 1, n_outputs), noise)
        self.noise = positive(start, floor=NOISE_FLOOR) if known is None else None
        # Data, not parameters: checkpoints do without them.
        self.register_buffer("known", known, persistent=False)
        self.register_buffer("average", None if known is None else _average(known, weight), persistent=False)

    def at(self, index: Tensor | None = None, known: Tensor | None = None) -> GaussianRows:
        """The likelihood of training rows ``index``, or of other rows, whose noise variances may be ``known``."""
        if index is None and known is not None:
            return GaussianRows(known)
        if self.noise is not None:
            return GaussianRows(self.noise.value)
        variance = self.average if index is None or self.known is None else self.known[index]
        assert variance is not None
        return GaussianRows(variance)

    def subset(self, index: Tensor) -> Gaussian:
        """A copy for a model that trains on rows ``index`` only."""
        part = copy.deepcopy(self)
        if part.known is not None:
            part.known = part.known[index]
        return part

    def surrogate(self, y: Tensor) -> Surrogate:
        return Surrogate(y, self.known)

    @torch.no_grad()
    def adopt(self, noise: Tensor, y: Tensor) -> None:
        if self.noise is not None and not self.noise.fixed:
            # On the floor there would be no gradient.
            least = (2.0 if self.noise.upper == math.inf else 1.001) * self.noise.lower
            self.noise.set(noise.clamp(least, 0.999 * self.noise.upper))

    def sites(self, y: Tensor) -> GaussianSites:
        """What a family that conditions on the data sees of it."""
        return GaussianSites(self, y)


class GaussianSites(Sites):
    """Targets and noise variances of the training rows, for families that condition on the data."""

    targets: Tensor

    def __init__(self, likelihood: Gaussian, targets: Tensor) -> None:
        super().__init__()
        self.likelihood = likelihood
        self.register_buffer("targets", targets, persistent=False)

    def forward(self, index: Tensor) -> tuple[Tensor, Tensor]:
        """Targets and noise variances (row × output) of training rows ``index``."""
        targets = self.targets[index]
        return targets, self.likelihood.at(index).variance.expand_as(targets)


def _average(known: Tensor, weight: Tensor | None) -> Tensor:
    weight = torch.ones_like(known[:, 0]) if weight is None else weight
    return (weight @ known / weight.sum()).unsqueeze(0)
