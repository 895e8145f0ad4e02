"""Machine code for many rows of one GP with inducing points: a strip of rows stays in cache from its covariances on.

What :mod:`candid.families.row_blocks` does with a block of rows in a dozen operations, each of which goes over all of
the block, is here one function: for the moments of the rows, and for their gradients. Names are those of that module,
points and rows those of :mod:`candid.linalg.block_kernels`; ``blas`` are addresses of routines.
"""

from __future__ import annotations

from typing import no_type_check

import numpy as np

from candid.linalg.block_kernels import add_gradients, add_moments, add_squares, write_covariances
from candid.linalg.machine_blas import add_lower_half, lower_times, products_with, transposed_lower_times
from candid.linalg.machine_code import compiled, kept_on_disk

__all__ = ["evaluate_rows", "pull_back_rows"]

# Entries of a strip, and fewest and most rows in it.
STRIP = 2**17
FEWEST, MOST = 64, 512


@compiled
@no_type_check
def _width(n_points, n_rows):
    """How many rows a strip has."""
    return min(max(min(STRIP // n_points, MOST), FEWEST), n_rows)


@kept_on_disk
@no_type_check
def evaluate_rows(blas, profile, points, rows, first, whitener, mean, deviations, root, features, slope, moments):
    """Write A = W K and w of rows from ``first`` on, and add their moments.

    S = diag(deviations)², S = R Rᵀ with a lower-triangular ``root``, or S = 0 where both have no entries.
    """
    n_points, n_rows = features.shape
    width, variances = _width(n_points, n_rows), deviations * deviations
    turned = np.empty((root.shape[0], width), features.dtype)
    for at in range(0, n_rows, width):
        count = min(width, n_rows - at)
        means, squares, spreads = moments[0, at : at + count], moments[1, at : at + count], moments[2, at : at + count]
        write_covariances(profile, points, rows, first + at, features, slope, at, count)
        lower_times(blas, whitener, features, at, count, 0)
        add_moments(features, at, count, mean, variances, means, squares, spreads)
        if root.shape[0] > 0:
            # T = RᵀA
            for i in range(n_points):
                turned[i, :count] = features[i, at : at + count]
            transposed_lower_times(blas, root, turned, 0, count)
            add_squares(turned, 0, count, spreads)


@kept_on_disk
@no_type_check
def pull_back_rows(
    blas, points, rows, first, whitener, turn, full, of_mean, of_spread, apart, features, slope,
    products, products_apart, points_bar, rows_bar, moment,
):  # fmt: skip
    """Add what the gradients of the moments mean for G and m̄ (``products``), for points, rows and lengthscales.

    ``turn`` is [P, 0; mᵀW, 0], which is a lower triangle unless S is ``full``. ``apart``, e + s, has no entries where
    it is zero.
    """
    n_points, n_rows = features.shape
    width = _width(n_points, n_rows)
    weighted = np.zeros((turn.shape[0], width), features.dtype)
    cross_bar = np.empty((n_points if full else 0, width), features.dtype)
    for at in range(0, n_rows, width):
        count = min(width, n_rows - at)
        # [A diag(s); hᵀ]
        for i in range(n_points):
            own, row = weighted[i], features[i, at : at + count]
            for j in range(count):
                own[j] = row[j] * of_spread[at + j]
        weighted[n_points, :count] = of_mean[at : at + count]
        weighted[n_points + 1 :] = features.dtype.type(0)
        add_lower_half(blas, products, weighted, features, at, count)
        # K̄_zx = [P; mᵀW]ᵀ[A diag(s); hᵀ]
        if full:
            products_with(blas, turn, weighted, count, cross_bar)
            bar = cross_bar
        else:
            transposed_lower_times(blas, turn, weighted, 0, count)
            bar = weighted
        if apart.shape[0] > 0:
            _add_apart(blas, whitener, apart, features, at, count, products_apart, bar)
        add_gradients(bar, slope, at, count, points, rows, first + at, points_bar, rows_bar, moment)


@compiled
@no_type_check
def _add_apart(blas, whitener, apart, features, at, count, products, cross_bar):
    """2A diag(e + s)Aᵀ and 2WᵀA diag(e + s), of those rows only where e + s is not zero."""
    n_points, number = features.shape[0], 0
    some = np.empty(count, np.int64)
    for j in range(count):
        if apart[at + j] != 0:
            some[number] = j
            number += 1
    if number == 0:
        return
    own, others = np.empty((n_points, number), features.dtype), np.empty((n_points, number), features.dtype)
    for i in range(n_points):
        for j in range(number):
            a = features[i, at + some[j]]
            own[i, j], others[i, j] = a, a * (2 * apart[at + some[j]])
    add_lower_half(blas, products, others, own, 0, number)
    transposed_lower_times(blas, whitener, others, 0, number)
    for i in range(n_points):
        for j in range(number):
            cross_bar[i, some[j]] += others[i, j]
