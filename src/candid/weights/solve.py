"""The best q(v) for Gaussian noise at fixed hyper-parameters, in closed form."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from candid.linalg import cholesky

__all__ = ["optimal_weights"]


def optimal_weights(
    gram: Float[Tensor, "*batch m m"], projection: Float[Tensor, "*batch m"]
) -> tuple[Float[Tensor, "*batch m"], Float[Tensor, "*batch m m"]]:
    """Mean and precision of the q(v) that maximises the ELBO.

    Parameters
    ----------
    gram : Tensor
        ``Σ_i a_i a_iᵀ / (β σ_i²)`` over all training rows.
    projection : Tensor
        ``Σ_i a_i (y_i − mu_i) / (β σ_i²)``.
    """
    # Bm = I + A Aᵀ/(βσ²),   m = Bm⁻¹ A(y − mu)/(βσ²),   S = Bm⁻¹
    precision = gram + torch.eye(gram.shape[-1], dtype=gram.dtype, device=gram.device)
    mean = torch.cholesky_solve(projection.unsqueeze(-1), cholesky(precision).lower).squeeze(-1)
    return mean, precision
