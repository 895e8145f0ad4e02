"""Inducing points that only shape the variance: the mean function says all there is to say of the mean.

References
----------
X. Zhu, K. Wu, N. Maus, J. Gardner, D. Bindel, Variational Gaussian processes with decoupled conditionals (2023),
section 5.4.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from candid.families.inducing import Inducing
from candid.families.means import Mean
from candid.kernels import Kernel
from candid.weights import Weights

__all__ = ["Centred"]


class Centred(Inducing):
    """mean_i = mu(x_i), and variances as in :class:`Inducing` with q(v) = N(0, S)."""

    def __init__(
        self, kernel: Kernel, mean: Mean, points: Float[Tensor, "*chains p m d"], weights: Weights, jitter: float
    ) -> None:
        super().__init__(kernel, mean, points, weights, jitter)
        self.weights.mean.requires_grad_(False)

    def assign(self, coefficients: Float[Tensor, "*batch m"], precision: Float[Tensor, "*batch m m"]) -> None:
        super().assign(torch.zeros_like(coefficients), precision)
