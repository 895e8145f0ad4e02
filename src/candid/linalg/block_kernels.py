"""Machine code for blocks of rows under one stationary kernel: each pass over an M×n matrix does all it can.

Points are scaled and stored by rows, M×D, and rows of the table as columns, D×N, of which a block starts at ``first``.
D is a multiple of four; what fills it up is zero. A pass may be over a few columns of a wider matrix: ``count`` of them
from ``at`` on.
"""

from __future__ import annotations

from typing import no_type_check

import numpy as np

from candid.linalg.machine_code import compiled, compiled_sums, kept_on_disk
from candid.linalg.row_kernels import covariances, squared_distances

__all__ = [
    "add_gradients",
    "add_moments",
    "add_products",
    "add_squares",
    "block_covariances",
    "block_gradients",
    "block_moments",
    "block_squares",
    "write_covariances",
]

# Rows whose squares are summed before they join the rest: a long sum would swallow what is small, and be too small.
TOGETHER = 16


@compiled
@no_type_check
def write_covariances(profile, points, rows, first, k, w, at, count):
    """Covariances k of points and rows, and their slopes w."""
    # The decay of anything farther away is nothing in this precision.
    q, largest = np.empty(count, k.dtype), k.dtype.type(87 if k.itemsize == 4 else 708)
    for i in range(k.shape[0]):
        squared_distances(rows, first, points[i], q)
        covariances(profile, q, largest, k[i, at : at + count], w[i, at : at + count])


@compiled
@no_type_check
def add_moments(features, at, count, mean, variances, means, squares, spreads):
    """Add Σ m a, Σ a² and Σ s a² over the entries a of each column, with means m and variances s, which may be none."""
    n_points, nothing = features.shape[0], features.dtype.type(0)
    part = np.empty((3, count), features.dtype)
    for start in range(0, n_points, TOGETHER):
        part[:] = nothing
        for i in range(start, min(start + TOGETHER, n_points)):
            m, s = mean[i], variances[i] if variances.shape[0] > 0 else nothing
            row = features[i, at : at + count]
            for j in range(count):
                a = row[j]
                square = a * a
                part[0, j] += m * a
                part[1, j] += square
                part[2, j] += s * square
        for j in range(count):
            means[j] += part[0, j]
            squares[j] += part[1, j]
            spreads[j] += part[2, j]


@compiled
@no_type_check
def add_squares(x, at, count, squares):
    """Add Σ a² over the entries a of each column."""
    part = np.empty(count, x.dtype)
    for start in range(0, x.shape[0], TOGETHER):
        part[:] = x.dtype.type(0)
        for i in range(start, min(start + TOGETHER, x.shape[0])):
            row = x[i, at : at + count]
            for j in range(count):
                part[j] += row[j] * row[j]
        for j in range(count):
            squares[j] += part[j]


@compiled_sums
@no_type_check
def add_products(x, at, factors, sums):
    """Add Σ_j x_ij h_j for every row i, where the sum is over some columns from ``at`` on."""
    for i in range(x.shape[0]):
        row, total = x[i, at : at + factors.shape[0]], x.dtype.type(0)
        for j in range(factors.shape[0]):
            total += row[j] * factors[j]
        sums[i] += total


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


@compiled
@no_type_check
def add_gradients(cross_bar, slope, at, count, points, rows, first, points_bar, rows_bar, moment):
    """For q_ij = ‖a_i − b_j‖² with the gradient V = slope∘cross_bar: ½b̄ to ``rows_bar``, and add ½ā and ½(Σ aā + Σ bb̄).

    The two sums are over points, and over the rows of this block. If ``rows_bar`` has no entries, ½b̄ is not asked for.
    ``cross_bar`` has these rows only, from its first column on.
    """
    n_points, n_features, dtype = slope.shape[0], points.shape[1], slope.dtype
    v, sums, ones = np.zeros((4, count), dtype), np.empty(4, dtype), np.ones(4, dtype)
    entries, row_sums = np.zeros((n_features, 4), dtype), np.empty(4, dtype)
    all_ones, column_sums, of_rows = np.ones(count, dtype), np.zeros(count, dtype), rows_bar.shape[1] > 0
    down = np.zeros((n_features, count if of_rows else 0), dtype)
    for start in range(0, n_points, 4):
        taken = min(4, n_points - start)
        for i in range(4):
            if i < taken:
                own, bar, w = v[i], cross_bar[start + i], slope[start + i, at : at + count]
                for j in range(count):
                    own[j] = bar[j] * w[j]
            else:
                v[i] = dtype.type(0)
            for d in range(n_features):
                entries[d, i] = points[start + i, d] if i < taken else dtype.type(0)
        # rowsum(V) and colsum(V)
        products_of_four(v, all_ones, ones, row_sums, column_sums)
        for d in range(n_features):
            # V b and Vᵀa
            if of_rows:
                products_of_four(v, rows[d, first:], entries[d], sums, down[d])
            else:
                sums_of_four(v, rows[d, first:], sums)
            for i in range(taken):
                # ½ā = rowsum(V)·a − V b,   ½(Σ aā + Σ bb̄) = Σ_i a(½ā − V b) + Σ_j colsum(V) b²
                half = row_sums[i] * entries[d, i] - sums[i]
                points_bar[start + i, d] += half
                moment[d] += entries[d, i] * (half - sums[i])
    for d in range(n_features):
        for j in range(count):
            b = rows[d, first + j]
            moment[d] += column_sums[j] * b * b
            if of_rows:
                # ½b̄ = colsum(V)·b − Vᵀa
                rows_bar[d, first + j] = column_sums[j] * b - down[d, j]


@kept_on_disk
@no_type_check
def block_covariances(profile, points, rows, first, k, w):
    """Covariances k of points and rows, and their slopes w."""
    write_covariances(profile, points, rows, first, k, w, 0, k.shape[1])


@kept_on_disk
@no_type_check
def block_moments(features, mean, variances, means, squares, spreads):
    """:func:`add_moments` of a whole matrix."""
    add_moments(features, 0, features.shape[1], mean, variances, means, squares, spreads)


@kept_on_disk
@no_type_check
def block_squares(x, squares):
    """:func:`add_squares` of a whole matrix."""
    add_squares(x, 0, x.shape[1], squares)


@kept_on_disk
@no_type_check
def block_gradients(cross_bar, slope, points, rows, first, points_bar, rows_bar, moment):
    """:func:`add_gradients` of a whole matrix."""
    add_gradients(cross_bar, slope, 0, slope.shape[1], points, rows, first, points_bar, rows_bar, moment)
