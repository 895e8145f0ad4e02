"""What likelihoods without parameters of the size of the data share."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from typing import Any, Self

from torch import Tensor, nn

__all__ = ["Likelihood"]


class Likelihood(nn.Module, ABC):
    """p(y|f), with learned parameters that all rows share.

    ``at(index)`` gives the likelihood at some rows: an object with both averages over f ~ N(mean, variance),
    ``expected_log_density(y, mean, variance)`` = E log p(y|f) and ``log_expected_density(y, mean, variance)`` =
    log E p(y|f). Their axes are ``(chain, site, row, output)``; y has the last two.
    """

    @abstractmethod
    def at(self, index: Tensor | None = None) -> Any:
        """The likelihood of training rows ``index``, or of other rows."""

    def subset(self, index: Tensor) -> Self:
        """A copy for a model that trains on rows ``index`` only."""
        return copy.deepcopy(self)
