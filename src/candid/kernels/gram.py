"""The Gram matrix of a stationary kernel, with a gradient written by hand.

Inputs are centred, scaled by the lengthscales and turned into squared distances by one matrix product. The forward
pass keeps one matrix, ``w = dk/dq`` (up to a constant), and the backward pass needs two thin matrix products with
``V = w∘K̄``: nothing of the size N1×N2 is differentiated by autograd.

Shapes: ``x1`` is (…, N1, D), ``x2`` is (…, N2, D), ``lengthscale`` is (…, 1, D) or (…, 1, 1), shape parameters are
(…, 1, 1); leading dimensions broadcast, and gradients are summed over those that were broadcast.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from candid.kernels.precision import full_precision
from candid.kernels.profiles import Profile
from candid.linalg import first_order

__all__ = ["stationary_gram"]

# Up to this many features, differences cost no more than a matrix product, and they do not cancel.
_FEW_FEATURES = 3
# A short lengthscale makes scaled inputs large: above this sum of squared norms the product needs float64.
_LARGE_NORMS = 500.0


def stationary_gram(profile: Profile, x1: Tensor, x2: Tensor | None, lengthscale: Tensor, *shapes: Tensor) -> Tensor:
    """``profile`` at all pairs of ``x1`` and ``x2`` (or ``x1`` and itself if ``x2`` is None); differentiable once."""
    tensors = (x1, x2, lengthscale, *shapes)
    if torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in tensors):
        return _StationaryGram.apply(profile, *tensors)  # pyright: ignore[reportReturnType]
    a, b = _scaled(profile, x1, x2, lengthscale)
    return profile.evaluate(_squared_distances(a, b), *shapes)[0]


class _StationaryGram(torch.autograd.Function):
    @staticmethod
    def forward(ctx, profile: Profile, x1: Tensor, x2: Tensor | None, lengthscale: Tensor, *shapes: Tensor) -> Tensor:
        a, b = _scaled(profile, x1, x2, lengthscale)
        k, w, *slopes = profile.evaluate(_squared_distances(a, b), *shapes)
        slopes = [slope if needed else None for slope, needed in zip(slopes, ctx.needs_input_grad[4:], strict=True)]
        ctx.save_for_backward(a, b, lengthscale, w, *slopes)
        ctx.profile = profile
        ctx.shapes = [None if t is None else t.shape for t in (x1, x2, lengthscale, *shapes)]
        return k

    @staticmethod
    @first_order
    def backward(ctx, grad: Tensor):  # pyright: ignore[reportIncompatibleMethodOverride]
        a, b, lengthscale, w, *slopes = ctx.saved_tensors
        needs_x1, needs_x2, needs_lengthscale = ctx.needs_input_grad[1:4]
        symmetric = b is None
        b = a if symmetric else b

        x1_bar = x2_bar = lengthscale_bar = None
        if needs_x1 or needs_x2 or needs_lengthscale:
            v = w * grad
            if symmetric:
                # A point has no distance to itself; left in, its terms would cancel only up to rounding.
                v.diagonal(dim1=-2, dim2=-1).zero_()
            row_sums, column_sums = v.sum(-1, keepdim=True), v.sum(-2).unsqueeze(-1)
            # The gradients of a and b, up to a factor
            rows = a_bar = b_bar = v.new_empty(0)
            with full_precision(grad.device):
                if needs_x1 or needs_lengthscale:
                    # ā = 2(rowsum(V)·a − V b); thin matrices are multiplied fastest as a few long rows
                    rows = (b.mT.contiguous() @ v.mT).mT
                    a_bar = row_sums * a - rows
                if needs_x2 or (symmetric and needs_x1):
                    # b̄ = 2(colsum(V)·b − Vᵀ a)
                    b_bar = column_sums * b - (a.mT @ v).mT

            # From scaled inputs back to inputs: a = √stretch·x/ℓ.
            factor = 2.0 * ctx.profile.slope * math.sqrt(ctx.profile.stretch) / lengthscale
            if needs_x1:
                x1_bar = (factor * (a_bar + b_bar if symmetric else a_bar)).sum_to_size(ctx.shapes[0])
            if needs_x2:
                x2_bar = (factor * b_bar).sum_to_size(ctx.shapes[1])
            if needs_lengthscale:
                # ℓ̄ = −(Σ a ā + Σ b b̄)/ℓ = −(Σ a ā + 2 Σ colsum(V) b² − 2 Σ a·(V b))/ℓ
                moment = (a * (a_bar - rows)).sum(-2, keepdim=True) + (column_sums * b.square()).sum(-2, keepdim=True)
                lengthscale_bar = (-2.0 * ctx.profile.slope * moment / lengthscale).sum_to_size(ctx.shapes[2])

        shape_bars = [
            None if slope is None else (slope * grad).sum_to_size(shape)
            for slope, shape in zip(slopes, ctx.shapes[3:], strict=True)
        ]
        return None, x1_bar, x2_bar, lengthscale_bar, *shape_bars


def _scaled(profile: Profile, x1: Tensor, x2: Tensor | None, lengthscale: Tensor) -> tuple[Tensor, Tensor | None]:
    centre = x1.mean(-2, keepdim=True)
    rate = math.sqrt(profile.stretch) / lengthscale
    return (x1 - centre) * rate, None if x2 is None else (x2 - centre) * rate


def _squared_distances(a: Tensor, b: Tensor | None) -> Tensor:
    """‖a_i − b_j‖² up to rounding, which may leave it below zero; exactly zero on the diagonal if ``b`` is None."""
    other = a if b is None else b
    if a.shape[-1] <= _FEW_FEATURES:
        return _sum_of_squared_differences(a, other)
    # [‖a‖², 1, −2a]·[1, ‖b‖², b]ᵀ: with the norms first the product for k(x, x) is summed in the same order on both
    # sides of the diagonal.
    left = torch.cat([a.square().sum(-1, keepdim=True), torch.ones_like(a[..., :1]), -2.0 * a], -1)
    right = torch.cat([torch.ones_like(other[..., :1]), other.square().sum(-1, keepdim=True), other], -1)
    if _cancels(left, right):
        # The norms have to be summed in float64, too.
        return _squared_distances(a.double(), None if b is None else b.double()).to(a.dtype)
    with full_precision(a.device):
        q = left @ right.mT
    if b is None:
        q.diagonal(dim1=-2, dim2=-1).zero_()
    return q


def _cancels(left: Tensor, right: Tensor) -> bool:
    """Whether squared norms (the first column of ``left``, the second of ``right``) drown differences of order one."""
    if left.dtype == torch.float64 or not left.numel() or not right.numel():
        return False
    return float(left[..., 0].max()) + float(right[..., 1].max()) > _LARGE_NORMS


def _sum_of_squared_differences(a: Tensor, b: Tensor) -> Tensor:
    q = (a[..., 0].unsqueeze(-1) - b[..., 0].unsqueeze(-2)).square_()
    for d in range(1, a.shape[-1]):
        difference = a[..., d].unsqueeze(-1) - b[..., d].unsqueeze(-2)
        q.addcmul_(difference, difference)
    return q
