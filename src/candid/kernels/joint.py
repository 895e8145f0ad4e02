"""Gram matrices that are needed together: k(Z, Z) and k(Z, x), perhaps for several sets of points Z.

Computing with small matrices takes less time than starting to. A stationary kernel evaluates all of them in one go,
and has one gradient for all. Whatever the rows, and with gradients or without, k(Z, Z) is rounded in the same way: the
jitter that one factorisation needed is enough for the next.
"""

from __future__ import annotations

import torch
from torch import Tensor

from candid.kernels.base import Kernel, check_features
from candid.kernels.gram import (
    FEW_FEATURES,
    cancels,
    chain_factors,
    gradients,
    left_factor,
    right_factor,
    scaled_inputs,
    symmetric_gradients,
)
from candid.kernels.precision import full_precision
from candid.kernels.profiles import Profile
from candid.kernels.stationary import Stationary, known_lengthscale
from candid.linalg import first_order

__all__ = ["joint_grams"]


def joint_grams(kernel: Kernel, rows: Tensor, *points: Tensor) -> list[tuple[Tensor, Tensor]]:
    """``kernel(z)`` and ``kernel(z, rows)`` for each set z of ``points``."""
    together = _together(kernel, rows, points) if isinstance(kernel, Stationary) else None
    return together or [(kernel(z), kernel(z, rows)) for z in points]


def _together(kernel: Stationary, rows: Tensor, points: tuple[Tensor, ...]) -> list[tuple[Tensor, Tensor]] | None:
    """From one evaluation; None where there is none: for few features, other batches, shape parameters, large norms."""
    lengthscale = known_lengthscale(kernel)
    for z in points:
        check_features(kernel, lengthscale.shape[-1], z, rows)
    batch = lengthscale.shape[:-2]
    alike = all(z.shape[:-2] == batch for z in points) and (rows.dim() == 2 or rows.shape[:-2] == batch)
    if not alike or rows.requires_grad or kernel.shapes() or rows.shape[-1] <= FEW_FEATURES:
        return None
    with torch.no_grad():
        scaled = torch.cat(scaled_inputs(kernel.profile, torch.cat(points, -2), rows, lengthscale), -2)  # pyright: ignore[reportArgumentType, reportCallIssue]
        norms = scaled.square().sum(-1, keepdim=True)
        if cancels(norms, norms):
            return None
    matrices: tuple[Tensor, ...] = _JointGrams.apply(kernel.profile, scaled, norms, lengthscale, *points)  # pyright: ignore[reportAssignmentType]
    return list(zip(matrices[: len(points)], matrices[len(points) :], strict=True))


class _JointGrams(torch.autograd.Function):
    @staticmethod
    def forward(ctx, profile: Profile, scaled: Tensor, norms: Tensor, lengthscale: Tensor, *points: Tensor):
        ctx.set_materialize_grads(False)
        sizes = [z.shape[-2] for z in points]
        n_points, n_rows = sum(sizes), scaled.shape[-2] - sum(sizes)
        left = left_factor(scaled[..., :n_points, :], norms[..., :n_points, :])
        *right, right_rows = right_factor(scaled, norms).split([*sizes, n_rows], -2)
        q = scaled.new_empty(scaled.shape[:-2].numel() * sum(m * (m + n_rows) for m in sizes))
        *grams, cross = _matrices(q, scaled, sizes)
        with full_precision(q.device):
            for gram, a, b in zip(grams, left.split(sizes, -2), right, strict=True):
                torch.matmul(a, b.mT, out=gram).diagonal(dim1=-2, dim2=-1).zero_()
            torch.matmul(left, right_rows.mT, out=cross)
        k, w = profile.evaluate(q)
        ctx.save_for_backward(scaled, lengthscale, w)
        ctx.profile, ctx.sizes = profile, sizes
        return tuple(_for_each_set(_matrices(k, scaled, sizes), sizes))

    @staticmethod
    @first_order
    def backward(ctx, *grads: Tensor | None):  # pyright: ignore[reportIncompatibleMethodOverride]
        scaled, lengthscale, w = ctx.saved_tensors
        sizes, n_points = ctx.sizes, sum(ctx.sizes)
        v = torch.empty_like(w)
        *v_grams, v_cross = v_matrices = _matrices(v, scaled, sizes)
        slopes = _for_each_set(_matrices(w, scaled, sizes), sizes)
        for product, slope, grad in zip(_for_each_set(v_matrices, sizes), slopes, grads, strict=True):
            product.zero_() if grad is None else torch.mul(slope, grad, out=product)
        a = scaled[..., :n_points, :]
        with full_precision(w.device):
            a_bar, moment = gradients(v_cross, a, scaled[..., n_points:, :])
            for part_bar, v_gram, part in zip(a_bar.split(sizes, -2), v_grams, a.split(sizes, -2), strict=True):
                own_bar, own_moment = symmetric_gradients(v_gram, part)
                part_bar.add_(own_bar)
                moment = moment + own_moment
        of_inputs, of_lengthscale = chain_factors(ctx.profile, lengthscale)
        lengthscale_bar = (moment * of_lengthscale).sum_to_size(lengthscale.shape)
        return None, None, None, lengthscale_bar, *(a_bar * of_inputs).split(sizes, -2)


def _matrices(vector: Tensor, scaled: Tensor, sizes: list[int]) -> list[Tensor]:
    """All entries as matrices: M×M for each set, and one with a row for each point of all sets."""
    batch, n_points = scaled.shape[:-2], sum(sizes)
    shapes = [*((m, m) for m in sizes), (n_points, scaled.shape[-2] - n_points)]
    parts = vector.split([batch.numel() * m * n for m, n in shapes])
    return [part.view(*batch, *shape) for part, shape in zip(parts, shapes, strict=True)]


def _for_each_set(matrices: list[Tensor], sizes: list[int]) -> list[Tensor]:
    """The last of them cut into the rows of each set."""
    return [*matrices[:-1], *matrices[-1].split(sizes, -2)]
