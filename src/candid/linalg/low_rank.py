"""Log-density of a normal vector whose covariance is of low rank plus diagonal, with its gradient in closed form.

For C = AᵀA + D with A of shape M×n and D = diag(d), let B = I + A D⁻¹Aᵀ, m = B⁻¹A D⁻¹r and α = C⁻¹r. Then

    α = D⁻¹(r − Aᵀm),    rᵀα = (r − Aᵀm)ᵀD⁻¹(r − Aᵀm) + mᵀm,    log det C = log det B + log det D,    m = Aα

(a sum of squares, in which nothing cancels), and

    ∂/∂A = mαᵀ − B⁻¹A D⁻¹,    ∂/∂d = ½(α² − diag C⁻¹),    ∂/∂r = −α.

With B = L Lᵀ and W = L⁻¹A D⁻¹: B⁻¹A D⁻¹ = L⁻ᵀW, and diag C⁻¹ is 1/d minus the squared lengths of W's columns.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from candid.linalg.autograd import first_order
from candid.linalg.cholesky import cholesky

__all__ = ["low_rank_log_density"]


def low_rank_log_density(
    features: Float[Tensor, "*#batch m n"], diagonal: Float[Tensor, "*#batch n"], residual: Float[Tensor, "*#batch n"]
) -> Float[Tensor, "*batch"]:
    """log N(residual; 0, featuresᵀ features + diag(diagonal)), at the cost of M²n and without an n×n matrix.

    Leading dimensions broadcast. Meant for float64: where the diagonal is small, B is as ill-conditioned as C.
    """
    batch = np.broadcast_shapes(features.shape[:-2], diagonal.shape[:-1], residual.shape[:-1])
    n_features, n = features.shape[-2:]
    return _LowRankLogDensity.apply(  # pyright: ignore[reportReturnType]
        features.expand(*batch, n_features, n), diagonal.expand(*batch, n), residual.expand(*batch, n)
    )


class _LowRankLogDensity(torch.autograd.Function):
    @staticmethod
    def forward(ctx, features: Tensor, diagonal: Tensor, residual: Tensor) -> Tensor:
        # B = I + A D⁻¹Aᵀ
        inner = (features / diagonal.unsqueeze(-2)) @ features.mT
        inner.diagonal(dim1=-2, dim2=-1).add_(1.0)
        lower = cholesky(inner).lower
        # m = B⁻¹A D⁻¹r
        mean = torch.cholesky_solve(features @ (residual / diagonal).unsqueeze(-1), lower)
        left = residual - (features.mT @ mean).squeeze(-1)
        mean = mean.squeeze(-1)
        alpha = left / diagonal
        ctx.save_for_backward(features, diagonal, lower, mean, alpha)
        quadratic = (left * alpha).sum(-1) + mean.square().sum(-1)
        log_det = 2 * lower.diagonal(dim1=-2, dim2=-1).log().sum(-1) + diagonal.log().sum(-1)
        return -0.5 * (quadratic + log_det + residual.shape[-1] * math.log(2 * math.pi))

    @staticmethod
    @first_order
    def backward(ctx, grad: Tensor):
        features, diagonal, lower, mean, alpha = ctx.saved_tensors
        grad_features = grad_diagonal = grad_residual = None
        if ctx.needs_input_grad[2]:
            grad_residual = -grad.unsqueeze(-1) * alpha
        if ctx.needs_input_grad[0] or ctx.needs_input_grad[1]:
            # W = L⁻¹A D⁻¹
            whitened = torch.linalg.solve_triangular(lower, features / diagonal.unsqueeze(-2), upper=False)
            if ctx.needs_input_grad[1]:
                # ½(α² − 1/d + Σ_m W²)
                slope = alpha.square() - diagonal.reciprocal() + whitened.square().sum(-2)
                grad_diagonal = 0.5 * grad.unsqueeze(-1) * slope
            if ctx.needs_input_grad[0]:
                # mαᵀ − L⁻ᵀW
                solved = torch.linalg.solve_triangular(lower.mT, whitened, upper=True)
                outer = mean.unsqueeze(-1) * alpha.unsqueeze(-2)
                grad_features = outer.sub_(solved).mul_(grad[..., None, None])
        return grad_features, grad_diagonal, grad_residual
