"""Normal distributions over the inducing values.

KL(N(m, S) ‖ N(0, I)) = ½(tr S + mᵀm − M − log det S)
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

from candid.linalg import cholesky, divergence_from_standard
from candid.weights.base import Weights, over_gps

__all__ = ["Diagonal", "Full", "Solved"]


class Diagonal(Weights):
    """q(v) = N(m, diag(s²)); never builds an M×M matrix."""

    def __init__(self, n_inducing: int, batch_shape: tuple[int, ...] = ()) -> None:
        super().__init__()
        self.mean = nn.Parameter(torch.zeros(*batch_shape, n_inducing))
        self.log_scale = nn.Parameter(torch.zeros(*batch_shape, n_inducing))

    def penalty(self) -> Tensor:
        trace = (2 * self.log_scale).exp().sum(-1)
        log_det = 2 * self.log_scale.sum(-1)
        return over_gps(0.5 * (trace + self.mean.square().sum(-1) - self.mean.shape[-1] - log_det))

    def root(self) -> Float[Tensor, "*batch m"]:
        return self.log_scale.exp()

    @torch.no_grad()
    def assign(self, mean: Float[Tensor, "*batch m"], precision: Float[Tensor, "*batch m m"]) -> None:
        # The diagonal S that is closest in KL(q‖·) to the full posterior is 1/diag(precision), not diag(precision⁻¹).
        self.mean.copy_(mean)
        self.log_scale.copy_(-0.5 * precision.diagonal(dim1=-2, dim2=-1).log())


class Full(Weights):
    """q(v) = N(m, L_S L_Sᵀ) with a lower-triangular L_S."""

    def __init__(self, n_inducing: int, batch_shape: tuple[int, ...] = ()) -> None:
        super().__init__()
        self.mean = nn.Parameter(torch.zeros(*batch_shape, n_inducing))
        self.lower = nn.Parameter(torch.eye(n_inducing).expand(*batch_shape, n_inducing, n_inducing).clone())

    def penalty(self) -> Tensor:
        return over_gps(divergence_from_standard(self.mean, self.lower))

    def root(self) -> Float[Tensor, "*batch m m"]:
        return self.lower.tril()

    def loose_root(self) -> Float[Tensor, "*batch m m"]:
        return self.lower

    @torch.no_grad()
    def assign(self, mean: Float[Tensor, "*batch m"], precision: Float[Tensor, "*batch m m"]) -> None:
        self.mean.copy_(mean)
        # With J the reversal of rows, J precision J = C Cᵀ makes U = J C J upper-triangular and precision = U Uᵀ,
        # so S = U⁻ᵀU⁻¹ and L_S = U⁻ᵀ.
        upper = cholesky(precision.double().flip(-2, -1)).lower.flip(-2, -1)
        identity = torch.eye(upper.shape[-1], dtype=upper.dtype, device=upper.device).expand_as(upper)
        self.lower.copy_(torch.linalg.solve_triangular(upper.mT, identity, upper=False))


class Solved(Full):
    """q(v) that is computed in closed form from the data rather than learned; see :func:`optimal_weights`."""

    def __init__(self, n_inducing: int, batch_shape: tuple[int, ...] = ()) -> None:
        super().__init__(n_inducing, batch_shape)
        self.mean.requires_grad_(False)
        self.lower.requires_grad_(False)
