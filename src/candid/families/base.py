"""The interface of a family."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping

from torch import Tensor, nn

from candid.families.means import Mean
from candid.families.predictor import Predictor
from candid.kernels import Kernel
from candid.marginal import Batch, Evaluation, JointPrior, LowRankPrior, Marginal

__all__ = ["Family"]


class Family(nn.Module, ABC):
    """Maps inputs to marginals (for row objectives) or to joint priors (for evidences), and makes predictors.

    A family offers at least one of :meth:`evaluate` and :meth:`prior`; :func:`candid.methods.compatible` knows which
    objectives go with which family, so the other one is never called.
    """

    kernel: Kernel  # of GPs
    mean: Mean  # of GPs
    jitter: Tensor  # share of the kernel's diagonal that the last factorisation needed

    @property
    def n_chains(self) -> int:
        """How many models side by side a sampler moves."""
        return 1

    @property
    def hidden_inputs(self) -> int | None:
        """How many inputs the kernel has, where these are hidden values; None where they are columns of the table."""
        return None

    @property
    def batchwise(self) -> bool:
        """Whether penalties depend on the number of rows in a batch, or groups of rows would fill the memory."""
        return False

    def n_covariances(self, n_rows: int) -> float:
        """How many covariances a step with so many rows needs; infinite where these are not most of the work."""
        return math.inf

    def shares_rows(self, n_rows: int) -> bool:
        """Whether most of a step with so many rows is work on blocks of them, which a crew can share out."""
        return False

    def evaluate(self, batch: Batch) -> Evaluation:
        """Marginals of the rows of a batch, and the penalties of the model."""
        raise TypeError(f"{type(self).__name__} has no row marginals; use it with an evidence")

    def groups(self, batch: Batch) -> Batch:
        """The rows whose joint densities an evidence is made of: all of a batch together.

        A family that makes groups of them, one around each row of the batch, gives these a leading axis.
        """
        return batch

    def prior(self, batch: Batch) -> JointPrior | LowRankPrior | Marginal:
        """Joint prior of the rows of a batch (of each group), or that of each row given what comes before it."""
        raise TypeError(f"{type(self).__name__} has no joint prior; use it with a row objective")

    def refresh(self, step: int) -> None:
        """Called by the loop before every step; families that hold an index renew it here. The others do nothing."""

    def weight_parameters(self) -> list[nn.Parameter]:
        """The parameters of q(v), which some steppers treat apart from the rest."""
        return []

    def point_parameters(self) -> list[nn.Parameter]:
        """Inducing points."""
        return []

    def hidden_mean_parameters(self) -> list[nn.Parameter]:
        """Those of mean functions between layers."""
        return []

    def common_parameters(self) -> list[nn.Parameter]:
        """Those that are the same in all chains, each of which has a copy."""
        return []

    def site_parameters(self) -> list[nn.Parameter]:
        """Parameters of the size of the data, of which a step concerns some rows only."""
        return []

    def keep(self, draws: Mapping[str, Tensor]) -> None:
        """Predict from these samples of parameters; they have an axis of draws in front of their own."""
        raise TypeError(f"{type(self).__name__} predicts from one value of each parameter, not from samples")

    @abstractmethod
    def predictor(self) -> Predictor:
        """A frozen predictor in float64, which shares nothing with the family."""

    def draft_predictor(self) -> Predictor:
        """The same, made to be used once, as for held-out rows while training goes on.

        It need not be as quick for each row if that saves time in making it.
        """
        return self.predictor()
