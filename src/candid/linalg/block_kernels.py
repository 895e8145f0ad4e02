"""Machine code for blocks of rows under one stationary kernel: each pass over an M×n matrix does all it can.

Points are scaled and stored by rows, M×D, and rows of the table as columns, D×N, of which a block starts at ``first``.
D is a multiple of four; what fills it up is zero.
"""

from __future__ import annotations

from typing import no_type_check

import numpy as np

from candid.linalg.machine_code import compiled_sums, kept_on_disk
from candid.linalg.row_kernels import covariances, squared_distances

__all__ = ["block_covariances", "block_gradients", "block_moments", "block_squares"]

# Rows whose squares are summed before they join the rest: a long sum would swallow what is small, and be too small.
TOGETHER = 16


@kept_on_disk
@no_type_check
def block_covariances(profile, points, rows, first, k, w):
    """Covariances k of points and rows, and their slopes w."""
    # The decay of anything farther away is nothing in this precision.
    q, largest = np.empty_like(k[0]), k.dtype.type(87 if k.itemsize == 4 else 708)
    for i in range(k.shape[0]):
        squared_distances(rows, first, points[i], q)
        covariances(profile, q, largest, k[i], w[i])


@kept_on_disk
@no_type_check
def block_moments(features, mean, variances, means, squares, spreads):
    """Add Σ m a, Σ a² and Σ s a² over the entries a of each column, with means m and variances s, which may be none."""
    (n_points, n_rows), nothing = features.shape, features.dtype.type(0)
    part = np.empty((3, n_rows), features.dtype)
    for start in range(0, n_points, TOGETHER):
        part[:] = nothing
        for i in range(start, min(start + TOGETHER, n_points)):
            m, s = mean[i], variances[i] if variances.shape[0] > 0 else nothing
            for j in range(n_rows):
                a = features[i, j]
                square = a * a
                part[0, j] += m * a
                part[1, j] += square
                part[2, j] += s * square
        for j in range(n_rows):
            means[j] += part[0, j]
            squares[j] += part[1, j]
            spreads[j] += part[2, j]


@kept_on_disk
@no_type_check
def block_squares(x, squares):
    """Add Σ a² over the entries a of each column."""
    part = np.empty(x.shape[1], x.dtype)
    for start in range(0, x.shape[0], TOGETHER):
        part[:] = x.dtype.type(0)
        for i in range(start, min(start + TOGETHER, x.shape[0])):
            for j in range(x.shape[1]):
                part[j] += x[i, j] * x[i, j]
        for j in range(x.shape[1]):
            squares[j] += part[j]


@compiled_sums
@no_type_check
def products_of_four(v, row, entries, sums, down):
    """Σ_j v_ij row_j for four rows i of v, and add Σ_i v_ij entry_i to each of ``down``."""
    v0, v1, v2, v3 = v[0], v[1], v[2], v[3]
    a0, a1, a2, a3 = entries[0], entries[1], entries[2], entries[3]
    s0 = s1 = s2 = s3 = v.dtype.type(0)
    for j in range(down.shape[0]):
        x0, x1, x2, x3, b = v0[j], v1[j], v2[j], v3[j], row[j]
        s0 += x0 * b
        s1 += x1 * b
        s2 += x2 * b
        s3 += x3 * b
        down[j] += (x0 * a0 + x1 * a1) + (x2 * a2 + x3 * a3)
    sums[0], sums[1], sums[2], sums[3] = s0, s1, s2, s3


@compiled_sums
@no_type_check
def sums_of_four(v, row, sums):
    """Σ_j v_ij row_j for four rows i of v."""
    v0, v1, v2, v3 = v[0], v[1], v[2], v[3]
    s0 = s1 = s2 = s3 = v.dtype.type(0)
    for j in range(v.shape[1]):
        b = row[j]
        s0 += v0[j] * b
        s1 += v1[j] * b
        s2 += v2[j] * b
        s3 += v3[j] * b
    sums[0], sums[1], sums[2], sums[3] = s0, s1, s2, s3


@kept_on_disk
@no_type_check
def block_gradients(cross_bar, slope, points, rows, first, points_bar, rows_bar, moment):
    """For q_ij = ‖a_i − b_j‖² with the gradient V = slope∘cross_bar: ½b̄ to ``rows_bar``, and add ½ā and ½(Σ aā + Σ bb̄).

    The two sums are over points, and over the rows of this block. If ``rows_bar`` has no entries, ½b̄ is not asked for.
    """
    (n_points, n_rows), n_features, dtype = slope.shape, points.shape[1], slope.dtype
    v, sums, ones = np.zeros((4, n_rows), dtype), np.empty(4, dtype), np.ones(4, dtype)
    entries, row_sums = np.zeros((n_features, 4), dtype), np.empty(4, dtype)
    all_ones, column_sums, of_rows = np.ones(n_rows, dtype), np.zeros(n_rows, dtype), rows_bar.shape[1] > 0
    down = np.zeros((n_features, n_rows if of_rows else 0), dtype)
    for start in range(0, n_points, 4):
        count = min(4, n_points - start)
        for i in range(4):
            for j in range(n_rows):
                v[i, j] = cross_bar[start + i, j] * slope[start + i, j] if i < count else dtype.type(0)
            for d in range(n_features):
                entries[d, i] = points[start + i, d] if i < count else dtype.type(0)
        # rowsum(V) and colsum(V)
        products_of_four(v, all_ones, ones, row_sums, column_sums)
        for d in range(n_features):
            # V b and Vᵀa
            if of_rows:
                products_of_four(v, rows[d, first:], entries[d], sums, down[d])
            else:
                sums_of_four(v, rows[d, first:], sums)
            for i in range(count):
                # ½ā = rowsum(V)·a − V b,   ½(Σ aā + Σ bb̄) = Σ_i a(½ā − V b) + Σ_j colsum(V) b²
                half = row_sums[i] * entries[d, i] - sums[i]
                points_bar[start + i, d] += half
                moment[d] += entries[d, i] * (half - sums[i])
    for d in range(n_features):
        for j in range(n_rows):
            b = rows[d, first + j]
            moment[d] += column_sums[j] * b * b
            if of_rows:
                # ½b̄ = colsum(V)·b − Vᵀa
                rows_bar[d, first + j] = column_sums[j] * b - down[d, j]
