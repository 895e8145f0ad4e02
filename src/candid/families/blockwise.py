"""Moments of very many rows, a block of them at a time that stays in the processor's cache.

What :func:`~candid.kernels.joint.joint_grams`, :func:`~candid.linalg.whiten` and :func:`~candid.linalg.project` compute
one after the other, each for all rows, is here one function for a stationary kernel. The last layer of a deep GP sees
as many rows as there are sites times rows of a batch, and matrices of that size would go to memory and back at every
step of the computation. With A = L⁻¹k(Z, x), q(v) = N(m, S), S = R Rᵀ and h, e, s the gradients of the three results,

    mean = Aᵀm          explained = Σ A²          spread = Σ A∘SA

    m̄ = A h             Ā = 2(S − I)A diag(s) + 2A diag(e + s) + m hᵀ             R̄ = 2 G R,        G = A diag(s) Aᵀ

    ĀAᵀ = 2(S − I)G + 2A diag(e + s)Aᵀ + m m̄ᵀ

Where an objective sees the sum of residual and spread only, e + s = 0: then G is the one product of two matrices with
all rows that the gradients need besides L⁻ᵀĀ. That pays where rows are many more than inducing points.
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor

from candid.kernels import Kernel, Stationary
from candid.kernels.gram import chain_factors, scaled_inputs, squared_distances, symmetric_gradients
from candid.kernels.precision import full_precision
from candid.kernels.profiles import Profile
from candid.kernels.stationary import known_lengthscale
from candid.linalg import Factor, cholesky, first_order
from candid.linalg.triangular import (
    add_product_below_diagonal,
    congruence,
    solve_lower_,
    solve_lower_transposed_,
)
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
    lengthscale = known_lengthscale(kernel)
    with torch.no_grad():
        a, _ = scaled_inputs(kernel.profile, points, None, lengthscale)
        gram, slope = kernel.profile.evaluate(squared_distances(a, None))
        factor = cholesky(gram, jitter)
    moments: tuple[Tensor, Tensor, Tensor] = _Blockwise.apply(  # pyright: ignore[reportAssignmentType]
        kernel.profile, factor.lower, slope, x, points, lengthscale, weights.mean, weights.root()
    )
    latent, explained, spread = moments
    return latent, explained, spread, factor


class _Blockwise(torch.autograd.Function):
    @staticmethod
    def forward(ctx, profile: Profile, lower, gram_slope, x, points, lengthscale, mean, root):
        ctx.set_materialize_grads(False)
        a, b = scaled_inputs(profile, points, x, lengthscale)
        ctx.batch = points.shape[:-2]
        gps = _GPs.listed(len(ctx.batch), a, b, lower, mean, root)
        covariance, moments = gps.covariance(), x.new_zeros(3, len(gps.a), x.shape[-2])
        blocks: list[Tensor | None] = []
        for gp, rows in gps.blocks():
            own = None if covariance is None else covariance[gp]
            blocks += _evaluate(profile, gps.one(gp, rows), own, moments[:, gp, rows])
        ctx.save_for_backward(*gps, gram_slope, lengthscale, *blocks)
        ctx.profile = profile
        return tuple(moments.reshape(3, *ctx.batch, -1))

    @staticmethod
    @first_order
    def backward(ctx, *grads: Tensor | None):  # pyright: ignore[reportIncompatibleMethodOverride]
        *parts, gram_slope, lengthscale = ctx.saved_tensors[:7]
        gps, blocks = _GPs(*parts), iter(ctx.saved_tensors[7:])
        of_mean, of_explained, of_spread = (
            gps.b.new_zeros(gps.b.shape[:-1]) if grad is None else grad.reshape(gps.b.shape[:-1]) for grad in grads
        )
        if gps.root is None:
            of_spread = -of_explained
        grad = torch.stack([of_mean, of_spread, of_explained + of_spread])
        sums = _Sums.zeros(gps, with_rows=ctx.needs_input_grad[3], apart=bool(grad[2].any()))
        with full_precision(grad.device):
            for gp, rows in gps.blocks():
                tensors = (next(blocks), next(blocks), next(blocks))
                _pull_back(gps.one(gp, rows), *tensors, grad[:, gp, rows], sums.one(gp, rows))
            inner, root_bar = _of_products(gps, sums)
            # K̄_zz = −½ L⁻ᵀ Σ L⁻¹, where Σ has the lower triangle of ĀAᵀ
            gram_bar = congruence(gps.lower, inner).mul_(-0.5)
            own_bar, own_moment = symmetric_gradients(gram_bar.mul_(gram_slope.reshape(gram_bar.shape)), gps.a)
        of_inputs, of_lengthscale = chain_factors(ctx.profile, lengthscale)
        shape = lambda t: t.reshape(*ctx.batch, *t.shape[1:])  # noqa: E731
        x_bar = None if sums.rows is None else (shape(sums.rows) * of_inputs).sum_to_size(gps.b.shape[1:])
        return (
            *(None, None, None, x_bar, shape(sums.points + own_bar) * of_inputs),
            (shape(sums.moment + own_moment) * of_lengthscale).sum_to_size(lengthscale.shape),
            *(shape(sums.mean), None if root_bar is None else shape(root_bar)),
        )


class _GPs(NamedTuple):
    """Scaled points and rows, factor of k(Z, Z), and q(v), of all GPs, of one, or of one and some rows."""

    a: Tensor  # (GP, M, D)
    b: Tensor  # (GP, n, D)
    lower: Tensor  # (GP, M, M)
    mean: Tensor  # (GP, M)
    root: Tensor | None  # (GP, M), (GP, M, M), or None where S = 0

    @staticmethod
    def listed(axes: int, *parts: Tensor | None) -> _GPs:
        """A batch of GPs, whatever its axes, is a list of them."""
        return _GPs(*(None if part is None else part.reshape(-1, *part.shape[axes:]) for part in parts))  # pyright: ignore

    def covariance(self) -> Tensor | None:
        """S, or its diagonal."""
        if self.root is None:
            return None
        return self.root.square() if self.root.dim() == 2 else self.root @ self.root.mT

    def blocks(self) -> list[tuple[int, slice]]:
        """All GPs, and blocks of rows of each, of about the same size."""
        n_gps, n_points, n_rows = *self.a.shape[:2], self.b.shape[1]
        count = max(1, round(n_points * n_rows / BLOCK))
        edges = [n_rows * number // count for number in range(count + 1)]
        return [(gp, slice(*pair)) for gp in range(n_gps) for pair in pairwise(edges)]

    def one(self, gp: int, rows: slice) -> _GPs:
        root = None if self.root is None else self.root[gp]
        return _GPs(self.a[gp], self.b[gp, rows], self.lower[gp], self.mean[gp], root)


class _Sums(NamedTuple):
    """What gradients are made of, summed over blocks, of all GPs, of one, or of one and some rows."""

    gram: Tensor  # G, on and below the diagonal
    apart: Tensor | None  # A diag(e + s)Aᵀ; None where it is zero
    points: Tensor  # ½ā
    rows: Tensor | None  # ½b̄
    moment: Tensor  # ½(Σ aā + Σ bb̄)
    mean: Tensor  # m̄

    @staticmethod
    def zeros(gps: _GPs, with_rows: bool, apart: bool) -> _Sums:
        gram, moment = torch.zeros_like(gps.lower), torch.zeros_like(gps.a[:, :1])
        rows = torch.zeros_like(gps.b) if with_rows else None
        others = torch.zeros_like(gram) if apart else None
        return _Sums(gram, others, torch.zeros_like(gps.a), rows, moment, torch.zeros_like(gps.mean))

    def one(self, gp: int, rows: slice) -> _Sums:
        apart = None if self.apart is None else self.apart[gp]
        own_rows = None if self.rows is None else self.rows[gp, rows]
        return _Sums(self.gram[gp], apart, self.points[gp], own_rows, self.moment[gp], self.mean[gp])


def _evaluate(
    profile: Profile, gp: _GPs, covariance: Tensor | None, moments: Tensor
) -> tuple[Tensor, Tensor, Tensor | None]:
    """A, w = dk/dq up to a constant, and SA of a full S; the moments of these rows are written to ``moments``."""
    k, slope = profile.evaluate(squared_distances(gp.a, gp.b))
    features = solve_lower_(gp.lower, k.clone() if k is slope else k)
    torch.mv(features.mT, gp.mean, out=moments[0])
    squares = features.square()
    torch.sum(squares, 0, out=moments[1])
    if covariance is None:
        return features, slope, None
    if covariance.dim() == 1:
        torch.mv(squares.mT, covariance, out=moments[2])
        return features, slope, None
    product = covariance @ features
    torch.sum(torch.mul(features, product, out=squares), 0, out=moments[2]).clamp_min_(0.0)
    return features, slope, product


def _pull_back(gp: _GPs, features: Tensor, slope: Tensor, product: Tensor | None, grad: Tensor, sums: _Sums) -> None:
    """Add the gradients of one block to ``sums``; ``grad`` are h, s and e + s of its rows."""
    of_mean, of_spread, apart = grad
    weighted = features * of_spread
    add_product_below_diagonal(sums.gram, weighted, features)
    # 2(S − I)A diag(s), with a diagonal S or none, or with a full one
    if product is not None:
        features_bar = torch.sub(product, features, out=weighted).mul_(2 * of_spread)
    else:
        features_bar = weighted.mul_(-2.0 if gp.root is None else 2 * (gp.root.square() - 1).unsqueeze(-1))
    if sums.apart is not None:
        others = features * apart
        add_product_below_diagonal(sums.apart, others, features)
        features_bar.add_(others, alpha=2.0)
    sums.mean.addmv_(features, of_mean)
    # V = w∘L⁻ᵀĀ
    v = solve_lower_transposed_(gp.lower, features_bar.addr_(gp.mean, of_mean)).mul_(slope)
    # [V b, V 1] and [Vᵀa, Vᵀ1]: thin matrices are multiplied fastest as a few long rows
    across, down = (_with_ones(gp.b).mT @ v.mT).mT, (_with_ones(gp.a).mT @ v).mT
    cross, column_sums = across[:, :-1], down[:, -1:]
    # ½ā = rowsum(V)·a − V b
    points_bar = across[:, -1:] * gp.a - cross
    sums.points.add_(points_bar)
    # ½(Σ aā + Σ bb̄) = Σ_i a(½ā − V b) + Σ_j colsum(V) b²
    sums.moment.add_((gp.a * (points_bar - cross)).sum(0) + (column_sums * gp.b.square()).sum(0))
    if sums.rows is not None:
        # ½b̄ = colsum(V)·b − Vᵀa
        torch.sub(column_sums * gp.b, down[:, :-1], out=sums.rows)


def _of_products(gps: _GPs, sums: _Sums) -> tuple[Tensor, Tensor | None]:
    """ĀAᵀ and R̄."""
    gram = sums.gram.tril() + sums.gram.tril(-1).mT
    inner = torch.baddbmm(-2 * gram, gps.mean.unsqueeze(-1), sums.mean.unsqueeze(-2))
    if sums.apart is not None:
        inner += 2 * sums.apart
    if gps.root is None:
        return inner, None
    if gps.root.dim() == 2:
        inner += 2 * gps.root.square().unsqueeze(-1) * gram
        return inner, 2 * gps.root * gram.diagonal(dim1=-2, dim2=-1)
    turned = 2 * (gram @ gps.root)
    # S G = (G R Rᵀ)ᵀ
    return inner + (turned @ gps.root.mT).mT, turned.tril()


def _with_ones(x: Tensor) -> Tensor:
    return torch.cat([x, x.new_ones(len(x), 1)], -1)
