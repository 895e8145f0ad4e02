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

from itertools import pairwise

import torch
from torch import Tensor

from candid.families.row_blocks import GPs, Pull, Sums, evaluate, of_products, pull_back
from candid.kernels import Kernel, Stationary
from candid.kernels.blocks import Blocks, make_blocks
from candid.kernels.gram import chain_factors, scaled_inputs
from candid.kernels.precision import full_precision
from candid.kernels.profiles import Profile
from candid.kernels.stationary import known_lengthscale
from candid.linalg import Factor, cholesky, first_order
from candid.linalg.triangular import half_congruence_with, inverse_of
from candid.weights import Delta, Diagonal, Full, Weights

__all__ = ["blockwise_moments", "pays"]

# Entries M×rows of a block, and from how many of them on, and how many rows for each point, blocks are of use.
BLOCK = 2**19
LEAST, LEAST_ROWS = 2**16, 3


def pays(kernel: Kernel, weights: Weights, x: Tensor, points: Tensor) -> bool:
    """Whether this is possible, and quicker than all rows at a time."""
    known = isinstance(kernel, Stationary) and not kernel.shapes() and isinstance(weights, (Delta, Diagonal, Full))
    (n_rows, n_points), on_processor = (x.shape[-2], points.shape[-2]), x.device.type == "cpu"
    many = n_rows * n_points >= LEAST and n_rows >= LEAST_ROWS * n_points
    return known and many and on_processor and x.dim() == 2 and torch.is_grad_enabled()


def blockwise_moments(
    kernel: Stationary, weights: Weights, x: Tensor, points: Tensor, jitter: Tensor
) -> tuple[Tensor, Tensor, Tensor, Factor]:
    """Mean, explained variance and spread (…, n) at unit amplitude, and the factor of k(Z, Z)."""
    lengthscale, batch = known_lengthscale(kernel), points.shape[:-2]
    with torch.no_grad():
        scaled = scaled_inputs(kernel.profile, points, x, lengthscale)
        a, b = (values.expand(*batch, -1, -1).flatten(0, -3) for values in scaled)  # pyright: ignore[reportOptionalMemberAccess]
        blocks = make_blocks(kernel.profile, a, b)
        gram, slope = blocks.gram()
        factor = cholesky(gram, jitter.flatten(), scale=1.0)
    moments: tuple[Tensor, Tensor, Tensor] = _Blockwise.apply(  # pyright: ignore[reportAssignmentType]
        kernel.profile, blocks, factor.lower, slope, x, points, lengthscale, weights.mean, weights.root()
    )
    latent, explained, spread = moments
    size = gram.shape[-2:]
    return latent, explained, spread, Factor(factor.lower.view(*batch, *size), factor.jitter.reshape(batch))


class _Blockwise(torch.autograd.Function):
    @staticmethod
    def forward(ctx, profile: Profile, blocks: Blocks, lower, gram_slope, x, points, lengthscale, mean, root):
        ctx.set_materialize_grads(False)
        ctx.profile, ctx.blocks, (*ctx.batch, _, ctx.n_features) = profile, blocks, points.shape
        last = len(ctx.batch) - 1
        gps = GPs(inverse_of(lower), mean.flatten(0, last), None if root is None else root.flatten(0, last))
        moments = x.new_zeros(3, len(lower), len(x))
        ctx.where = _blocks_of(lower, len(x))
        with full_precision(x.device):
            kept = [part for gp, rows in ctx.where for part in evaluate(gps, blocks, gp, rows, moments)]
        ctx.save_for_backward(*gps, gram_slope, lengthscale, *kept)
        return tuple(moments.view(3, *ctx.batch, -1))

    @staticmethod
    @first_order
    def backward(ctx, *grads: Tensor | None):  # pyright: ignore[reportIncompatibleMethodOverride]
        *parts, gram_slope, lengthscale = ctx.saved_tensors[:5]
        gps, kept, batch, blocks = GPs(*parts), iter(ctx.saved_tensors[5:]), ctx.batch, ctx.blocks
        nothing = gram_slope.new_zeros(*batch, blocks.columns.shape[-1])
        flat = ((nothing if grad is None else grad).flatten(0, len(batch) - 1) for grad in grads)
        pull = Pull.of(gps, *flat)
        sums, total = Sums.zeros(gps, pull), blocks.zeros()
        with full_precision(gram_slope.device):
            for gp, rows in ctx.where:
                cross_bar = pull_back(gps, pull, gp, rows, next(kept), sums)
                blocks.add_gradients(total, gp, rows, cross_bar, next(kept))
            inner, root_bar = of_products(gps, sums)
            # K̄_zz = −½ L⁻ᵀ Σ L⁻¹, where Σ has the lower triangle of ĀAᵀ: half of it and half of its transpose
            blocks.add_gram_gradients(total, half_congruence_with(gps.whitener, inner), gram_slope)
        of_inputs, of_lengthscale = chain_factors(ctx.profile, lengthscale)
        n_features = ctx.n_features
        total = total.without(n_features)
        shape = lambda t: t.reshape(*batch, *t.shape[1:])  # noqa: E731
        x_bar = None
        if ctx.needs_input_grad[4]:
            x_bar = (shape(total.rows.mT) * of_inputs).sum_to_size(total.rows.shape[-1], n_features)
        return (
            *(None, None, None, None, x_bar, shape(total.points) * of_inputs),
            (shape(total.moment.unsqueeze(-2)) * of_lengthscale).sum_to_size(lengthscale.shape),
            *(shape(sums.products[:, -1]), None if root_bar is None else shape(root_bar)),
        )


def _blocks_of(lower: Tensor, n_rows: int) -> list[tuple[int, slice]]:
    """All GPs, whose factors these are, and blocks of rows of each, of about the same size."""
    n_gps, n_points = lower.shape[:2]
    count = max(1, round(n_points * n_rows / BLOCK))
    edges = [n_rows * number // count for number in range(count + 1)]
    return [(gp, slice(*pair)) for gp in range(n_gps) for pair in pairwise(edges)]
