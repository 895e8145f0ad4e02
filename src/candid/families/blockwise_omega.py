"""Ω of :mod:`candid.families.conditional` by the members of a crew, from the features of blocks of rows.

With features A and B of both kernels, whitened by W_k = L_k⁻¹ and W_q = L_q⁻¹, and q(u) as columns c = [m, R Γ/√n] of the
mean's kernel, which the covariance's sees as d = T c with T = W_k L_q,

    V = cᵀB − dᵀA        C = K_xx − AᵀA + τ I        Y = V C⁻¹        Ω = ½ tr Y Vᵀ.

A and B are not differentiated themselves: their gradients Ā = (H_a − d)Y with H_a = AYᵀ, and B̄ = cY with H_b = BYᵀ, go
where features come from, to covariances of points and rows, and to Ψ = L⁻¹ K_zz L⁻ᵀ of each kernel,

    K̄_zx = W_kᵀ(H_a − d) Y          Ψ̄_k = −(H_a − d)H_aᵀ + H_a dᵀ          c̄ = H_b − TᵀH_a
    Q̄_zx = W_qᵀc Y                  Ψ̄_q = −c H_bᵀ − (TᵀH_a)cᵀ              K̄_xx = −½ YᵀY,

of which the last terms of Ψ̄ are those of T. None of these products is with two matrices of the size of the batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from candid.families.block_inputs import BlockInputs
from candid.families.blockwise import Prepared
from candid.families.blockwise_pair import Traces
from candid.kernels.blocks import CompiledBlocks, HalfGradients
from candid.linalg import NotPositiveDefinite, first_order
from candid.linalg.crew import crew_size, joined, share_out
from candid.linalg.crew_cholesky import Bordered
from candid.linalg.products import add_product, product_of
from candid.linalg.relative import residual_factor
from candid.linalg.triangular import loose_lower_times

__all__ = ["blockwise_omega"]


def blockwise_omega(
    prepared: Prepared,
    x: Tensor,
    of_covariance: Traces,
    of_mean: Traces,
    columns: Float[Tensor, "*batch m j"],
    floor: float,
) -> Float[Tensor, "*batch"]:
    """Ω for rows x and c, from what the moments leave, with features; ``prepared`` is the covariance's kernel."""
    lengthscale, inputs, _ = prepared
    given = (of_covariance.features, of_mean.features, of_covariance.whitener, of_mean.whitener, of_mean.lower)
    fixed = [part.detach().flatten(0, -3) for part in given]
    # K_xx is a covariance of points, which are the rows.
    rows = x.expand(*inputs.batch, *x.shape)
    own = BlockInputs.scale(inputs.profile, x[:0], rows, lengthscale)
    frames = of_covariance.frame, of_mean.frame, of_covariance.cross, of_mean.cross
    return _Omega.apply(own, fixed, floor, columns, *frames, x, lengthscale)  # pyright: ignore[reportReturnType]


class _Given(NamedTuple):
    """Of one GP, or of all."""

    features: Tensor  # A
    other_features: Tensor  # B
    whitener: Tensor  # W_k
    other_whitener: Tensor  # W_q
    other_lower: Tensor  # L_q, with anything above its diagonal
    columns: Tensor  # c


class _Gradients(NamedTuple):
    columns: Tensor
    frame: Tensor
    other_frame: Tensor
    cross: Tensor
    other_cross: Tensor


class _Omega(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx, inputs: BlockInputs, fixed, floor: float, columns, frame, other_frame, cross, other_cross, x, scale
    ):
        each = [_Given(*parts) for parts in zip(*fixed, columns.flatten(0, -3), strict=True)]
        results = [_evaluate(inputs.blocks, gp, given, floor) for gp, given in enumerate(each)]
        ctx.inputs, ctx.fixed = inputs, fixed
        ctx.shapes = [part.shape for part in (columns, frame, other_frame, cross, other_cross)]
        ctx.save_for_backward(x, columns, scale, *chain(*(kept for _, *kept in results)))
        return inputs.unfold(torch.stack([omega for omega, *_ in results]))

    @staticmethod
    @first_order
    def backward(ctx, grad: Tensor):  # pyright: ignore[reportIncompatibleMethodOverride]
        (x, columns, lengthscale, *kept), inputs = ctx.saved_tensors, ctx.inputs
        total, bars = inputs.blocks.zeros(of_rows=False), []
        each = zip(grad.flatten().tolist(), *ctx.fixed, columns.detach().flatten(0, -3), strict=True)
        for gp, (g, *given) in enumerate(each):
            turned, solved, slopes = kept[3 * gp : 3 * gp + 3]
            bars.append(_pull_back(_Given(*given), turned, solved, g))
            _pull_back_rows(inputs.blocks, gp, slopes, solved, g, total)
        of_parts = (
            joined([part.unsqueeze(0) for part in parts]).view(shape)
            for parts, shape in zip(zip(*bars, strict=True), ctx.shapes, strict=True)
        )
        _, x_bar, lengthscale_bar = inputs.gradients(total, lengthscale)
        return None, None, None, *of_parts, x_bar.sum_to_size(x.shape), lengthscale_bar


def _evaluate(blocks: CompiledBlocks, gp: int, given: _Given, floor: float) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Ω; and d, Y, and the slopes of K_xx."""
    turned = loose_lower_times(given.whitener, loose_lower_times(given.other_lower, given.columns))

    def apart(run: slice) -> Tensor:
        rows = product_of(given.columns.mT, given.other_features[:, run])
        return add_product(rows, turned.mT, given.features[:, run], alpha=-1.0)

    # V
    rows = torch.cat(share_out(apart, given.features.shape[-1]), -1)
    residual = Bordered(rows.shape[-1], len(rows))
    for level in _floors(blocks, gp, given.features, floor):
        slopes = _write_residual(blocks, gp, given.features, level, residual)
        residual.write_rows(rows)
        if (whitened := residual.factorise()) is not None:
            omega = (0.5 * whitened.square().sum()).to(rows)
            return omega, turned, residual.solved(rows.dtype), slopes
    raise NotPositiveDefinite("what the inducing points leave of the covariance of a batch could not be factorised")


def _floors(blocks: CompiledBlocks, gp: int, features: Tensor, floor: float) -> Iterator[float]:
    """Those of C, until one is large enough: where rounding has made C indefinite, that is found out with care."""
    yield floor
    gram, _ = blocks.gram(slice(gp, gp + 1))
    enough = float(residual_factor(gram[0], features, floor).jitter)
    yield from (enough, 10 * enough)


def _write_residual(blocks: CompiledBlocks, gp: int, features: Tensor, floor: float, residual: Bordered) -> Tensor:
    """Write C, and return the slopes of K_xx as panels."""
    from candid.linalg.residual_kernels import column_panels, write_residual

    n, members = features.shape[-1], max(crew_size(), 1)
    slopes = features.new_empty(*column_panels(n, features.element_size()))
    arrays = [part.numpy() for part in (features, residual.panels, slopes)]
    given = blocks.number, blocks.points[gp], blocks.own_columns[gp], floor, *arrays
    share_out(lambda run: write_residual(*given, run.start, members), members)
    return slopes


def _pull_back(given: _Given, turned: Tensor, solved: Tensor, g: float) -> _Gradients:
    """Each kernel has a member: products are too small to be cut."""
    features, other_features, whitener, other_whitener, other_lower, columns = given
    weighted = g * solved

    def turn_back(kernel: int) -> tuple[Tensor, ...]:
        if kernel:
            # H_b and Q̄_zx
            own_back = loose_lower_times(other_whitener, columns, transposed=True)
            return product_of(other_features, solved.mT), product_of(own_back, weighted)
        # H_a, W_kᵀ[H_a, d] and TᵀH_a
        seen = product_of(features, solved.mT)
        back = loose_lower_times(whitener, torch.cat([seen, turned], -1), transposed=True)
        return seen, back, loose_lower_times(other_lower, back[:, : seen.shape[-1]], transposed=True)

    def finish(kernel: int) -> tuple[Tensor, ...]:
        if kernel:
            # Ψ̄_q
            both = torch.cat([columns, both_back], -1), torch.cat([-g * other_seen, -g * columns], -1).mT
            return (product_of(*both),)
        # K̄_zx and Ψ̄_k
        both = torch.cat([g * (turned - seen), g * seen], -1), torch.cat([seen, turned], -1).mT
        (own, of_turned) = back.chunk(2, -1)
        return product_of(own - of_turned, weighted), product_of(*both)

    (seen, back, both_back), (other_seen, other_cross) = _for_each_kernel(turn_back)
    (cross, frame), (other_frame,) = _for_each_kernel(finish)
    return _Gradients(g * (other_seen - both_back), frame, other_frame, cross, other_cross)


def _for_each_kernel(work: Callable[[int], tuple[Tensor, ...]]) -> list[tuple[Tensor, ...]]:
    return list(chain(*share_out(lambda run: [work(kernel) for kernel in range(2)[run]], 2)))


def _pull_back_rows(
    blocks: CompiledBlocks, gp: int, slopes: Tensor, solved: Tensor, g: float, total: HalfGradients
) -> None:
    """Add what K̄_xx means for rows and lengthscales."""
    from candid.linalg.residual_kernels import pull_back_residual

    members, as_columns = max(crew_size(), 1), torch.empty_like(total.points[gp].mT)
    given = blocks.points[gp], blocks.own_columns[gp], slopes.numpy(), solved.numpy(), g, as_columns.numpy()

    def pull_back_some(run: slice) -> HalfGradients:
        own = total.beside()
        pull_back_residual(*given, own.points.numpy()[gp], own.moment.numpy()[gp], run.start, members)
        return own

    for part in share_out(pull_back_some, members):
        total.add(part)
    total.points[gp] += as_columns.mT
