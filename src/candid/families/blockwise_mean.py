"""The mean alone of very many rows, a block of them at a time, from inducing points that it has for itself.

With W = L⁻¹ and coefficients c = Wᵀm of kernel functions it needs no features: no matrix is multiplied with all rows.

    mean = k(Z, x)ᵀc        c̄ = k(Z, x) h        K̄_zx = c hᵀ        m̄ = W c̄        K̄_zz = −½ Wᵀ Σ W,

where h is the gradient of the mean, and Σ the symmetric matrix whose lower triangle is that of m m̄ᵀ.
"""

from __future__ import annotations

import torch
from torch import Tensor

from candid.families.block_inputs import BlockInputs
from candid.kernels import Stationary
from candid.kernels.precision import full_precision
from candid.kernels.stationary import known_lengthscale
from candid.linalg import Factor, first_order
from candid.linalg.triangular import inverse_of, transposed_lower_times

__all__ = ["blockwise_mean"]


def blockwise_mean(
    kernel: Stationary, weights: Tensor, x: Tensor, points: Tensor, jitter: Tensor
) -> tuple[Tensor, Factor]:
    """k(x, Z) L⁻ᵀ m for weights m, (…, n), at unit amplitude, and the factor of k(Z, Z)."""
    lengthscale = known_lengthscale(kernel)
    inputs = BlockInputs.scale(kernel.profile, x, points, lengthscale)
    factor, slope = inputs.factorise(jitter)
    latent: Tensor = _BlockwiseMean.apply(inputs, factor.lower, slope, x, points, lengthscale, weights)  # pyright: ignore[reportAssignmentType]
    return latent, Factor(inputs.unfold(factor.lower), inputs.unfold(factor.jitter))


class _BlockwiseMean(torch.autograd.Function):
    @staticmethod
    def forward(ctx, inputs: BlockInputs, lower, gram_slope, x, points, lengthscale, weights):
        ctx.inputs, last = inputs, len(inputs.batch) - 1
        whitener, weights = inverse_of(lower), weights.flatten(0, last)
        latent, kept = x.new_empty(len(lower), len(x)), []
        with full_precision(x.device):
            # c = Wᵀm
            coefficients = (weights.unsqueeze(-2) @ whitener).squeeze(-2)
            for gp, rows in inputs:
                cross, slope = inputs.blocks.covariances(gp, rows)
                torch.mv(cross.mT, coefficients[gp], out=latent[gp, rows])
                kept += [cross, slope]
        ctx.save_for_backward(whitener, weights, coefficients, gram_slope, lengthscale, *kept)
        return inputs.unfold(latent)

    @staticmethod
    @first_order
    def backward(ctx, grad: Tensor):  # pyright: ignore[reportIncompatibleMethodOverride]
        whitener, weights, coefficients, gram_slope, lengthscale = ctx.saved_tensors[:5]
        kept, inputs, blocks = iter(ctx.saved_tensors[5:]), ctx.inputs, ctx.inputs.blocks
        grad, total = grad.flatten(0, len(inputs.batch) - 1), blocks.zeros(of_rows=ctx.needs_input_grad[3])
        coefficients_bar = torch.zeros_like(coefficients)
        with full_precision(grad.device):
            for gp, rows in inputs:
                coefficients_bar[gp].addmv_(next(kept), grad[gp, rows])
                blocks.add_gradients(total, gp, rows, torch.outer(coefficients[gp], grad[gp, rows]), next(kept))
            # m̄ = W c̄
            weights_bar = whitener @ coefficients_bar.unsqueeze(-1)
            # K̄_zz = −½(WᵀΦW + its transpose), for which −WᵀΦW will do, where Φ has the lower triangle of m m̄ᵀ and
            # half of its diagonal: −(ΦW)_i = m_i (½m̄_i W_i − Σ_{j≤i} m̄_j W_j)
            rows_bar = weights_bar * whitener
            half = weights.unsqueeze(-1) * rows_bar.mul(0.5).sub_(rows_bar.cumsum(-2))
            blocks.add_gram_gradients(total, transposed_lower_times(whitener, half), gram_slope)
        return None, None, None, *inputs.gradients(total, lengthscale), inputs.unfold(weights_bar.squeeze(-1))
