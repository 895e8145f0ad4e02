"""The mean alone of very many rows, a block of them at a time, from inducing points that it has for itself.

With W = L⁻¹ and coefficients c = Wᵀm of kernel functions it needs no features: no matrix is multiplied with all rows.

    mean = k(Z, x)ᵀc        c̄ = k(Z, x) h        K̄_zx = c hᵀ        m̄ = W c̄        K̄_zz = −½ Wᵀ Σ W,

where h is the gradient of the mean, and Σ the symmetric matrix whose lower triangle is that of m m̄ᵀ.
"""

from __future__ import annotations

from itertools import chain

import torch
from torch import Tensor

from candid.families.block_inputs import BlockInputs
from candid.kernels import Stationary
from candid.kernels.blocks import HalfGradients
from candid.kernels.precision import full_precision
from candid.kernels.stationary import known_lengthscale
from candid.linalg import first_order
from candid.linalg.crew import share_out
from candid.linalg.triangular import transposed_lower_times

__all__ = ["blockwise_mean"]


def blockwise_mean(
    kernel: Stationary, weights: Tensor, x: Tensor, points: Tensor, jitter: Tensor
) -> tuple[Tensor, Tensor]:
    """k(x, Z) L⁻ᵀ m for weights m, (…, n), at unit amplitude, and the jitter that k(Z, Z) needed."""
    lengthscale = known_lengthscale(kernel)
    inputs = BlockInputs.scale(kernel.profile, x, points, lengthscale)
    factors = inputs.factorise(jitter)
    latent: Tensor = _BlockwiseMean.apply(  # pyright: ignore[reportAssignmentType]
        inputs, factors.inverse, factors.slope, x, points, lengthscale, weights
    )
    return latent, inputs.unfold(factors.jitter)


class _BlockwiseMean(torch.autograd.Function):
    @staticmethod
    def forward(ctx, inputs: BlockInputs, whitener, gram_slope, x, points, lengthscale, weights):
        ctx.inputs, weights = inputs, weights.flatten(0, len(inputs.batch) - 1)
        latent, parts = x.new_empty(len(whitener), len(x)), inputs.parts()
        with full_precision(x.device):
            # c = Wᵀm
            coefficients = (weights.unsqueeze(-2) @ whitener).squeeze(-2)

            def evaluate_some(run: slice) -> list[Tensor]:
                kept = [inputs.blocks.covariances(*part) for part in parts[run]]
                for (gp, rows), (cross, _) in zip(parts[run], kept, strict=True):
                    torch.mv(cross.mT, coefficients[gp], out=latent[gp, rows])
                return list(chain(*kept))

            kept = share_out(evaluate_some, len(parts))
        ctx.parts = parts
        ctx.save_for_backward(whitener, weights, coefficients, gram_slope, lengthscale, *chain(*kept))
        return inputs.unfold(latent)

    @staticmethod
    @first_order
    def backward(ctx, grad: Tensor):  # pyright: ignore[reportIncompatibleMethodOverride]
        whitener, weights, coefficients, gram_slope, lengthscale = ctx.saved_tensors[:5]
        kept, inputs, blocks = ctx.saved_tensors[5:], ctx.inputs, ctx.inputs.blocks
        grad, total = grad.flatten(0, len(inputs.batch) - 1), blocks.zeros(of_rows=ctx.needs_input_grad[3])

        def pull_back_some(run: slice) -> tuple[Tensor, HalfGradients]:
            sums, own = torch.zeros_like(coefficients), total.beside()
            for (gp, rows), cross, slope in zip(ctx.parts[run], kept[::2][run], kept[1::2][run], strict=True):
                sums[gp].addmv_(cross, grad[gp, rows])
                blocks.add_gradients(own, gp, rows, torch.outer(coefficients[gp], grad[gp, rows]), slope)
            return sums, own

        with full_precision(grad.device):
            (coefficients_bar, own), *others = share_out(pull_back_some, len(ctx.parts))
            total.add(own)
            for more, own in others:
                coefficients_bar += more
                total.add(own)
            # m̄ = W c̄
            weights_bar = whitener @ coefficients_bar.unsqueeze(-1)
            # K̄_zz = −½(WᵀΦW + its transpose), for which −WᵀΦW will do, where Φ has the lower triangle of m m̄ᵀ and
            # half of its diagonal: −(ΦW)_i = m_i (½m̄_i W_i − Σ_{j≤i} m̄_j W_j)
            rows_bar = weights_bar * whitener
            half = weights.unsqueeze(-1) * rows_bar.mul(0.5).sub_(rows_bar.cumsum(-2))
            blocks.add_gram_gradients(total, slice(None), transposed_lower_times(whitener, half), gram_slope)
        return None, None, None, *inputs.gradients(total, lengthscale), inputs.unfold(weights_bar.squeeze(-1))
