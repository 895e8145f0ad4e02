"""Independent outputs with normal noise, of which some entries have not been observed.

An entry of y that is NaN adds nothing to any sum over outputs, and has a precision of zero as an observation.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from candid.likelihoods.base import Likelihood, Surrogate
from candid.likelihoods.gaussian import Gaussian, GaussianRows

__all__ = ["PartlyObserved", "PartlyObservedRows", "observed_part"]


def observed_part(y: Tensor) -> tuple[Tensor, Tensor]:
    """Which entries are there, and y with zeros for the others."""
    observed = ~torch.isnan(y)
    return observed, torch.where(observed, y, 0.0)


@dataclass(frozen=True)
class PartlyObservedRows:
    """The likelihood at given rows: ``rows`` is that of complete ones."""

    rows: GaussianRows

    @property
    def variance(self) -> Tensor:
        """Of the noise."""
        return self.rows.variance

    def expected_log_density(self, y: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
        """E log p(y|f) for f ~ N(mean, variance)."""
        observed, y = observed_part(y)
        return torch.where(observed, self.rows.expected_log_density(y, mean, variance), 0.0)

    def log_expected_density(self, y: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
        """log E p(y|f) for f ~ N(mean, variance), or the covariances (…, output, output) of outputs that are apart."""
        observed, y = observed_part(y)
        if variance.dim() > mean.dim():
            variance = variance.diagonal(dim1=-2, dim2=-1)
        return torch.where(observed, self.rows.log_expected_density(y, mean, variance), 0.0)

    def robust_score(self, y: Tensor, mean: Tensor, variance: Tensor, gamma: float) -> Tensor:
        """γ-score of f ~ N(mean, variance)."""
        observed, y = observed_part(y)
        return torch.where(observed, self.rows.robust_score(y, mean, variance, gamma), 0.0)

    def blurred(self, variance: Tensor) -> PartlyObservedRows:
        """The likelihood p(y|g) = E p(y|g + e) for e ~ N(0, variance), as one of the same kind."""
        return PartlyObservedRows(self.rows.blurred(variance))

    def pseudo_observations(self, y: Tensor, mean: Tensor, variance: Tensor) -> tuple[Tensor, Tensor]:
        """The observations themselves and their precision, which is zero where there are none."""
        observed, y = observed_part(y)
        targets, precision = self.rows.pseudo_observations(y, mean, variance)
        return targets, torch.where(observed, precision, 0.0)


class PartlyObserved(Likelihood):
    """Gaussian noise of outputs whose entries may be NaN.

    Parameters
    ----------
    guess : Tensor
        Training targets, N×P, with a guess where one is missing: what a start can be fitted to.
    noise : Gaussian
        Of the outputs.
    """

    def __init__(self, guess: Tensor, noise: Gaussian) -> None:
        super().__init__()
        self.noise = noise
        # Data of the start alone: neither checkpoints nor other devices need it.
        self.guess = guess

    def at(self, index: Tensor | None = None, known: Tensor | None = None) -> PartlyObservedRows:
        return PartlyObservedRows(self.noise.at(index, known))

    def subset(self, index: Tensor) -> Self:
        part = copy.copy(self)
        part._modules = {**self._modules, "noise": self.noise.subset(index)}
        return part

    def surrogate(self, y: Tensor) -> Surrogate:
        return Surrogate(torch.where(torch.isnan(y), self.guess.to(y), y), self.noise.known)

    def adopt(self, noise: Tensor, y: Tensor) -> None:
        self.noise.adopt(noise, y)
