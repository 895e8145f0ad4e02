"""The values that travel between rooms.

Axes are ``(chain, site, row, output)``: the last two are always there (one output is an axis of length one), the
leading ones only where a sampler runs several chains or a family gives several mixture components ("sites").
"""

from __future__ import annotations

from dataclasses import dataclass

from jaxtyping import Float, Int
from torch import Tensor

__all__ = ["Batch", "Evaluation", "JointPrior", "LowRankPrior", "Marginal"]


@dataclass(frozen=True)
class Batch:
    """Some rows of the table. ``total`` is the sum of the weights of *all* training rows: the ``N`` of the formulas.

    Several groups of rows, for the joint density of each, are a leading axis of everything.
    """

    x: Float[Tensor, "*chains b d"]
    y: Float[Tensor, "*groups b p"]
    weight: Float[Tensor, "*groups b"]
    total: float
    index: Int[Tensor, "*groups b"] | None = None  # which training rows these are; None for other rows


@dataclass(frozen=True)
class Marginal:
    """Moments of the latent function at each row, in the parts that objectives treat differently.

    ``residual`` is the variance that the inducing points cannot explain, ``spread`` the uncertainty of q(v); the latent
    variance is their sum.
    """

    mean: Float[Tensor, "*#axes n p"]
    residual: Float[Tensor, "*#axes n p"]
    spread: Float[Tensor, "*#axes n p"]
    log_weight: Tensor | None = None  # (site, 1), normalised; None where there is no site axis
    cross: Float[Tensor, "*#axes n p p"] | None = None  # covariances, where outputs depend on each other

    @property
    def variance(self) -> Tensor:
        return self.residual + self.spread

    @property
    def uncertainty(self) -> Tensor:
        """Covariances of the outputs of a row where these depend on each other, and variances elsewhere."""
        return self.variance if self.cross is None else self.cross

    def moments(self) -> tuple[Tensor, Tensor]:
        """Latent mean and variance of each row, of the whole mixture where there are sites."""
        if self.log_weight is None:
            return self.mean, self.variance
        weight = self.log_weight.exp().unsqueeze(-1)
        mean = (weight * self.mean).sum(-3)
        # Σ ω v + Σ ω (μ − Σωμ)²
        return mean, (weight * (self.variance + (self.mean - mean.unsqueeze(-3)).square())).sum(-3)


@dataclass(frozen=True)
class Evaluation:
    """What a family says about a batch: its marginals, and penalties in whole-data nats (larger is worse).

    Names of penalties in use: ``kl`` (KL(q‖p) of the weights, or −log p(v) for point estimates), ``omega``
    (disagreement of decoupled kernels), ``kl_aux`` (auxiliary variables of a likelihood), ``prior`` (−log p of
    hyper-parameters).
    """

    marginal: Marginal
    penalties: dict[str, Tensor]


@dataclass(frozen=True)
class JointPrior:
    """Joint prior of the latent function at a group of rows."""

    mean: Float[Tensor, "*#chains n p"]
    covariance: Float[Tensor, "*#chains p n n"]


@dataclass(frozen=True)
class LowRankPrior:
    """Joint prior of the latent function as inducing points see it: f = mu + Aᵀv + e, with v ~ N(0, I), e ~ N(0, c).

    AᵀA is the covariance that the inducing points explain; of what they do not explain, only the variances ``residual``
    are known.
    """

    mean: Float[Tensor, "*#chains n p"]
    features: Float[Tensor, "*#chains p m n"]  # A, the kernel's amplitude included
    residual: Float[Tensor, "*#chains n p"]  # c
