"""Covariances of scaled points with blocks of scaled rows under a stationary kernel, and their gradients.

What the blocks have in common is computed once. Machine code goes over each block once in every direction; where there
is none, torch does the same in a dozen operations.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from candid.kernels.compiled import COMPILED
from candid.kernels.gram import (
    FEW_FEATURES,
    cancels,
    left_factor,
    right_factor,
    scaled_inputs,
    squared_distances,
    symmetric_gradients,
)
from candid.kernels.profiles import Profile
from candid.linalg import cholesky, machine_code_takes
from candid.linalg.blas import counts_in_ints, factorisation
from candid.linalg.crew import crew_size
from candid.linalg.triangular import inverse_of

__all__ = [
    "Blocks",
    "CompiledBlocks",
    "HalfGradients",
    "PointFactors",
    "TorchBlocks",
    "can_compile_blocks",
    "scaled_blocks",
]

# Squared distances of more features are computed faster by a product of matrices.
MOST_FEATURES = 32


class HalfGradients(NamedTuple):
    """For q_ij = ‖a_i − b_j‖²: ½ā, ½b̄ and ½(Σ aā + Σ bb̄), where the sums are over points and rows."""

    points: Tensor  # (GP, M, D)
    rows: Tensor  # (GP, D, N), or (GP, D, 0) where they are not asked for
    moment: Tensor  # (GP, D)

    def without(self, n_features: int) -> HalfGradients:
        """Features from that number on left out."""
        return HalfGradients(
            self.points[..., :n_features], self.rows[..., :n_features, :], self.moment[..., :n_features]
        )

    def beside(self) -> HalfGradients:
        """Sums of other rows, which begin at zero; those of rows are written to the same place."""
        return self._replace(points=torch.zeros_like(self.points), moment=torch.zeros_like(self.moment))

    def add(self, other: HalfGradients) -> None:
        self.points.add_(other.points)
        self.moment.add_(other.moment)


class PointFactors(NamedTuple):
    """Of k(Z, Z) + jitter·I = L Lᵀ for a few GPs: L, with anything above its diagonal, and L⁻¹; the jitter; and w."""

    lower: Tensor
    inverse: Tensor
    jitter: Tensor
    slope: Tensor


class Blocks(ABC):
    """Points ``a`` (GP, M, D) and rows ``b`` (GP, N, D), of which a block is one GP and a slice of its rows."""

    def __init__(self, a: Tensor, columns: Tensor) -> None:
        self.a, self.columns = a, columns

    def factorise(self, gps: slice, jitter: Tensor) -> PointFactors:
        """Factors of k of the points of a few GPs among each other, with that jitter or more; L⁻¹ is by rows."""
        gram, slope = self.gram(gps)
        factor = cholesky(gram, jitter, scale=1.0)
        return PointFactors(factor.lower, inverse_of(factor.lower).contiguous(), factor.jitter, slope)

    def zeros(self, of_rows: bool) -> HalfGradients:
        """Where gradients are added up; those of rows, if they are asked for, are written."""
        columns = self.columns if of_rows else self.columns[..., :0]
        return HalfGradients(torch.zeros_like(self.a), torch.empty_like(columns), torch.zeros_like(self.a[:, 0]))

    @abstractmethod
    def gram(self, gps: slice) -> tuple[Tensor, Tensor]:
        """k and w of the points of a few GPs among each other, (GP, M, M)."""

    @abstractmethod
    def add_gram_gradients(self, total: HalfGradients, gps: slice, gram_bar: Tensor, slope: Tensor) -> None:
        """Add to ``total`` what a gradient of that k, which is overwritten, means for the points of a few GPs.

        It need not be symmetric, though k is.
        """

    @abstractmethod
    def covariances(self, gp: int, rows: slice) -> tuple[Tensor, Tensor]:
        """k, which may be overwritten, and w of a block, as :class:`~candid.kernels.profiles.Profile` has them; M×n."""

    @abstractmethod
    def add_gradients(self, total: HalfGradients, gp: int, rows: slice, cross_bar: Tensor, slope: Tensor) -> None:
        """Add to ``total`` what the gradient ``cross_bar`` of k means for the points.

        For these rows it is written there, if ``total`` has room for it.
        """

    @abstractmethod
    def add_moments(self, x: Tensor, mean: Tensor, variances: Tensor | None, moments: Tensor) -> None:
        """Add Σ m x, Σ x² and, if there are variances s, Σ s x² over the entries of each column to ``moments``, 3×n."""

    @abstractmethod
    def add_squares(self, x: Tensor, squares: Tensor) -> None:
        """Add Σ x² over the entries of each column."""


def scaled_blocks(profile: Profile, points: Tensor, x: Tensor, lengthscale: Tensor) -> Blocks:
    """Those of points (GP, M, D) and rows (n, D) that are not yet scaled by lengthscales (GP, 1, D)."""
    if can_compile_blocks(profile, points):
        return CompiledBlocks.scale(profile, points, x, lengthscale)
    a, b = scaled_inputs(profile, points, x, lengthscale)
    return TorchBlocks(profile, a, b)  # pyright: ignore[reportArgumentType]


def can_compile_blocks(profile: Profile, points: Tensor) -> bool:
    """Whether machine code knows the kernel, and can read such points."""
    return profile in COMPILED and machine_code_takes(points) and points.shape[-1] <= MOST_FEATURES


class CompiledBlocks(Blocks):
    """By machine code, for which points are stored by rows, and rows and points as columns."""

    def __init__(self, number: int, a: Tensor, columns: Tensor, own_columns: Tensor) -> None:
        super().__init__(a, columns)
        self.number, self.points = number, a.numpy()
        self.row_columns, self.own_columns = columns.numpy(), own_columns.numpy()

    @staticmethod
    def scale(profile: Profile, points: Tensor, x: Tensor, lengthscale: Tensor) -> CompiledBlocks:
        """From unscaled points and rows."""
        from candid.linalg.point_kernels import scale_inputs

        (n_gps, n_points, n_features), compiled = points.shape, COMPILED[profile]
        padded = n_features + -n_features % 4
        rate = (math.sqrt(compiled.stretch) * lengthscale.reciprocal()).expand(n_gps, 1, n_features).squeeze(-2)
        scaled = [
            points.new_empty(n_gps, *shape) for shape in ((n_points, padded), (padded, n_points), (padded, len(x)))
        ]
        given = points.contiguous(), x, rate
        scale_inputs(*(values.numpy() for values in (*given, *scaled)))
        a, own_columns, columns = scaled
        return CompiledBlocks(compiled.number, a, columns, own_columns)

    def factorise(self, gps: slice, jitter: Tensor) -> PointFactors:
        if not (crew_size() and counts_in_ints()):
            return super().factorise(gps, jitter)
        from candid.linalg.point_kernels import factorise_points

        routine, size = factorisation(self.a.dtype), self.a.shape[-2]
        lower, inverse, slope = (self.a.new_empty(len(jitter), size, size) for _ in range(3))
        for place, (gp, level) in enumerate(zip(range(len(self.a))[gps], jitter.numpy(), strict=True)):
            own = (values.numpy()[place] for values in (slope, lower, inverse))
            if not factorise_points(routine, self.number, self.points[gp], self.own_columns[gp], level, *own):
                # It needs more jitter, or something is wrong: that is found out where it is done with care.
                return super().factorise(gps, jitter)
        return PointFactors(lower, inverse, jitter, slope)

    def gram(self, gps: slice) -> tuple[Tensor, Tensor]:
        numbers, size = range(len(self.a))[gps], self.a.shape[-2]
        k, w = (self.a.new_empty(len(numbers), size, size) for _ in range(2))
        for gp, own, slope in zip(numbers, k, w, strict=True):
            self._write(gp, self.own_columns, 0, own, slope)
        return k, w

    def add_gram_gradients(self, total: HalfGradients, gps: slice, gram_bar: Tensor, slope: Tensor) -> None:
        # A point has no distance to itself; left in, its terms would cancel only up to rounding.
        gram_bar.diagonal(dim1=-2, dim2=-1).zero_()
        # Points are both the rows and the columns of this matrix.
        as_columns = self.a.new_empty(self.a.mT.shape)
        own = total._replace(rows=as_columns)
        for gp, of_one, its_slope in zip(range(len(self.a))[gps], gram_bar, slope, strict=True):
            self._add(own, gp, self.own_columns, 0, of_one, its_slope)
        total.points[gps] += as_columns[gps].mT

    def covariances(self, gp: int, rows: slice) -> tuple[Tensor, Tensor]:
        # Each by itself: w may be kept longer than k.
        k, w = (self.a.new_empty(self.a.shape[-2], rows.stop - rows.start) for _ in range(2))
        self._write(gp, self.row_columns, rows.start, k, w)
        return k, w

    def _write(self, gp: int, columns: np.ndarray, first: int, k: Tensor, w: Tensor) -> None:
        from candid.linalg.block_kernels import block_covariances

        block_covariances(self.number, self.points[gp], columns[gp], first, k.numpy(), w.numpy())

    def add_gradients(self, total: HalfGradients, gp: int, rows: slice, cross_bar: Tensor, slope: Tensor) -> None:
        self._add(total, gp, self.row_columns, rows.start, cross_bar, slope)

    def _add(
        self, total: HalfGradients, gp: int, columns: np.ndarray, first: int, cross_bar: Tensor, slope: Tensor
    ) -> None:
        from candid.linalg.block_kernels import block_gradients

        given, sums = (cross_bar.numpy(), slope.numpy()), (part.numpy()[gp] for part in total)
        block_gradients(*given, self.points[gp], columns[gp], first, *sums)

    def add_moments(self, x: Tensor, mean: Tensor, variances: Tensor | None, moments: Tensor) -> None:
        from candid.linalg.block_kernels import block_moments

        given = (x, mean, mean[:0] if variances is None else variances)
        block_moments(*(values.numpy() for values in given), *moments.numpy())

    def add_squares(self, x: Tensor, squares: Tensor) -> None:
        from candid.linalg.block_kernels import block_squares

        block_squares(x.numpy(), squares.numpy())


class TorchBlocks(Blocks):
    """By torch."""

    def __init__(self, profile: Profile, a: Tensor, b: Tensor) -> None:
        super().__init__(a, b.mT.contiguous())
        self.profile, self.b, self.factors = profile, b, None
        if a.shape[-1] > FEW_FEATURES:
            a_norms, b_norms = (values.square().sum(-1, keepdim=True) for values in (a, b))
            if not cancels(a_norms, b_norms):
                self.factors = left_factor(a, a_norms), right_factor(b, b_norms).mT

    def gram(self, gps: slice) -> tuple[Tensor, Tensor]:
        k, w = self.profile.evaluate(squared_distances(self.a[gps], None))
        return k, w

    def add_gram_gradients(self, total: HalfGradients, gps: slice, gram_bar: Tensor, slope: Tensor) -> None:
        points_bar, moment = symmetric_gradients(gram_bar.mul_(slope), self.a[gps])
        total.points[gps] += points_bar
        total.moment[gps] += moment.squeeze(-2)

    def covariances(self, gp: int, rows: slice) -> tuple[Tensor, Tensor]:
        if self.factors is None:
            distances = squared_distances(self.a[gp], self.b[gp, rows])
        else:
            left, right = self.factors
            distances = left[gp] @ right[gp, :, rows]
        k, w = self.profile.evaluate(distances)
        return k.clone() if k is w else k, w

    def add_gradients(self, total: HalfGradients, gp: int, rows: slice, cross_bar: Tensor, slope: Tensor) -> None:
        v, a, b = cross_bar * slope, self.a[gp], self.columns[gp, :, rows]
        # Thin matrices are multiplied fastest as a few long rows.
        across, column_sums = (b @ v.mT).mT, v.sum(0)
        # ½ā = rowsum(V)·a − V b,        ½b̄ = colsum(V)·b − Vᵀa
        points_bar = v.sum(1, keepdim=True) * a - across
        total.points[gp] += points_bar
        if total.rows.numel():
            torch.sub(column_sums * b, a.mT @ v, out=total.rows[gp, :, rows])
        # ½(Σ aā + Σ bb̄) = Σ_i a(½ā − V b) + Σ_j colsum(V) b²
        total.moment[gp] += (a * (points_bar - across)).sum(0) + b.square() @ column_sums

    def add_moments(self, x: Tensor, mean: Tensor, variances: Tensor | None, moments: Tensor) -> None:
        squared = x.square()
        moments[0] += mean @ x
        moments[1] += squared.sum(0)
        if variances is not None:
            moments[2] += variances @ squared

    def add_squares(self, x: Tensor, squares: Tensor) -> None:
        squares += x.square().sum(0)
