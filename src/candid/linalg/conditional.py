"""A normal variable given k others, for many small groups at once, with its gradient in closed form.

With α = C⁻¹r and b = C⁻¹k, for gradients m̄ and ē with respect to the two results and u = m̄α + ēb:

    mean = kᵀC⁻¹r          explained = kᵀC⁻¹k
    k̄ = m̄α + 2ēb          r̄ = m̄b          C̄ = −½(buᵀ + ubᵀ)

So the backward pass is one solve with the factor at hand, and the factorisation is never differentiated.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from candid.linalg.autograd import first_order
from candid.linalg.cholesky import Factor, cholesky

__all__ = ["condition"]


def condition(
    covariance: Float[Tensor, "*batch k k"],
    cross: Float[Tensor, "*batch k"],
    targets: Float[Tensor, "*batch k"],
    jitter: float | Tensor = 0.0,
) -> tuple[Float[Tensor, "*batch"], Float[Tensor, "*batch"], Factor]:
    """The mean of a variable given ``targets``, how much of its variance they explain, and the factor.

    Parameters
    ----------
    covariance : Tensor
        C, of the targets, noise included; one matrix for each group.
    cross : Tensor
        k, covariances of the variable with the targets.
    targets : Tensor
        r, observed values minus their prior mean.
    jitter : float or Tensor
        Share of the diagonal to start from; it counts as a constant in the gradient.

    Notes
    -----
    Without targets (k = 0) both results are zero.
    """
    factor = cholesky(covariance.detach(), jitter)
    mean, explained = _Condition.apply(covariance, cross, targets, factor.lower)  # pyright: ignore[reportGeneralTypeIssues]
    return mean, explained, factor


class _Condition(torch.autograd.Function):
    @staticmethod
    def forward(ctx, covariance: Tensor, cross: Tensor, targets: Tensor, lower: Tensor) -> tuple[Tensor, Tensor]:
        # L⁻¹[k, r]
        whitened = torch.linalg.solve_triangular(lower, torch.stack([cross, targets], -1), upper=False)
        ctx.save_for_backward(lower, whitened)
        features, rest = whitened.unbind(-1)
        return (features * rest).sum(-1), features.square().sum(-1)

    @staticmethod
    @first_order
    def backward(ctx, grad_mean: Tensor, grad_explained: Tensor):
        lower, whitened = ctx.saved_tensors
        grad_mean, grad_explained = grad_mean.unsqueeze(-1), grad_explained.unsqueeze(-1)
        # [b, α] = L⁻ᵀ L⁻¹[k, r]
        b, alpha = torch.linalg.solve_triangular(lower.mT, whitened, upper=True).unbind(-1)
        pull = grad_mean * alpha + grad_explained * b
        grad_covariance = None
        if ctx.needs_input_grad[0]:
            # −½[b, u][u, b]ᵀ
            grad_covariance = torch.stack([b, pull], -1) @ torch.stack([pull, b], -2).mul_(-0.5)
        return grad_covariance, pull + grad_explained * b, grad_mean * b, None
