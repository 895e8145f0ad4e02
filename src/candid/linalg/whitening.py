"""Whitened features A = L⁻¹ K_zx, with a backward pass that never differentiates the factor.

For a gradient Ā with respect to A, sym(X) = (X+Xᵀ)/2 and Φ(X) the lower triangle of X with its diagonal halved,

    K̄_zx = L⁻ᵀ Ā          K̄_zz = −sym(L⁻ᵀ Φ(Ā Aᵀ) L⁻¹).
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from candid.linalg.autograd import first_order
from candid.linalg.cholesky import Factor, cholesky

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
        features = torch.linalg.solve_triangular(lower, cross, upper=False)
        ctx.save_for_backward(lower, features)
        return features

    @staticmethod
    @first_order
    def backward(ctx, grad_features: Tensor):
        lower, features = ctx.saved_tensors
        grad_gram = grad_cross = None
        if ctx.needs_input_grad[1]:
            # K̄_zx = L⁻ᵀ Ā
            grad_cross = torch.linalg.solve_triangular(lower.mT, grad_features, upper=True)
        if ctx.needs_input_grad[0]:
            # Φ(Ā Aᵀ)
            inner = (grad_features @ features.mT).tril_()
            inner.diagonal(dim1=-2, dim2=-1).mul_(0.5)
            # L⁻ᵀ Φ L⁻¹
            inner = torch.linalg.solve_triangular(lower.mT, inner, upper=True)
            inner = torch.linalg.solve_triangular(lower, inner, upper=False, left=False)
            # K̄_zz = −sym(·)
            grad_gram = (inner + inner.mT).mul_(-0.5)
        return grad_gram, grad_cross, None
