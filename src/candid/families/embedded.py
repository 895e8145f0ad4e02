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
from jaxtyping import Float
from torch import Tensor, nn

from candid.families.base import Family
from candid.families.exact import Exact
from candid.families.means import Mean
from candid.families.neighbours import Neighbours
from candid.families.predictor import Joint, Predictor
from candid.families.sparse import Sparse
from candid.kernels import Deep, Features, Kernel, network_from_spec
from candid.marginal import Batch, Evaluation, JointPrior, LowRankPrior, Marginal

__all__ = ["Embedded", "EmbeddedPredictor", "inducing_part"]

# What describes an embedded predictor.
PARTS = {"type", "network", "inner"}


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
        return Deep(self.network, self.inner.kernel)

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


class EmbeddedPredictor(Predictor):
    """Predictions of ``inner`` at the features of the inputs.

    Parameters
    ----------
    network : Features
        As fitted; the predictor keeps it.
    inner : Predictor
        Of features.
    """

    def __init__(self, network: Features, inner: Predictor) -> None:
        super().__init__()
        self.network, self.inner = network, inner
        self.n_points = inner.n_points
        self.requires_grad_(False)

    @property
    def dtype(self) -> torch.dtype:
        return self.inner.dtype

    def marginal(self, x: Float[Tensor, "*#chains n d"], mean_only: bool = False) -> Marginal:
        return self.inner.marginal(self._features(x), mean_only)

    def joint(self, x: Float[Tensor, "*#chains n d"]) -> Joint:
        return self.inner.joint(self._features(x))

    def _features(self, x: Tensor) -> Tensor:
        (features,) = self.network.settled(x)
        return features

    def to_spec(self) -> dict[str, Any]:
        return {"type": "embedded", "network": self.network.to_spec(), "inner": self.inner.to_spec()}

    @staticmethod
    def from_spec(spec: dict[str, Any], code: Any = None) -> EmbeddedPredictor:
        # The inner predictor may be of any kind, this one among them.
        from candid.families.rebuild import predictor_from_spec

        if spec.keys() != PARTS:
            raise ValueError(f"an embedded predictor has the parts {sorted(PARTS)}, but its description {sorted(spec)}")
        return EmbeddedPredictor(network_from_spec(spec["network"], code), predictor_from_spec(spec["inner"], code))
