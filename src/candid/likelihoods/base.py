"""What likelihoods without parameters of the size of the data share."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, Self

from torch import Tensor, nn

from candid.marginal import Batch, Marginal

__all__ = ["Likelihood", "Sites", "Surrogate"]


@dataclass(frozen=True)
class Surrogate:
    """Real numbers with normal noise that say about the same of the latent function as the observations do.

    Attributes
    ----------
    targets : Tensor
        Row × output of the latent function.
    variance : Tensor or None
        Of their noise, row × output, where it is known; otherwise it is to be learned.
    unit : float or None
        The variance that the noise should have. Where another one is learned, all is to be multiplied, so that signal
        and noise keep their ratio.
    """

    targets: Tensor
    variance: Tensor | None = None
    unit: float | None = None


class Likelihood(nn.Module, ABC):
    """p(y|f), with learned parameters that all rows share.

    ``at(index)`` gives the likelihood at some rows: an object with both averages over f ~ N(mean, variance),
    ``expected_log_density(y, mean, variance)`` = E log p(y|f) and ``log_expected_density(y, mean, variance)`` =
    log E p(y|f). Their axes are ``(chain, site, row, output)``; y has the last two. ``pseudo_observations(y, mean,
    variance)`` are targets and precisions of the normal likelihood that is like this one where f ~ N(mean, variance).
    """

    @abstractmethod
    def at(self, index: Tensor | None = None, known: Tensor | None = None) -> Any:
        """The likelihood of training rows ``index``, or of other rows, of which something may be ``known``.

        That is what belongs to rows and is not learned: noise variances, or numbers of trials (row × output).
        """

    def subset(self, index: Tensor) -> Self:
        """A copy for a model that trains on rows ``index`` only."""
        return copy.deepcopy(self)

    @abstractmethod
    def surrogate(self, y: Tensor) -> Surrogate:
        """What kernel and mean function can be fitted to before anything is known of f."""

    def adopt(self, noise: Tensor, y: Tensor) -> None:
        """Start from the variance (1 × output) of the noise of a surrogate of ``y``, where that was learned."""


class Sites(nn.Module, ABC):
    """What families that condition on the data see of it: real numbers with normal noise in place of observations."""

    targets: Tensor  # of the training rows, N×P

    @abstractmethod
    def forward(self, index: Tensor) -> tuple[Tensor, Tensor]:
        """Targets and noise variances (row × output) of training rows ``index``."""

    def settled(self, index: Tensor) -> tuple[Tensor, Tensor]:
        """The same as predictions need it; sites with random parts have none here."""
        return self(index)

    def agreeing(self, index: Tensor, mean: Tensor, variance: Tensor) -> tuple[Tensor, Tensor] | None:
        """The same where the latent function is known to have these moments; None if they make no difference."""
        return None

    def log_density(self, index: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
        """log E p(y|f) of each observation, for f with these moments; of sites that have to agree with them."""
        raise TypeError(f"{type(self).__name__} say nothing but their targets")

    def penalties(self, batch: Batch, marginal: Marginal) -> dict[str, Tensor]:
        """Whole-data nats of what is learned about the rows of a batch, by name.

        ``marginal`` is what the other rows say of the latent function there.
        """
        return {}

    def own_parameters(self) -> list[nn.Parameter]:
        """Those of the size of the data."""
        return []

    def refresh(self, step: int) -> None:
        """Called before every step of training."""
