"""Moments of very many rows, a block of them at a time that stays in the processor's cache.

What :func:`~candid.kernels.joint.joint_grams`, :func:`~candid.linalg.whiten` and :func:`~candid.linalg.project` compute
one after the other, each for all rows, is here one function for a stationary kernel. The last layer of a deep GP sees
as many rows as there are sites times rows of a batch, and matrices of that size would go to memory and back at every
step of the computation. With W = L⁻¹, A = W k(Z, x), q(v) = N(m, S), S = R Rᵀ and h, e, s the gradients of the three
results,

    mean = Aᵀm          explained = Σ A²          spread = Σ (RᵀA)²

    m̄ = A h             R̄ = 2 G R,   G = A diag(s)Aᵀ             K̄_zx = Pᵀ A diag(s) + Wᵀ(2A diag(e + cs) + m hᵀ)

    P = 2(S − cI)W      ĀAᵀ = 2(S − cI)G + 2A diag(e + cs)Aᵀ + m m̄ᵀ

for any number c. Where an objective sees the sum of residual and spread only, e + s = 0, and where nobody asks for what
is explained, e = 0: with c = 1 and c = 0, gradients need two products of matrices with all rows. With one row more,
[A diag(s); hᵀ]Aᵀ is G above m̄ᵀ, and [P; mᵀW]ᵀ[A diag(s); hᵀ] is K̄_zx.
"""

from __future__ import annotations

from itertools import chain
from typing import NamedTuple

import torch
from torch import Tensor

from candid.families.block_inputs import BlockInputs, many_rows
from candid.families.row_blocks import GPs, Sums
from candid.families.row_strips import make_passes
from candid.kernels import Kernel, Stationary
from candid.kernels.blocks import HalfGradients, PointFactors
from candid.kernels.precision import full_precision
from candid.kernels.stationary import known_lengthscale
from candid.linalg import first_order
from candid.linalg.crew import share_out
from candid.weights import Delta, Diagonal, Full, Weights

__all__ = ["Prepared", "blocks_pay", "blockwise_moments", "pays", "prepare"]


def pays(kernel: Kernel, weights: Weights, x: Tensor, points: Tensor) -> bool:
    """Whether this is possible, and quicker than all rows at a time."""
    return x.dim() == 2 and blocks_pay(kernel, weights, x.shape[-2], points)


def blocks_pay(kernel: Kernel, weights: Weights, n_rows: int, points: Tensor) -> bool:
    """The same for so many rows that all models have in common."""
    return isinstance(weights, (Delta, Diagonal, Full)) and many_rows(kernel, n_rows, points)


class Prepared(NamedTuple):
    """What is needed of a kernel before its moments."""

    lengthscale: Tensor
    inputs: BlockInputs
    factors: PointFactors

    @property
    def jitter(self) -> Tensor:
        """That k(Z, Z) needed."""
        return self.inputs.unfold(self.factors.jitter)


def blockwise_moments(
    kernel: Stationary, weights: Weights, x: Tensor, points: Tensor, jitter: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Mean, explained variance and spread (…, n) at unit amplitude, and the jitter that k(Z, Z) needed."""
    (prepared,) = prepare((kernel, x, points, jitter))
    lengthscale, inputs, factors = prepared
    moments = _Blockwise.apply(  # pyright: ignore[reportGeneralTypeIssues]
        inputs, factors, x, points, lengthscale, weights.mean, weights.loose_root()
    )
    return *moments, prepared.jitter


def prepare(*given: tuple[Kernel, Tensor, Tensor, Tensor]) -> list[Prepared]:
    """For stationary kernels, each with its own rows, points and jitter; members of a crew take one each."""

    def prepare_some(run: slice) -> list[tuple[BlockInputs, PointFactors]]:
        inputs = [
            (BlockInputs.scale(kernel.profile, x, points, lengthscale), jitter)  # pyright: ignore[reportArgumentType]
            for lengthscale, (kernel, x, points, jitter) in zip(lengthscales[run], given[run], strict=True)
        ]
        return [(own, own.factorise(jitter)) for own, jitter in inputs]

    lengthscales = [known_lengthscale(kernel) for kernel, *_ in given if isinstance(kernel, Stationary)]
    parts = chain(*share_out(prepare_some, len(given)))
    return [Prepared(lengthscale, *part) for lengthscale, part in zip(lengthscales, parts, strict=True)]


class _Blockwise(torch.autograd.Function):
    @staticmethod
    def forward(ctx, inputs: BlockInputs, factors: PointFactors, x, points, lengthscale, mean, root):
        ctx.set_materialize_grads(False)
        ctx.inputs, last = inputs, len(inputs.batch) - 1
        flat = mean.flatten(0, last), None if root is None else root.flatten(0, last)
        gps = GPs(factors.lower, factors.inverse, *flat)
        moments = x.new_zeros(3, len(flat[0]), len(x))
        passes, parts = make_passes(gps, inputs.blocks), inputs.parts()

        def evaluate_some(run: slice) -> list[Tensor]:
            return [kept for part in parts[run] for kept in passes.evaluate(*part, moments)]

        with full_precision(x.device):
            kept = share_out(evaluate_some, len(parts))
        ctx.parts, ctx.passes = parts, passes
        # The weights only to notice if somebody has changed them.
        ctx.save_for_backward(factors.slope, lengthscale, mean, root, *chain(*kept))
        return tuple(moments.view(3, *inputs.batch, -1))

    @staticmethod
    @first_order
    def backward(ctx, of_mean: Tensor | None, of_explained: Tensor | None, of_spread: Tensor | None):  # pyright: ignore[reportIncompatibleMethodOverride]
        (slope, lengthscale, _, _, *kept), passes, inputs = ctx.saved_tensors, ctx.passes, ctx.inputs
        gps, blocks, unfold = passes.gps, inputs.blocks, inputs.unfold
        n_gps, n_rows = len(gps.mean), blocks.columns.shape[-1]
        of_mean, of_spread = (slope.new_zeros(n_gps, n_rows) if grad is None else grad for grad in (of_mean, of_spread))
        flat = (None if grad is None else grad.reshape(n_gps, n_rows) for grad in (of_mean, of_explained, of_spread))
        pull = passes.pull(*flat)  # pyright: ignore[reportArgumentType]
        passes.turn(pull)
        total = blocks.zeros(of_rows=ctx.needs_input_grad[2])

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
            root_bar = passes.finish(pull, sums, slope, total)
        return (
            *(None, None, *inputs.gradients(total, lengthscale)),
            *(unfold(sums.mean_bar.clone()), None if root_bar is None else unfold(root_bar)),
        )
