"""Moments of very many rows, a block of them at a time that stays in the processor's cache.

What :func:`~candid.kernels.joint.joint_grams`, :func:`~candid.linalg.whiten` and :func:`~candid.linalg.project` compute
one after the other, each for all rows, is here one function for a stationary kernel. The last layer of a deep GP sees
as many rows as there are sites times rows of a batch, and matrices of that size would go to memory and back at every
step of the computation. With W = L⁻¹, A = W k(Z, x), q(v) = N(m, S), S = R Rᵀ and h, e, s the gradients of the three
results,

    mean = Aᵀm          explained = Σ A²          spread = Σ (RᵀA)²

    m̄ = A h             R̄ = 2 G R,   G = A diag(s)Aᵀ             K̄_zx = Pᵀ A diag(s) + Wᵀ(2A diag(e + s) + m hᵀ)

    P = 2(S − I)W       ĀAᵀ = 2(S − I)G + 2A diag(e + s)Aᵀ + m m̄ᵀ

Where an objective sees the sum of residual and spread only, e + s = 0. Then gradients need two products of matrices
with all rows: with one row more, [A diag(s); hᵀ]Aᵀ is G above m̄ᵀ, and [P; mᵀW]ᵀ[A diag(s); hᵀ] is K̄_zx.
"""

from __future__ import annotations

from itertools import chain

import torch
from torch import Tensor

from candid.families.block_inputs import BlockInputs, many_rows
from candid.families.row_blocks import GPs, Sums
from candid.families.row_strips import make_passes
from candid.kernels import Kernel, Stationary
from candid.kernels.blocks import HalfGradients
from candid.kernels.precision import full_precision
from candid.kernels.stationary import known_lengthscale
from candid.linalg import first_order
from candid.linalg.crew import share_out
from candid.weights import Delta, Diagonal, Full, Weights

__all__ = ["blocks_pay", "blockwise_moments", "pays"]


def pays(kernel: Kernel, weights: Weights, x: Tensor, points: Tensor) -> bool:
    """Whether this is possible, and quicker than all rows at a time."""
    return x.dim() == 2 and blocks_pay(kernel, weights, x.shape[-2], points)


def blocks_pay(kernel: Kernel, weights: Weights, n_rows: int, points: Tensor) -> bool:
    """The same for so many rows that all models have in common."""
    return isinstance(weights, (Delta, Diagonal, Full)) and many_rows(kernel, n_rows, points)


def blockwise_moments(
    kernel: Stationary, weights: Weights, x: Tensor, points: Tensor, jitter: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Mean, explained variance and spread (…, n) at unit amplitude, and the jitter that k(Z, Z) needed."""
    lengthscale = known_lengthscale(kernel)
    inputs = BlockInputs.scale(kernel.profile, x, points, lengthscale)
    whitener, slope, used = inputs.factorise(jitter)
    latent, explained, spread = _Blockwise.apply(  # pyright: ignore[reportGeneralTypeIssues]
        inputs, whitener, slope, x, points, lengthscale, weights.mean, weights.loose_root()
    )
    return latent, explained, spread, used


class _Blockwise(torch.autograd.Function):
    @staticmethod
    def forward(ctx, inputs: BlockInputs, whitener, slope, x, points, lengthscale, mean, root):
        ctx.set_materialize_grads(False)
        ctx.inputs, last = inputs, len(inputs.batch) - 1
        gps = GPs(whitener, mean.flatten(0, last), None if root is None else root.flatten(0, last))
        moments = x.new_zeros(3, len(whitener), len(x))
        passes, parts = make_passes(gps, inputs.blocks), inputs.parts()

        def evaluate_some(run: slice) -> list[Tensor]:
            return [kept for part in parts[run] for kept in passes.evaluate(*part, moments)]

        with full_precision(x.device):
            kept = share_out(evaluate_some, len(parts))
        ctx.parts, ctx.passes = parts, passes
        ctx.save_for_backward(slope, lengthscale, *chain(*kept))
        return tuple(moments.view(3, *inputs.batch, -1))

    @staticmethod
    @first_order
    def backward(ctx, *grads: Tensor | None):  # pyright: ignore[reportIncompatibleMethodOverride]
        (slope, lengthscale, *kept), passes, inputs = ctx.saved_tensors, ctx.passes, ctx.inputs
        gps, blocks, unfold = passes.gps, inputs.blocks, inputs.unfold
        n_gps, n_rows = len(gps.mean), blocks.columns.shape[-1]
        flat = (lengthscale.new_zeros(n_gps, n_rows) if grad is None else grad.reshape(n_gps, n_rows) for grad in grads)
        pull = passes.pull(*flat)
        total = blocks.zeros(of_rows=ctx.needs_input_grad[3])

        def pull_back_some(run: slice) -> tuple[Sums, HalfGradients]:
            sums, own = Sums.zeros(gps, pull), total.beside()
            for part, *its_own in zip(ctx.parts[run], kept[::2][run], kept[1::2][run], strict=True):
                passes.pull_back(pull, *part, tuple(its_own), sums, own)
            return sums, own

        with full_precision(lengthscale.device):
            (sums, own), *others = share_out(pull_back_some, len(ctx.parts))
            total.add(own)
            for more, own in others:
                sums.add(more)
                total.add(own)
            root_bar = passes.finish(sums, slope, total)
        return (
            *(None, None, None, *inputs.gradients(total, lengthscale)),
            *(unfold(sums.mean_bar), None if root_bar is None else unfold(root_bar)),
        )
