"""Some normal variables given k others, for many small groups at once, with their gradient in closed form.

For w variables whose covariances with the others are the columns of K, with α = C⁻¹r and B = C⁻¹K:

    mean = KᵀC⁻¹r          explained = KᵀC⁻¹K

For gradients m̄ (w) and Ē (w×w) with respect to the two results, and U = αm̄ᵀ + ½B(Ē + Ēᵀ):

    K̄ = αm̄ᵀ + B(Ē + Ēᵀ)          r̄ = Bm̄          C̄ = −½(BUᵀ + UBᵀ)

So the backward pass is a few products, and the factorisation is never differentiated.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from candid.linalg.autograd import first_order
from candid.linalg.cholesky import Factor, cholesky

__all__ = ["condition_together"]


def condition_together(
    covariance: Float[Tensor, "*batch k k"],
    cross: Float[Tensor, "*batch k w"],
    targets: Float[Tensor, "*batch k"],
    jitter: float | Tensor = 0.0,
) -> tuple[Float[Tensor, "*batch w"], Float[Tensor, "*batch w w"], Factor]:
    """Means of variables given ``targets``, how much of their covariance these explain, and the factor.

    Parameters
    ----------
    covariance : Tensor
        C, of the k others, noise included; one matrix for each group.
    cross : Tensor
        K.
    targets : Tensor
        r, values of the others, less their means.
    jitter : float or Tensor
        Share of the diagonal to start from; it counts as a constant in the gradient.
    """
    factor = cholesky(covariance.detach(), jitter)
    mean, explained = _ConditionTogether.apply(covariance, cross, targets, factor.lower)  # pyright: ignore
    return mean, explained, factor


class _ConditionTogether(torch.autograd.Function):
    @staticmethod
    def forward(ctx, covariance: Tensor, cross: Tensor, targets: Tensor, lower: Tensor):
        both = torch.cat([cross, targets.unsqueeze(-1)], -1)
        # L⁻¹[K, r], whose products are sums of squares
        whitened = torch.linalg.solve_triangular(lower, both, upper=False)
        solved = torch.linalg.solve_triangular(lower.mT, whitened, upper=True)
        ctx.save_for_backward(solved)
        features, rest = whitened[..., :-1], whitened[..., -1:]
        return (features.mT @ rest).squeeze(-1), features.mT @ features

    @staticmethod
    @first_order
    def backward(ctx, of_mean: Tensor, of_explained: Tensor):
        (solved,) = ctx.saved_tensors
        b, alpha = solved[..., :-1], solved[..., -1:]
        outer, both = alpha * of_mean.unsqueeze(-2), b @ (of_explained + of_explained.mT)
        grad_targets = (b @ of_mean.unsqueeze(-1)).squeeze(-1)
        half = -0.5 * b @ (outer + 0.5 * both).mT
        return half + half.mT, outer + both, grad_targets, None
