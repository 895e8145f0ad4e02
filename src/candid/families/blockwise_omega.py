"""Ω of :mod:`candid.families.conditional` by the members of a crew, from the features of blocks of rows.

With features A and B of both kernels, whitened by W_k = L_k⁻¹ and W_q = L_q⁻¹, and q(u) as columns c = [m, R Γ/√n] in
the words of the mean's kernel, or d = T c in those of the covariance's, T = W_k L_q,

    V = cᵀB − dᵀA        C = K_xx − AᵀA + τ I        Y = V C⁻¹        Ω = ½ tr Y Vᵀ.

A and B are not differentiated themselves: their gradients Ā = (H_a − d)Y with H_a = AYᵀ, and B̄ = cY with H_b = BYᵀ, go
where features come from, to covariances of points and rows, and to Ψ = L⁻¹ K_zz L⁻ᵀ of each kernel,

    K̄_zx = W_kᵀ(H_a − d) Y          Ψ̄_k = −(H_a − d)H_aᵀ + H_a dᵀ          c̄ = H_b − TᵀH_a
    Q̄_zx = W_qᵀc Y                  Ψ̄_q = −c H_bᵀ − (TᵀH_a)cᵀ              K̄_xx = −½ YᵀY,

of which the last terms of Ψ̄ are those of T. None of these products is with two matrices of the size of the batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
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
from candid.linalg.crew import each_member, joined, meanwhile, share_out
from candid.linalg.crew_cholesky import Bordered
from candid.linalg.products import add_product, product_of
from candid.linalg.relative import floors, residual_factor
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
    how = floor, torch.is_grad_enabled()
    return _Omega.apply(own, fixed, how, columns, *frames, x, lengthscale)  # pyright: ignore[reportReturnType]


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
    def forward(ctx, inputs: BlockInputs, fixed, how, columns, frame, other_frame, cross, other_cross, x, lengthscale):
        floor, with_gradients = how
        gps = _each(inputs, fixed, columns)
        omegas, kept = zip(*(gp.evaluate(floor) for gp in gps), strict=True)
        ctx.inputs, ctx.n_fixed = inputs, len(fixed)
        ctx.shapes = [part.shape for part in (columns, frame, other_frame, cross, other_cross)]
        # Somebody may begin with gradients of the first GP while the rest of the objective is evaluated.
        begins = with_gradients and any(ctx.needs_input_grad)
        ctx.first = meanwhile(partial(gps[0].turn_back, kept[0])) if begins else None
        ctx.save_for_backward(x, columns, lengthscale, *fixed, *chain(*kept))
        return inputs.unfold(torch.stack(omegas))

    @staticmethod
    @first_order
    def backward(ctx, grad: Tensor):  # pyright: ignore[reportIncompatibleMethodOverride]
        (x, columns, lengthscale, *others), inputs = ctx.saved_tensors, ctx.inputs
        fixed, parts = others[: ctx.n_fixed], others[ctx.n_fixed :]
        gps, kept = _each(inputs, fixed, columns), [_Kept(*own) for own in zip(*[iter(parts)] * 3, strict=True)]
        pairs = list(zip(gps, kept, strict=True))
        backs = share_out(lambda run: [gp.turn_back(own) for gp, own in pairs[1:][run]], len(pairs) - 1)
        total, bars = inputs.blocks.zeros(of_rows=False), []
        for (gp, own), back, g in zip(pairs, (ctx.first(), *chain(*backs)), grad.flatten().tolist(), strict=True):
            bars.append(gp.pull_back(own, back, g))
            gp.pull_back_rows(own, g, total)
        of_parts = (
            joined([part.unsqueeze(0) for part in parts]).view(shape)
            for parts, shape in zip(zip(*bars, strict=True), ctx.shapes, strict=True)
        )
        _, x_bar, lengthscale_bar = inputs.gradients(total, lengthscale)
        return None, None, None, *of_parts, x_bar.sum_to_size(x.shape), lengthscale_bar


class _Kept(NamedTuple):
    """What gradients need besides."""

    turned: Tensor  # d
    solved: Tensor  # Y
    slopes: Tensor  # of K_xx, as panels


class _TurnedBack(NamedTuple):
    """What gradients are made of."""

    seen: Tensor  # H_a
    seen_back: Tensor  # W_kᵀH_a
    turned_back: Tensor  # W_kᵀd
    both_back: Tensor  # TᵀH_a
    other_seen: Tensor  # H_b
    columns_back: Tensor  # W_qᵀc


class _OneGP:
    """Ω of one GP, and its gradients."""

    def __init__(self, blocks: CompiledBlocks, number: int, given: _Given) -> None:
        self._number, self._given, self._kernel = number, given, blocks.number
        self._blocks, self._rows, self._columns = blocks, blocks.points[number], blocks.own_columns[number]

    def evaluate(self, floor: float) -> tuple[Tensor, _Kept]:
        """Ω, and what is to be kept."""
        given = self._given
        turned = loose_lower_times(given.whitener, loose_lower_times(given.other_lower, given.columns))

        def apart(run: slice) -> Tensor:
            rows = product_of(given.columns.mT, given.other_features[:, run])
            return add_product(rows, turned.mT, given.features[:, run], alpha=-1.0)

        # V
        rows = torch.cat(share_out(apart, given.features.shape[-1]), -1)
        residual = Bordered(rows.shape[-1], len(rows))
        for level in floors(floor, rows.shape[-1]):
            slopes = self._write_residual(residual, level)
            residual.write_rows(rows)
            if (whitened := residual.factorise()) is not None:
                omega = (0.5 * whitened.square().sum()).to(rows)
                return omega, _Kept(turned, residual.solved(rows.dtype), slopes)
        # There is none with any floor: let others say why.
        gram, _ = self._blocks.gram(slice(self._number, self._number + 1))
        residual_factor(gram[0], given.features, floor)
        raise NotPositiveDefinite("what inducing points leave of the covariance of a batch could not be factorised")

    def _write_residual(self, residual: Bordered, floor: float) -> Tensor:
        """C; what is returned are slopes of K_xx."""
        from candid.linalg.residual_kernels import column_panels, write_residual

        features = self._given.features
        slopes = features.new_empty(*column_panels(features.shape[-1], features.element_size()))
        arrays = [part.numpy() for part in (features, residual.panels, slopes)]
        given = self._kernel, self._rows, self._columns, floor, *arrays
        each_member(lambda *member: write_residual(*given, *member))
        return slopes

    def turn_back(self, kept: _Kept) -> _TurnedBack:
        """What does not depend on the gradient of Ω."""
        features, other_features, whitener, other_whitener, other_lower, columns = self._given
        seen, other_seen = (product_of(part, kept.solved.mT) for part in (features, other_features))
        back = loose_lower_times(whitener, torch.cat([seen, kept.turned], -1), transposed=True)
        seen_back, turned_back = back.chunk(2, -1)
        both_back = loose_lower_times(other_lower, seen_back, transposed=True)
        columns_back = loose_lower_times(other_whitener, columns, transposed=True)
        return _TurnedBack(seen, seen_back, turned_back, both_back, other_seen, columns_back)

    def pull_back(self, kept: _Kept, back: _TurnedBack, g: float) -> _Gradients:
        """Gradients for all but rows. Each kernel has a member: products are too small to be cut."""
        columns, turned, weighted = self._given.columns, kept.turned, g * kept.solved
        seen, seen_back, turned_back, both_back, other_seen, columns_back = back

        def pull_back_one(kernel: int) -> tuple[Tensor, Tensor]:
            """Ψ̄ and the gradient of covariances of points and rows."""
            if kernel:
                left, right = torch.cat([columns, both_back], -1), torch.cat([-g * other_seen, -g * columns], -1)
                return product_of(left, right.mT), product_of(columns_back, weighted)
            left, right = torch.cat([g * (turned - seen), g * seen], -1), torch.cat([seen, turned], -1)
            return product_of(left, right.mT), product_of(seen_back - turned_back, weighted)

        parts = share_out(lambda run: [pull_back_one(kernel) for kernel in range(2)[run]], 2)
        (frame, cross), (other_frame, other_cross) = chain(*parts)
        return _Gradients(g * (other_seen - both_back), frame, other_frame, cross, other_cross)

    def pull_back_rows(self, kept: _Kept, g: float, total: HalfGradients) -> None:
        """Add what K̄_xx means for rows and lengthscales."""
        from candid.linalg.residual_kernels import pull_back_residual

        points = total.points[self._number]
        as_columns = torch.empty_like(points.mT)
        given = self._rows, self._columns, kept.slopes.numpy(), kept.solved.numpy(), g, as_columns.numpy()

        def pull_back_some(member: int, members: int) -> HalfGradients:
            own = total.beside()
            sums = (part.numpy()[self._number] for part in (own.points, own.moment))
            pull_back_residual(*given, *sums, member, members)
            return own

        (parts,) = each_member(pull_back_some)
        for part in parts:
            total.add(part)
        points += as_columns.mT


def _each(inputs: BlockInputs, fixed: Sequence[Tensor], columns: Tensor) -> list[_OneGP]:
    blocks = inputs.blocks
    assert isinstance(blocks, CompiledBlocks)
    each = zip(*fixed, columns.detach().flatten(0, -3), strict=True)
    return [_OneGP(blocks, gp, _Given(*given)) for gp, given in enumerate(each)]
