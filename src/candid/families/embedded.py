"""A network in front of a family: everything behind it, inducing points too, lives in the space of the features.

The other way to use a network is a kernel that has one (:class:`~candid.kernels.Deep`); then inducing points are
inputs.

References
----------
A. G. Wilson, Z. Hu, R. Salakhutdinov, E. P. Xing, Stochastic variational deep kernel learning (2016).
"""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from candid.families.base import Family
from candid.families.embedded_predictor import EmbeddedPredictor
from candid.families.exact import Exact
from candid.families.means import Mean
from candid.families.neighbours import Neighbours
from candid.families.sparse import Sparse
from candid.kernels import Deep, Features, Kernel
from candid.marginal import Batch, Evaluation, JointPrior, LowRankPrior, Marginal

__all__ = ["Embedded", "inducing_part"]


class Embedded(Family):
    """``inner`` at the features h(x) of the inputs.

    Parameters
    ----------
    network : Features
        h, built for the inputs.
    inner : Family
        Its kernel, its mean function and its inducing points are those of features. It holds no rows: features of rows
        change with the network.

    Attributes
    ----------
    kernel : Deep
        The kernel as a function of inputs; assign one to replace network and inner kernel.
    mean : Mean
        A function of features.
    """

    def __init__(self, network: Features, inner: Family) -> None:
        super().__init__()
        if isinstance(inner, (Exact, Neighbours)):
            raise TypeError(
                f"{type(inner).__name__} holds rows of the table, whose features change in training; give it a Deep "
                f"kernel instead"
            )
        self.network, self.inner = network, inner

    @property
    def kernel(self) -> Kernel:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.inner.kernel if self.hidden_inputs is not None else Deep(self.network, self.inner.kernel)

    @property
    def mean_kernel(self) -> Kernel | None:  # pyright: ignore[reportIncompatibleVariableOverride]
        own = getattr(self.inner, "mean_kernel", None)
        return None if own is None else Deep(self.network, own)

    @property
    def mean(self) -> Mean:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.inner.mean

    @property
    def jitter(self) -> Tensor:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.inner.jitter

    def __setattr__(self, name: str, value: Any) -> None:
        # Modules that are assigned become parts of this one; these belong to others.
        if name == "kernel":
            if not isinstance(value, Deep):
                raise TypeError(f"the kernel of an embedded family is a Deep one, got {type(value).__name__}")
            self.network, self.inner.kernel = value.network, value.base
        elif name == "mean":
            self.inner.mean = value
        else:
            super().__setattr__(name, value)

    @property
    def hidden_inputs(self) -> int | None:
        return self.inner.hidden_inputs

    @property
    def batchwise(self) -> bool:
        return self.inner.batchwise

    def embedded(self, batch: Batch) -> Batch:
        """The batch with features in place of inputs."""
        (features,) = self.network.together(batch.x, weight=batch.weight)
        return replace(batch, x=features)

    def evaluate(self, batch: Batch) -> Evaluation:
        return self.inner.evaluate(self.embedded(batch))

    def prior(self, batch: Batch) -> JointPrior | LowRankPrior | Marginal:
        return self.inner.prior(self.embedded(batch))

    def refresh(self, step: int) -> None:
        self.inner.refresh(step)

    def weight_parameters(self) -> list[nn.Parameter]:
        return self.inner.weight_parameters()

    def point_parameters(self) -> list[nn.Parameter]:
        return self.inner.point_parameters()

    def hidden_mean_parameters(self) -> list[nn.Parameter]:
        return self.inner.hidden_mean_parameters()

    def adopt(self, kernel: Kernel, mean: Mean) -> None:
        """See :meth:`Sparse.adopt`; the kernel is a Deep one."""
        assert isinstance(kernel, Deep)
        assert isinstance(self.inner, Sparse)
        self.network = kernel.network
        self.inner.adopt(kernel.base, mean)

    @torch.no_grad()
    def predictor(self) -> EmbeddedPredictor:
        return EmbeddedPredictor(copy.deepcopy(self.network).double(), self.inner.predictor())

    @torch.no_grad()
    def draft_predictor(self) -> EmbeddedPredictor:
        return EmbeddedPredictor(copy.deepcopy(self.network).double(), self.inner.draft_predictor())


def inducing_part(family: Family) -> Sparse | None:
    """The family with inducing points, which may be behind a network; None if there is none."""
    inner = family.inner if isinstance(family, Embedded) else family
    return inner if isinstance(inner, Sparse) else None
