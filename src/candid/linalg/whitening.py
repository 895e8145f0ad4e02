"""Whitened features A = L⁻¹ K_zx, with a backward pass that never differentiates the factor.

For a gradient Ā with respect to A, and Σ the symmetric matrix whose lower triangle is that of Ā Aᵀ,

    K̄_zx = L⁻ᵀ Ā          K̄_zz = −½ L⁻ᵀ Σ L⁻¹.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from candid.linalg.autograd import first_order
from candid.linalg.cholesky import Factor, cholesky
from candid.linalg.triangular import congruence, product_below_diagonal, solve_lower, solve_lower_transposed

__all__ = ["whiten"]


def whiten(
    gram: Float[Tensor, "*batch m m"], cross: Float[Tensor, "*batch m n"], jitter: float | Tensor = 0.0
) -> tuple[Float[Tensor, "*batch m n"], Factor]:
    """Return A = L⁻¹ cross, where L Lᵀ = gram (+ jitter), and the factor.

    The jitter counts as a constant in the gradient, as it is for unit-amplitude kernels.
    """
    factor = cholesky(gram.detach(), jitter)
    return _Whiten.apply(gram, cross, factor.lower), factor  # pyright: ignore[reportReturnType]


class _Whiten(torch.autograd.Function):
    @staticmethod
    def forward(ctx, gram: Tensor, cross: Tensor, lower: Tensor) -> Tensor:
        features = solve_lower(lower, cross)
        ctx.save_for_backward(lower, features)
        return features

    @staticmethod
    @first_order
    def backward(ctx, grad_features: Tensor):
        lower, features = ctx.saved_tensors
        grad_gram = grad_cross = None
        if ctx.needs_input_grad[1]:
            # K̄_zx = L⁻ᵀ Ā
            grad_cross = solve_lower_transposed(lower, grad_features)
        if ctx.needs_input_grad[0]:
            # K̄_zz = −½ L⁻ᵀ Σ L⁻¹
            grad_gram = congruence(lower, product_below_diagonal(grad_features, features)).mul_(-0.5)
        return grad_gram, grad_cross, None
