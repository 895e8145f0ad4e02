"""Log-density of a normal vector, with its gradient in closed form.

With α = C⁻¹ r:   log N(r; 0, C) = −½(rᵀα + log det C + n log 2π),   ∂/∂C = ½(ααᵀ − C⁻¹),   ∂/∂r = −α.
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor

from candid.linalg.autograd import first_order
from candid.linalg.cholesky import cholesky

__all__ = ["normal_log_density"]


def normal_log_density(
    covariance: Float[Tensor, "*batch n n"], residual: Float[Tensor, "*batch n"], jitter: float | Tensor = 0.0
) -> Float[Tensor, "*batch"]:
    """log N(residual; 0, covariance) for each matrix of a batch."""
    return _NormalLogDensity.apply(covariance, residual, jitter)  # pyright: ignore[reportReturnType]


class _NormalLogDensity(torch.autograd.Function):
    @staticmethod
    def forward(ctx, covariance: Tensor, residual: Tensor, jitter) -> Tensor:
        lower = cholesky(covariance, jitter).lower
        alpha = torch.cholesky_solve(residual.unsqueeze(-1), lower).squeeze(-1)
        ctx.save_for_backward(lower, alpha)
        half_log_det = lower.diagonal(dim1=-2, dim2=-1).log().sum(-1)
        quadratic = (residual * alpha).sum(-1)
        return -0.5 * quadratic - half_log_det - 0.5 * residual.shape[-1] * math.log(2 * math.pi)

    @staticmethod
    @first_order
    def backward(ctx, grad: Tensor):
        lower, alpha = ctx.saved_tensors
        grad_covariance = grad_residual = None
        if ctx.needs_input_grad[0]:
            # ½(ααᵀ − C⁻¹)
            outer = alpha.unsqueeze(-1) * alpha.unsqueeze(-2)
            grad_covariance = outer.sub_(torch.cholesky_inverse(lower)).mul_(0.5 * grad[..., None, None])
        if ctx.needs_input_grad[1]:
            grad_residual = -alpha * grad.unsqueeze(-1)
        return grad_covariance, grad_residual, None
