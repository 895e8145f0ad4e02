"""Machine code for the inducing points of one GP: what is needed before and after :mod:`candid.linalg.pass_kernels`.

Names are those of :mod:`candid.families.row_blocks`, points and rows those of :mod:`candid.linalg.block_kernels`.
"""

from __future__ import annotations

from typing import no_type_check

import numpy as np

from candid.linalg.block_kernels import add_gradients, write_covariances
from candid.linalg.machine_code import compiled, kept_on_disk
from candid.linalg.machine_factors import factorise, invert
from candid.linalg.machine_products import (
    multiply,
    multiply_lower,
    multiply_part,
    pack_lower,
    pack_lower_transposed,
    write_transpose,
)

__all__ = ["factorise_points", "finish_points", "scale_inputs", "turn_products", "write_turn"]


@kept_on_disk
@no_type_check
def scale_inputs(points, rows, rate, scaled, columns, row_columns):
    """(Z − c)∘rate, as rows and as columns, and (x − c)∘rate as columns, where c is the mean of the points of a GP.

    Features that fill ``scaled`` and columns up are zero.
    """
    n_points, n_features = points.shape[1:]
    for gp in range(points.shape[0]):
        for d in range(scaled.shape[2]):
            if d >= n_features:
                scaled[gp, :, d] = scaled.dtype.type(0)
                columns[gp, d] = scaled.dtype.type(0)
                row_columns[gp, d] = scaled.dtype.type(0)
                continue
            total = 0.0
            for i in range(n_points):
                total += points[gp, i, d]
            centre, factor = points.dtype.type(total / n_points), rate[gp, d]
            for i in range(n_points):
                scaled[gp, i, d] = columns[gp, d, i] = (points[gp, i, d] - centre) * factor
            own = row_columns[gp, d]
            for j in range(rows.shape[0]):
                own[j] = (rows[j, d] - centre) * factor


@kept_on_disk
@no_type_check
def factorise_points(routine, profile, points, columns, jitter, slope, lower, inverse):
    """Write w of the points among each other, L and L⁻¹, where L Lᵀ = k(Z, Z) + jitter·I; whether there is such an L.

    What is above the diagonal of L has no meaning. ``routine`` is the address of the one that factorises.
    """
    n_points = points.shape[0]
    write_covariances(profile, points, columns, 0, lower, slope, 0, n_points)
    for i in range(n_points):
        lower[i, i] += jitter
    if not factorise(routine, lower):
        return False
    invert(lower, inverse)
    return True


@kept_on_disk
@no_type_check
def write_turn(whitener, mean, deviations, root, share, turn, first, count):
    """Write some columns of [P; mᵀW] with P = 2(S − cI)W to ``turn``, which is zero elsewhere; c is the ``share``."""
    n_points, stop, two = whitener.shape[0], first + count, whitener.dtype.type(2)
    c, full, last = whitener.dtype.type(share), root.shape[0] > 0, turn[whitener.shape[0]]
    if full:
        for i in range(n_points):
            turn[i, first:stop] = whitener[i, first:stop]
        # RᵀW and R(RᵀW)
        multiply_lower(pack_lower_transposed(root), turn, first, count, turn, first, False)
        multiply(pack_lower(root), turn, first, count, turn, first)
        for i in range(n_points):
            _write_scaled(turn[i, first:stop], two, turn[i, first:stop])
    for i in range(first, n_points):
        length = min(stop, i + 1) - first
        own, row = turn[i, first : first + length], whitener[i, first : first + length]
        if full:
            _add_scaled(row, -two * c, own)
        else:
            shrunk = two * deviations[i] * deviations[i] if deviations.shape[0] > 0 else two * 0
            _write_scaled(row, shrunk - two * c, own)
        _add_scaled(row, mean[i], last[first : first + length])


@compiled
@no_type_check
def _write_scaled(row, factor, out):
    for j in range(out.shape[0]):
        out[j] = factor * row[j]


@compiled
@no_type_check
def _add_scaled(row, factor, out):
    for j in range(out.shape[0]):
        out[j] += factor * row[j]


@kept_on_disk
@no_type_check
def turn_products(root, products, of_root, weight, turned, root_bar, first, count):
    """Some columns of SG on and below the diagonal, written to ``turned``, and as many rows of R̄ = 2GR, for a full S.

    ``first`` is a row with which a tile starts. G, the first rows of ``products``, is complete on and below the
    diagonal only. ``of_root``, times its ``weight``, is added to R̄; it has no entries where it is zero.
    """
    n_points, stop, two = root.shape[0], first + count, root.dtype.type(2)
    # What is above the diagonal of G is below it, too.
    write_transpose(products, first, count, stop, turned, first)
    for i in range(first, n_points):
        own, row = turned[i], products[i]
        for j in range(first, min(stop, i + 1)):
            own[j] = row[j]
    # RᵀG
    multiply(pack_lower_transposed(root), turned, first, count, turned, first)
    write_transpose(turned[:, first:stop], 0, stop, count, root_bar[first:stop], 0)
    for i in range(first, stop):
        bar = root_bar[i]
        _write_scaled(bar[: i + 1], two, bar[: i + 1])
        if of_root.shape[0] > 0:
            _add_scaled(of_root[i, : i + 1], bar.dtype.type(weight), bar[: i + 1])
        bar[i + 1 :] = bar.dtype.type(0)
    multiply_part(pack_lower(root), turned, first, count, turned, first, first, 0, n_points)


@kept_on_disk
@no_type_check
def finish_points(
    whitener, mean, deviations, share, turned, products, products_apart, of_frame, weight, slope, points, columns,
    root_bar, points_bar, moment, first, count,
):  # fmt: skip
    """Add what some columns of K̄_zz, as G and m̄ in ``products`` make it, mean for points and lengthscales.

    ``turned`` is SG of a full S, and has no entries otherwise. For a diagonal one the gradients of deviations are
    written to ``root_bar``. ``of_frame`` is Ψ̄ up to its ``weight``, without entries where it is zero. ``columns`` are
    the points once more, as columns.
    """
    n_points, stop, dtype = whitener.shape[0], first + count, whitener.dtype
    full, diagonal, two, c = turned.shape[0] > 0, deviations.shape[0] > 0, dtype.type(2), dtype.type(share)
    mean_bar, inner = products[n_points], np.zeros((n_points, n_points), dtype)
    # Φ has the lower triangle of Ψ̄ − ĀAᵀ = Ψ̄ + 2(cI − S)G − 2A diag(e + cs)Aᵀ − m m̄ᵀ and half of its diagonal
    for i in range(first, n_points):
        own, row = inner[i, first : i + 1], products[i, first : i + 1]
        shrunk = deviations[i] * deviations[i] if diagonal else dtype.type(0)
        _write_scaled(row, two * (c - shrunk), own)
        if mean.shape[0] > 0:
            _add_scaled(mean_bar[first : i + 1], -mean[i], own)
        if full:
            _add_scaled(turned[i, first : i + 1], -two, own)
        if products_apart.shape[0] > 0:
            _add_scaled(products_apart[i, first : i + 1], dtype.type(-1), own)
        if of_frame.shape[0] > 0:
            _add_scaled(of_frame[i, first : i + 1], dtype.type(weight), own)
        inner[i, i] *= dtype.type(0.5)
        if diagonal and i < stop:
            root_bar[i] = two * deviations[i] * products[i, i]
    # K̄_zz = ½ L⁻ᵀ Σ L⁻¹, where Σ = Φ + Φᵀ; that is ½(H + Hᵀ), for which H = WᵀΦW will do
    gram_bar = np.zeros((n_points, count), dtype)
    multiply_lower(pack_lower(inner), whitener, first, count, gram_bar, 0, True)
    multiply(pack_lower_transposed(whitener), gram_bar, 0, count, gram_bar, 0)
    for j in range(count):
        # A point has no distance to itself; left in, its terms would cancel only up to rounding.
        gram_bar[first + j, j] = dtype.type(0)
    as_columns = np.empty_like(columns)
    add_gradients(gram_bar, slope, first, count, points, columns, first, points_bar, as_columns, moment)
    for i in range(first, stop):
        for d in range(points.shape[1]):
            points_bar[i, d] += as_columns[d, i]
