"""The interface of q(v)."""

from __future__ import annotations

from abc import ABC, abstractmethod

from jaxtyping import Float
from torch import Tensor, nn

from candid.linalg import project

__all__ = ["Weights"]


class Weights(nn.Module, ABC):
    """A distribution q(v) = N(m, S) over M whitened inducing values, batched over GPs (and chains)."""

    mean: Tensor  # (…, M)

    @abstractmethod
    def penalty(self) -> Tensor:
        """KL(q ‖ N(0, I)) in nats, or −log N(m; 0, I) for a point; summed over the GPs (the last batch dimension)."""

    @abstractmethod
    def root(self) -> Tensor | None:
        """What is needed of S = R Rᵀ: None where S = 0, the diagonal of R (…, M), or R itself (…, M, M)."""

    def loose_root(self) -> Tensor | None:
        """The same, with anything above the diagonal of R: for those who do not read it."""
        return self.root()

    @abstractmethod
    def assign(self, mean: Float[Tensor, "*batch m"], precision: Float[Tensor, "*batch m m"]) -> None:
        """Set m, and S as near to ``precision``⁻¹ as this kind of q(v) allows (in the sense of the KL divergence)."""

    def refresh(self, step: int) -> None:
        """Called before every step of training."""

    def settled(self) -> Weights:
        """The weights that predictions use."""
        return self

    def moments(
        self, features: Float[Tensor, "*batch m n"]
    ) -> tuple[Float[Tensor, "*batch n"], Float[Tensor, "*batch n"], Float[Tensor, "*batch n"]]:
        """Mean aᵀm, explained variance aᵀa and spread aᵀSa for each column a of whitened features."""
        return project(features, self.mean, self.loose_root())


def over_gps(nats: Float[Tensor, "*batch"]) -> Tensor:
    """Sum over the GPs of one model, never over chains."""
    return nats.sum(-1) if nats.dim() else nats
