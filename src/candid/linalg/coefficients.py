"""Coefficients c = L⁻ᵀ m of kernel functions, where L Lᵀ = K_zz: then k(Z, x)ᵀ c = aᵀ m, and no features a are needed.

For a gradient c̄ with respect to c, and Σ the symmetric matrix whose lower triangle is that of m m̄ᵀ,

    m̄ = L⁻¹ c̄          K̄_zz = −½ L⁻ᵀ Σ L⁻¹.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from candid.linalg.autograd import first_order
from candid.linalg.cholesky import Factor, cholesky
from candid.linalg.triangular import congruence

__all__ = ["kernel_coefficients"]


def kernel_coefficients(
    gram: Float[Tensor, "*batch m m"], weights: Float[Tensor, "*batch m"], jitter: float | Tensor = 0.0
) -> tuple[Float[Tensor, "*batch m"], Factor]:
    """Return c = L⁻ᵀ weights, where L Lᵀ = gram (+ jitter, a constant in the gradient), and the factor."""
    factor = cholesky(gram.detach(), jitter)
    return _Coefficients.apply(gram, weights, factor.lower), factor  # pyright: ignore[reportReturnType]


class _Coefficients(torch.autograd.Function):
    @staticmethod
    def forward(ctx, gram: Tensor, weights: Tensor, lower: Tensor) -> Tensor:
        ctx.save_for_backward(lower, weights)
        return torch.linalg.solve_triangular(lower.mT, weights.unsqueeze(-1), upper=True).squeeze(-1)

    @staticmethod
    @first_order
    def backward(ctx, grad: Tensor):  # pyright: ignore[reportIncompatibleMethodOverride]
        lower, weights = ctx.saved_tensors
        # m̄ = L⁻¹ c̄
        grad_weights = torch.linalg.solve_triangular(lower, grad.unsqueeze(-1), upper=False)
        grad_gram = None
        if ctx.needs_input_grad[0]:
            # −½ L⁻ᵀ Σ L⁻¹
            grad_gram = congruence(lower, weights.unsqueeze(-1) @ grad_weights.mT).mul_(-0.5)
        return grad_gram, grad_weights.squeeze(-1), None
