"""Several classes: y is the number of a class, and each class has a logistic model of itself against all others.

The probabilities of the K models are normalised to those of the classes. That is done with what they predict, and not
for each value of the latent functions: p(y = k) = p̃_k / Σ p̃ with p̃_k = E σ(f_k).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import one_hot

from candid.likelihoods.base import Likelihood, Surrogate
from candid.likelihoods.bernoulli import Bernoulli, LogitRows

__all__ = ["OneAgainstAll", "OneAgainstAllRows", "indicators"]


@dataclass(frozen=True)
class OneAgainstAllRows:
    """The likelihood at given rows. The outputs of the latent function are the classes; y has one column."""

    def log_class_probabilities(
        self, mean: Float[Tensor, "*axes n k"], variance: Float[Tensor, "*#axes n k"]
    ) -> Float[Tensor, "*axes n k"]:
        """log p of every class."""
        mean, variance = torch.broadcast_tensors(mean, variance)
        # log p̃_k − log Σ p̃
        return LogitRows().log_expected_density(torch.ones_like(mean), mean, variance).log_softmax(-1)

    def log_expected_density(
        self, y: Float[Tensor, "n 1"], mean: Float[Tensor, "*axes n k"], variance: Float[Tensor, "*#axes n k"]
    ) -> Float[Tensor, "*axes n 1"]:
        """log p of the observed class."""
        logs = self.log_class_probabilities(mean, variance)
        return logs.gather(-1, y.long().expand(*logs.shape[:-1], 1))

    def expected_log_density(
        self, y: Float[Tensor, "n 1"], mean: Float[Tensor, "*axes n k"], variance: Float[Tensor, "*#axes n k"]
    ) -> Float[Tensor, "*axes n k"]:
        """E log p of the K labels that a class stands for, model by model: one is positive, the others negative."""
        return LogitRows().expected_log_density(indicators(y, mean.shape[-1]), mean, variance)

    def pseudo_observations(
        self, y: Float[Tensor, "n 1"], mean: Float[Tensor, "n k"], variance: Float[Tensor, "n k"]
    ) -> tuple[Float[Tensor, "n k"], Float[Tensor, "n k"]]:
        """Targets and precisions by Pólya–Gamma variables, of each model for itself."""
        return LogitRows().pseudo_observations(indicators(y, mean.shape[-1]), mean, variance)


class OneAgainstAll(Likelihood):
    """Several classes, y ∈ {0, …, K − 1}: a latent function for each, and nothing to learn.

    Parameters
    ----------
    n_classes : int
        K.
    """

    def __init__(self, n_classes: int) -> None:
        super().__init__()
        self.n_classes = n_classes

    def at(self, index: Tensor | None = None, known: Tensor | None = None) -> OneAgainstAllRows:
        return OneAgainstAllRows()

    def surrogate(self, y: Tensor) -> Surrogate:
        return Bernoulli("logit").surrogate(indicators(y, self.n_classes))


def indicators(y: Float[Tensor, "n 1"], n_classes: int) -> Float[Tensor, "n k"]:
    """Labels 0 and 1 of each class against all others."""
    return one_hot(y.squeeze(-1).long(), n_classes).to(y.dtype)
