"""Machine code for many rows of one GP with inducing points: a strip of rows stays in cache from its covariances on.

What :mod:`candid.families.row_blocks` does with a block of rows in a dozen operations, each of which goes over all of
the block, is here one function: for the moments of the rows, and for their gradients. Names are those of that module,
points and rows those of :mod:`candid.linalg.block_kernels`.
"""

from __future__ import annotations

from typing import no_type_check

import numpy as np

from candid.linalg.block_kernels import add_gradients, add_moments, add_products, add_squares, write_covariances
from candid.linalg.machine_code import compiled, kept_on_disk
from candid.linalg.machine_products import (
    add_lower_half,
    multiply,
    pack_lower_transposed,
    pack_solver,
    pack_transposed,
    panel_width,
    solve_lower,
)

__all__ = ["evaluate_rows", "pull_back_rows"]

# Entries of a strip, and the most panels in it.
STRIP, MOST = 2**17, 10


@compiled
@no_type_check
def _width(n_points, item):
    """How many rows a strip has: those of whole panels of products."""
    panel = panel_width(item)
    return panel * min(max(STRIP // (n_points * panel), 1), MOST)


@kept_on_disk
@no_type_check
def evaluate_rows(profile, points, rows, first, lower, whitener, mean, deviations, root, features, slope, moments):
    """Write A = L⁻¹K and w of rows from ``first`` on, and add their moments.

    S = diag(deviations)², S = R Rᵀ with a lower-triangular ``root``, or S = 0 where both have no entries. Where the
    ``mean`` has none either, there is nothing but what is explained.
    """
    n_points, n_rows = features.shape
    width, variances, full = _width(n_points, features.itemsize), np.empty_like(deviations), root.shape[0] > 0
    for i in range(deviations.shape[0]):
        variances[i] = deviations[i] * deviations[i]
    whiten, turn = pack_solver(lower, whitener), pack_lower_transposed(root)
    turned = np.empty((root.shape[0], width), features.dtype)
    for at in range(0, n_rows, width):
        count = min(width, n_rows - at)
        means, squares, spreads = moments[0, at : at + count], moments[1, at : at + count], moments[2, at : at + count]
        write_covariances(profile, points, rows, first + at, features, slope, at, count)
        solve_lower(whiten, features, at, count, features, at)
        if mean.shape[0] > 0:
            add_moments(features, at, count, mean, variances, means, squares, spreads)
        else:
            add_squares(features, at, count, squares)
        if full:
            # T = RᵀA
            multiply(turn, features, at, count, turned, 0)
            add_squares(turned, 0, count, spreads)


@kept_on_disk
@no_type_check
def pull_back_rows(
    points, rows, first, whitener, turn, turn_factor, mean_turned, full, of_mean, of_spread, apart, of_cross,
    features, slope, products, products_apart, points_bar, rows_bar, moment,
):  # fmt: skip
    """Add what the gradients of the moments mean for G and m̄ (``products``), for points, rows and lengthscales.

    ``turn`` is P up to ``turn_factor``, perhaps with more rows and columns; it is a lower triangle unless S is
    ``full``. ``mean_turned`` is mᵀW. It, ``apart``, e + cs, and ``of_cross``, what is to be added to K̄_zx of all
    rows, have no entries where they are zero.
    """
    n_points, n_rows = features.shape
    width, factor = _width(n_points, features.itemsize), features.dtype.type(turn_factor)
    with_mean = mean_turned.shape[0] > 0
    turn_back = pack_transposed(turn, n_points, n_points) if full else pack_lower_transposed(turn[:n_points, :n_points])
    whiten_back = pack_lower_transposed(whitener[: n_points if apart.shape[0] > 0 else 0])
    cross_bar = np.empty((n_points, width), features.dtype)
    for at in range(0, n_rows, width):
        count = min(width, n_rows - at)
        h, s = of_mean[at : at + count], of_spread[at : at + count]
        # G and m̄
        add_lower_half(products, features, s, at, count)
        if with_mean:
            add_products(features, at, h, products[n_points])
        # K̄_zx = PᵀA diag(s) + (mᵀW)ᵀhᵀ
        multiply(turn_back, features, at, count, cross_bar, 0)
        for i in range(n_points):
            own, m = cross_bar[i], mean_turned[i] if with_mean else features.dtype.type(0)
            for j in range(count):
                own[j] = own[j] * (factor * s[j]) + m * h[j]
        if of_cross.shape[0] > 0:
            for i in range(n_points):
                own, more = cross_bar[i], of_cross[i, first + at : first + at + count]
                for j in range(count):
                    own[j] += more[j]
        if apart.shape[0] > 0:
            _add_apart(whiten_back, apart, features, at, count, products_apart, cross_bar)
        add_gradients(cross_bar, slope, at, count, points, rows, first + at, points_bar, rows_bar, moment)


@compiled
@no_type_check
def _add_apart(whiten_back, apart, features, at, count, products, cross_bar):
    """2A diag(e + cs)Aᵀ and 2WᵀA diag(e + cs), of those rows only where e + cs is not zero."""
    n_points, number = features.shape[0], 0
    some = np.empty(count, np.int64)
    for j in range(count):
        if apart[at + j] != 0:
            some[number] = j
            number += 1
    if number == 0:
        return
    own, twice = np.empty((n_points, number), features.dtype), np.empty(number, features.dtype)
    for j in range(number):
        twice[j] = 2 * apart[at + some[j]]
        for i in range(n_points):
            own[i, j] = features[i, at + some[j]]
    add_lower_half(products, own, twice, 0, number)
    multiply(whiten_back, own, 0, number, own, 0)
    for i in range(n_points):
        for j in range(number):
            cross_bar[i, some[j]] += own[i, j] * twice[j]
