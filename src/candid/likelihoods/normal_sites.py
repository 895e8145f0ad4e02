"""Any observation as a number with normal noise, of which both number and noise are learned.

Where other rows say that f ~ N(μ, σ²), an observation that counts as a target t with noise variance 1/λ makes it

    q(f) = N(m, v)        1/v = 1/σ² + λ        m = v(μ/σ² + λt)

and log ∫ p(y|f) N(f; μ, σ²) df is not less than E_q log p(y|f) − KL(q ‖ N(μ, σ²)). The difference is the divergence of
q(f) from what f really is given y, and the penalty of the row: t and λ go where it is least. They are a row's own
business: what it is to others does not move them.

Auxiliary variables would do for counts as well. But a count of n trials needs a Pólya–Gamma variable of n trials:
log-normal distributions lose about 18 nats where n = 100, and the expectation of ω alone, as in mean-field inference,
makes rare events seem several times more precise than they are.
"""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.functional import embedding

from candid.likelihoods.base import Likelihood, Sites
from candid.marginal import Batch, Marginal

__all__ = ["NormalSites", "matching_observations", "normal_observations"]

# Rounds in which the observation of a new row is found, and the share of its way that it goes in each.
ROUNDS, SHARE = 40, 0.5
# Precisions do not fall below this one.
LEAST_PRECISION = 1e-6


class NormalSites(Sites):
    """Observations of the training rows, and t and λ of each.

    Parameters
    ----------
    likelihood : Likelihood
    targets : Tensor
        The observations, N×P.
    start : tuple of Tensor
        Where t and 1/λ start, N×P each.
    """

    targets: Tensor
    start: Tensor
    deviation: Tensor

    def __init__(
        self,
        likelihood: Likelihood,
        targets: Float[Tensor, "n p"],
        start: tuple[Float[Tensor, "n p"], Float[Tensor, "n p"]],
    ) -> None:
        super().__init__()
        self.likelihood = likelihood
        self.register_buffer("targets", targets, persistent=False)
        self.register_buffer("start", start[0])
        self.register_buffer("deviation", start[1].sqrt())
        # Steps of training are as long as deviations are.
        self.shift, self.log_ratio = (nn.Parameter(torch.zeros_like(part)) for part in start)

    @torch.no_grad()
    def forward(self, index: Int[Tensor, " n"]) -> tuple[Float[Tensor, "n p"], Float[Tensor, "n p"]]:
        target, precision = self._observed(index)
        return target, precision.reciprocal()

    def penalties(self, batch: Batch, marginal: Marginal) -> dict[str, Tensor]:
        assert batch.index is not None
        at_rows, (mean, variance) = self.likelihood.at(batch.index), (marginal.mean, marginal.variance)
        bound = _bound(at_rows, batch.y, mean, variance, *self._observed(batch.index))
        loss = (at_rows.log_expected_density(batch.y, mean, variance) - bound).sum(-1)
        # N Σ_batch w·KL / Σ_batch w
        return {"kl_aux": batch.total * (batch.weight @ loss) / batch.weight.sum()}

    def own_parameters(self) -> list[nn.Parameter]:
        return [self.shift, self.log_ratio]

    def _observed(self, index: Tensor) -> tuple[Tensor, Tensor]:
        """t and λ, relative to where they started."""
        shift, log_ratio = (embedding(index, part, sparse=True) for part in self.own_parameters())
        deviation = self.deviation[index]
        return self.start[index] + deviation * shift, log_ratio.exp() / deviation.square()


def normal_observations(
    at_rows: Any,
    y: Float[Tensor, "n p"],
    mean: Float[Tensor, "n p"],
    variance: Float[Tensor, "n p"],
    start: tuple[Float[Tensor, "n p"], Float[Tensor, "n p"]],
) -> tuple[Float[Tensor, "n p"], Float[Tensor, "n p"]]:
    """The t and λ of least penalty, for rows of which others say that f ~ N(mean, variance); t and 1/λ to start from.

    There they are those that match p(y|f) under q(f).
    """
    shift, precision = start[0] / start[1], 1 / start[1]
    for _ in range(ROUNDS):
        target, better = matching_observations(at_rows, y, *_given(mean, variance, shift, precision))
        precision = torch.lerp(precision, better, SHARE)
        shift = torch.lerp(shift, better * target, SHARE)
    return shift / precision, precision


def matching_observations(
    at_rows: Any, y: Float[Tensor, "n p"], mean: Float[Tensor, "n p"], variance: Float[Tensor, "n p"]
) -> tuple[Float[Tensor, "n p"], Float[Tensor, "n p"]]:
    """The t and λ of the normal density that is like p(y|f), on average, where f ~ N(m, v).

    λ = −2 ∂E/∂v and λ(t − m) = ∂E/∂m, for E = E log p(y|f).
    """
    m, v = (part.detach().requires_grad_() for part in (mean, variance))
    with torch.enable_grad():
        expected = at_rows.expected_log_density(y, m, v).sum()
    by_mean, by_variance = torch.autograd.grad(expected, (m, v))
    precision = (-2 * by_variance).clamp_min(LEAST_PRECISION)
    return mean + by_mean / precision, precision


def _given(mean: Tensor, variance: Tensor, shift: Tensor, precision: Tensor) -> tuple[Tensor, Tensor]:
    """m and v, from λt and λ."""
    growth = 1 + variance * precision
    return (mean + variance * shift) / growth, variance / growth


def _bound(at_rows: Any, y: Tensor, mean: Tensor, variance: Tensor, location: Tensor, precision: Tensor) -> Tensor:
    """E_q log p(y|f) − KL(q ‖ N(mean, variance))."""
    growth = 1 + variance * precision
    # KL = ½(1/g − 1 + log g + σ²(λ(t − μ)/g)²) with g = 1 + σ²λ
    distance = precision * (location - mean) / growth
    divergence = 0.5 * (growth.reciprocal() - 1 + growth.log() + variance * distance.square())
    return at_rows.expected_log_density(y, *_given(mean, variance, precision * location, precision)) - divergence
