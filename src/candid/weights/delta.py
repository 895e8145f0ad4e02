"""A point estimate of the inducing values."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn

from candid.weights.base import Weights, over_gps

__all__ = ["Delta"]


class Delta(Weights):
    """q(v) = δ(v − m), penalised by −log N(m; 0, I)."""

    def __init__(self, n_inducing: int, batch_shape: tuple[int, ...] = ()) -> None:
        super().__init__()
        self.mean = nn.Parameter(torch.zeros(*batch_shape, n_inducing))

    def penalty(self) -> Tensor:
        # −log N(m; 0, I)
        n_inducing = self.mean.shape[-1]
        return over_gps(0.5 * (self.mean.square().sum(-1) + n_inducing * math.log(2 * math.pi)))

    def root(self) -> None:
        return None

    @torch.no_grad()
    def assign(self, mean: Float[Tensor, "*batch m"], precision: Float[Tensor, "*batch m m"]) -> None:
        self.mean.copy_(mean)
