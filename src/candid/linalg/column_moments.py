"""Sums over the entries of columns, by machine code in one pass where that is possible."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from candid.linalg.stationary_conditional import machine_code_takes

__all__ = ["column_moments"]


def column_moments(
    features: Float[Tensor, "m n"], mean: Float[Tensor, " m"], variances: Float[Tensor, " m"]
) -> Float[Tensor, "3 n"]:
    """Σ m a, Σ a² and Σ s a² over the entries a of each column, with the means m and variances s of rows."""
    if machine_code_takes(features):
        from candid.linalg.block_kernels import block_moments

        moments = features.new_zeros(3, features.shape[-1])
        block_moments(*(values.detach().numpy() for values in (features, mean, variances, moments)))
        return moments
    squares = features.square()
    return torch.stack([mean @ features, squares.sum(0), variances @ squares])
