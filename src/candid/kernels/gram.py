"""The Gram matrix of a stationary kernel, with a gradient written by hand.

Inputs are centred, scaled by the lengthscales and turned into squared distances by one matrix product. The forward
pass keeps one matrix, ``w = dk/dq`` (up to a constant), and the backward pass needs one thin matrix product with
``V = w∘K̄`` for each set of points that is learned: nothing of the size N1×N2 is differentiated by autograd.

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
from candid.linalg.products import product_of

__all__ = ["stationary_gram"]

# Up to this many features, differences cost no more than a matrix product, and they do not cancel.
FEW_FEATURES = 3
# A short lengthscale makes scaled inputs large: above this sum of squared norms the product needs float64.
_LARGE_NORMS = 500.0


def stationary_gram(profile: Profile, x1: Tensor, x2: Tensor | None, lengthscale: Tensor, *shapes: Tensor) -> Tensor:
    """``profile`` at all pairs of ``x1`` and ``x2`` (or ``x1`` and itself if ``x2`` is None); differentiable once."""
    tensors = (x1, x2, lengthscale, *shapes)
    if torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in tensors):
        return _StationaryGram.apply(profile, *tensors)  # pyright: ignore[reportReturnType]
    a, b = scaled_inputs(profile, x1, x2, lengthscale)
    return profile.evaluate(squared_distances(a, b), *shapes)[0]


class _StationaryGram(torch.autograd.Function):
    @staticmethod
    def forward(ctx, profile: Profile, x1: Tensor, x2: Tensor | None, lengthscale: Tensor, *shapes: Tensor) -> Tensor:
        a, b = scaled_inputs(profile, x1, x2, lengthscale)
        k, w, *slopes = profile.evaluate(squared_distances(a, b), *shapes)
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

        a_bar = b_bar = moment = None
        if needs_x1 or needs_x2 or needs_lengthscale:
            v = w * grad
            with full_precision(grad.device):
                if b is None:
                    a_bar, moment = symmetric_gradients(v, a)
                elif needs_x1 or not needs_x2:
                    a_bar, moment = gradients(v, a, b)
                    b_bar = half_gradient(v.mT, b, a)[0] if needs_x2 else None
                else:
                    b_bar, moment = gradients(v.mT, b, a)

        x1_bar = x2_bar = lengthscale_bar = None
        of_inputs, of_lengthscale = chain_factors(ctx.profile, lengthscale)
        if needs_x1 and a_bar is not None:
            x1_bar = (a_bar * of_inputs).sum_to_size(ctx.shapes[0])
        if needs_x2 and b_bar is not None:
            x2_bar = (b_bar * of_inputs).sum_to_size(ctx.shapes[1])
        if needs_lengthscale and moment is not None:
            lengthscale_bar = (moment * of_lengthscale).sum_to_size(ctx.shapes[2])
        shape_bars = [
            None if slope is None else (slope * grad).sum_to_size(shape)
            for slope, shape in zip(slopes, ctx.shapes[3:], strict=True)
        ]
        return None, x1_bar, x2_bar, lengthscale_bar, *shape_bars


def chain_factors(profile: Profile, lengthscale: Tensor) -> tuple[Tensor, Tensor]:
    """What the results of :func:`gradients` are multiplied with: those of inputs, and that of lengthscales."""
    # a = √stretch·x/ℓ, so x̄ = √stretch·ā/ℓ and ℓ̄ = −(Σ aā + Σ bb̄)/ℓ
    of_lengthscale = (-2.0 * profile.slope) * lengthscale.reciprocal()
    return -math.sqrt(profile.stretch) * of_lengthscale, of_lengthscale


def half_gradient(v: Tensor, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """½ā for q = ‖a_i − b_j‖² with the gradient V, and V b."""
    # Thin matrices are multiplied fastest as a few long rows.
    cross = product_of(b.mT, v.mT).mT
    # ½ā = rowsum(V)·a − V b
    return v.sum(-1, keepdim=True) * a - cross, cross


def gradients(v: Tensor, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """½ā, and ½(Σ aā + Σ bb̄) over points."""
    a_bar, cross = half_gradient(v, a, b)
    # ½(Σ aā + Σ bb̄) = Σ_ij V_ij (a_i − b_j)² = Σ_i a(½ā − V b) + Σ_j colsum(V) b²
    return a_bar, (a * (a_bar - cross)).sum(-2, keepdim=True) + v.sum(-2, keepdim=True) @ b.square()


def symmetric_gradients(v: Tensor, a: Tensor) -> tuple[Tensor, Tensor]:
    """The same for q = ‖a_i − a_j‖², where b is a; the diagonal of ``v`` is overwritten."""
    # A point has no distance to itself; left in, its terms would cancel only up to rounding.
    v.diagonal(dim1=-2, dim2=-1).zero_()
    # ½ā = rowsum(V + Vᵀ)·a − (V + Vᵀ)a,        ½Σ aā = Σ_ij V_ij (a_i − a_j)²
    a_bar, _ = half_gradient(v + v.mT, a, a)
    return a_bar, (a * a_bar).sum(-2, keepdim=True)


def scaled_inputs(profile: Profile, x1: Tensor, x2: Tensor | None, lengthscale: Tensor) -> tuple[Tensor, Tensor | None]:
    centre = x1.mean(-2, keepdim=True)
    rate = math.sqrt(profile.stretch) * lengthscale.reciprocal()
    return (x1 - centre) * rate, None if x2 is None else (x2 - centre) * rate


def squared_distances(a: Tensor, b: Tensor | None) -> Tensor:
    """‖a_i − b_j‖² up to rounding, which may leave it below zero; exactly zero on the diagonal if ``b`` is None."""
    other = a if b is None else b
    if a.shape[-1] <= FEW_FEATURES:
        return _sum_of_squared_differences(a, other)
    a_norms = a.square().sum(-1, keepdim=True)
    other_norms = a_norms if b is None else b.square().sum(-1, keepdim=True)
    if cancels(a_norms, other_norms):
        # The norms have to be summed in float64, too.
        return squared_distances(a.double(), None if b is None else b.double()).to(a.dtype)
    with full_precision(a.device):
        q = left_factor(a, a_norms) @ right_factor(other, other_norms).mT
    if b is None:
        q.diagonal(dim1=-2, dim2=-1).zero_()
    return q


def left_factor(a: Tensor, norms: Tensor) -> Tensor:
    """The first of the two matrices whose product is ‖a_i − b_j‖².

    [‖a‖², 1, −2a]·[1, ‖b‖², b]ᵀ: with the norms first the product for k(x, x) is summed in the same order on both
    sides of the diagonal.
    """
    return torch.cat([norms, torch.ones_like(norms), -2.0 * a], -1)


def right_factor(b: Tensor, norms: Tensor) -> Tensor:
    """The second of them, not yet transposed."""
    return torch.cat([torch.ones_like(norms), norms, b], -1)


def cancels(a_norms: Tensor, b_norms: Tensor) -> bool:
    """Whether squared norms drown differences of order one."""
    if a_norms.dtype == torch.float64 or not a_norms.numel() or not b_norms.numel():
        return False
    return float(a_norms.max()) + float(b_norms.max()) > _LARGE_NORMS


def _sum_of_squared_differences(a: Tensor, b: Tensor) -> Tensor:
    q = (a[..., 0].unsqueeze(-1) - b[..., 0].unsqueeze(-2)).square_()
    for d in range(1, a.shape[-1]):
        difference = a[..., d].unsqueeze(-1) - b[..., d].unsqueeze(-2)
        q.addcmul_(difference, difference)
    return q
