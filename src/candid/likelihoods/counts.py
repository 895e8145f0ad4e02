"""Counts with a logistic link: binomial, and negative binomial.

Both have log p(y|f) = a log σ(f) + b log σ(−f) + constant, with "successes" a and "failures" b that need not be whole
numbers.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from candid.likelihoods import polya_gamma
from candid.likelihoods.base import Likelihood, Surrogate
from candid.likelihoods.quadrature import average, log_average, window
from candid.parameters import positive

__all__ = ["Binomial", "BinomialRows", "NegativeBinomial", "NegativeBinomialRows"]

# Between these the inverse of a concentration starts.
EXCESS = (0.01, 10.0)


@dataclass(frozen=True)
class BinomialRows:
    """y successes in ``trials`` independent trials, each a success with probability σ(f)."""

    trials: Tensor

    def expected_log_density(self, y: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
        """E log p(y|f) for f ~ N(mean, variance)."""
        return self._ways(y) + _expected_log_power(y, self.trials - y, mean, variance)

    def log_expected_density(self, y: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
        """log E p(y|f) for f ~ N(mean, variance)."""
        return self._ways(y) + _log_expected_power(y, self.trials - y, mean, variance)

    def expected_log_bound(self, y: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
        """A lower bound of E log p(y|f) by Pólya–Gamma variables."""
        trials = self.trials.expand_as(y)
        return self._ways(y) + polya_gamma.expected_log_bound(trials, y - 0.5 * trials, mean, variance)

    def pseudo_observations(self, y: Tensor, mean: Tensor, variance: Tensor) -> tuple[Tensor, Tensor]:
        """Targets and precisions by Pólya–Gamma variables."""
        return _pseudo_observations(self.trials.expand_as(y), y - 0.5 * self.trials, mean, variance)

    def logits(self, y: Tensor) -> tuple[Tensor, Tensor]:
        """What each count says by itself."""
        return _logits(y, self.trials - y)

    def _ways(self, y: Tensor) -> Tensor:
        # log n!/(y! (n − y)!)
        failures = self.trials - y
        return (_log_gamma(self.trials + 1) - _log_gamma(y + 1) - _log_gamma(failures + 1)).to(y.dtype)


@dataclass(frozen=True)
class NegativeBinomialRows:
    """A count y with mean ``concentration · exp(f)`` and variance mean + mean²/concentration."""

    concentration: Tensor

    def expected_log_density(self, y: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
        """E log p(y|f) for f ~ N(mean, variance)."""
        return self._ways(y) + _expected_log_power(y, self.concentration, mean, variance)

    def log_expected_density(self, y: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
        """log E p(y|f) for f ~ N(mean, variance)."""
        return self._ways(y) + _log_expected_power(y, self.concentration, mean, variance)

    def expected_log_bound(self, y: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
        """A lower bound of E log p(y|f) by Pólya–Gamma variables."""
        power, slope = y + self.concentration, 0.5 * (y - self.concentration)
        return self._ways(y) + polya_gamma.expected_log_bound(power, slope, mean, variance)

    def pseudo_observations(self, y: Tensor, mean: Tensor, variance: Tensor) -> tuple[Tensor, Tensor]:
        """Targets and precisions by Pólya–Gamma variables."""
        return _pseudo_observations(y + self.concentration, 0.5 * (y - self.concentration), mean, variance)

    def logits(self, y: Tensor) -> tuple[Tensor, Tensor]:
        """What each count says by itself."""
        return _logits(y, self.concentration.detach())

    def _ways(self, y: Tensor) -> Tensor:
        # log Γ(y + r)/(Γ(r) y!)
        r = self.concentration.double()
        return (_log_gamma(y + r) - _log_gamma(r) - _log_gamma(y + 1)).to(y.dtype)


class Binomial(Likelihood):
    """Successes out of a known number of trials.

    Parameters
    ----------
    trials : Tensor
        Numbers of trials: of each training row (N×P), or one row (1×P) that holds everywhere.
    """

    trials: Tensor

    def __init__(self, trials: Tensor) -> None:
        super().__init__()
        # Data, not parameters: checkpoints do without them.
        self.register_buffer("trials", trials, persistent=False)

    @property
    def constant(self) -> bool:
        """Whether one row of numbers holds everywhere."""
        return len(self.trials) == 1

    def at(self, index: Tensor | None = None, known: Tensor | None = None) -> BinomialRows:
        """The likelihood of training rows ``index``, or of other rows, whose numbers of trials must be ``known``."""
        if index is None and known is not None:
            return BinomialRows(known)
        if self.constant:
            return BinomialRows(self.trials)
        if index is None:
            raise ValueError("rows that are not training rows need their numbers of trials")
        return BinomialRows(self.trials[index])

    def surrogate(self, y: Tensor) -> Surrogate:
        return Surrogate(*_logits(y, self.trials - y))

    def subset(self, index: Tensor) -> Binomial:
        part = copy.deepcopy(self)
        if not part.constant:
            part.trials = part.trials[index]
        return part


class NegativeBinomial(Likelihood):
    """Counts that scatter more than Poisson's; the concentration r is learned, one for each output.

    p(y|f) = Γ(y + r)/(Γ(r) y!) σ(f)^y σ(−f)^r. As r grows with r·exp(f) fixed, it becomes Poisson's distribution.

    Parameters
    ----------
    concentration : float
        Where r starts.
    n_outputs : int
    batch_shape : tuple of int
        Leading dimensions (chains).
    """

    def __init__(self, concentration: float = 1.0, n_outputs: int = 1, batch_shape: tuple[int, ...] = ()) -> None:
        super().__init__()
        self.concentration = positive(torch.full((*batch_shape, 1, n_outputs), concentration))

    def at(self, index: Tensor | None = None, known: Tensor | None = None) -> NegativeBinomialRows:
        return NegativeBinomialRows(self.concentration.value)

    def surrogate(self, y: Tensor) -> Surrogate:
        # mean = r·exp(f)
        return Surrogate(torch.log(y + 0.5) - self.concentration.value.detach().log())

    @torch.no_grad()
    def adopt(self, noise: Tensor, y: Tensor) -> None:
        # Around its mean, the logarithm of a count has a variance of about 1/mean + 1/r.
        if not self.concentration.fixed:
            excess = noise - torch.exp(-torch.log(y + 0.5).mean(0))
            self.concentration.set(excess.clamp(*EXCESS).reciprocal())


def _expected_log_power(successes: Tensor, failures: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
    """E log σ(f)^a σ(−f)^b."""
    successes, failures, mean, variance = torch.broadcast_tensors(successes, failures, mean, variance)
    return average(lambda f: _log_power(f, successes, failures), mean, variance)


def _log_expected_power(successes: Tensor, failures: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
    """log E σ(f)^a σ(−f)^b."""
    successes, failures, mean, variance = torch.broadcast_tensors(successes, failures, mean, variance)

    def log_power(f: Tensor) -> Tensor:
        return _log_power(f, successes, failures)

    def slope(f: Tensor) -> Tensor:
        return successes * torch.sigmoid(-f) - failures * torch.sigmoid(f)

    return log_average(log_power, mean, variance, window(log_power, slope, mean, variance))


def _pseudo_observations(power: Tensor, slope: Tensor, mean: Tensor, variance: Tensor) -> tuple[Tensor, Tensor]:
    """Of σ(f)^a σ(−f)^b, with power = a + b and slope = (a − b)/2."""
    precision = power * polya_gamma.mean_precision(torch.sqrt(mean.square() + variance))
    return slope / precision, precision


def _logits(successes: Tensor, failures: Tensor) -> tuple[Tensor, Tensor]:
    """Empirical logits, with their usual variances."""
    successes, failures = successes + 0.5, failures + 0.5
    return torch.log(successes / failures), 1 / successes + 1 / failures


def _log_power(f: Tensor, successes: Tensor, failures: Tensor) -> Tensor:
    return successes * logsigmoid(f) + failures * logsigmoid(-f)


def _log_gamma(x: Tensor) -> Tensor:
    """log Γ(x) in float64: large ones nearly cancel."""
    return torch.lgamma(x.double())
