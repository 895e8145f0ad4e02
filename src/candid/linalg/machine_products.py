"""Products of matrices inside machine code.

They are made tile by tile (:mod:`candid.linalg.machine_tiles`). What tiles read is stored anew, one number after the
other: a left factor by :func:`pack_lower` and its like, once for many products, and of the right one each panel, which
has as many columns as a tile. Zeros of triangles are left out. Entries of a row are next to each other in every matrix,
but rows may be any distance apart.
"""

from __future__ import annotations

from typing import no_type_check

import numpy as np

from candid.linalg.machine_code import compiled
from candid.linalg.machine_tiles import SHAPE, add_tile, transpose

__all__ = [
    "add_lower_half",
    "add_tiles",
    "first_rows",
    "multiply",
    "multiply_lower",
    "multiply_part",
    "pack",
    "pack_lower",
    "pack_lower_transposed",
    "pack_solver",
    "pack_transposed",
    "panel_width",
    "solve_lower",
    "write_transpose",
]

BYTES, ROWS, VECTORS = SHAPE


@compiled
@no_type_check
def panel_width(item):
    """How many columns a tile has, of numbers of so many bytes."""
    return VECTORS * (BYTES // item)


@compiled
@no_type_check
def _empty_pack(n_rows, depth, dtype):
    """Room for tiles, and for the first place of the sum and the last that each of them needs."""
    n_tiles = -(-n_rows // ROWS)
    return np.empty((n_tiles, depth * ROWS), dtype), np.empty((n_tiles, 2), np.int64)


@compiled
@no_type_check
def pack(matrix):
    """A matrix as a left factor."""
    return _pack(matrix, False)


@compiled
@no_type_check
def pack_lower(lower):
    """A lower triangle as a left factor; what is above its diagonal is not read."""
    return _pack(lower, True)


@compiled
@no_type_check
def pack_transposed(matrix, depth, n):
    """The transpose of the first ``depth`` rows and n columns of a matrix as a left factor."""
    return _pack_transposed(matrix, depth, n, False)


@compiled
@no_type_check
def pack_lower_transposed(lower):
    """Lᵀ as a left factor; what is above the diagonal of L is not read."""
    return _pack_transposed(lower, lower.shape[0], lower.shape[0], True)


@compiled
@no_type_check
def _pack(matrix, triangle):
    (n_rows, depth), nothing = matrix.shape, matrix.dtype.type(0)
    tiles, reach = _empty_pack(n_rows, depth, matrix.dtype)
    for tile in range(tiles.shape[0]):
        own, start = tiles[tile], tile * ROWS
        stop = min(start + ROWS, n_rows) if triangle else depth
        reach[tile, 0], reach[tile, 1] = 0, stop
        for row in range(ROWS):
            i = start + row
            length = 0 if i >= n_rows else i + 1 if triangle else depth
            for k in range(length):
                own[k * ROWS + row] = matrix[i, k]
            for k in range(length, stop):
                own[k * ROWS + row] = nothing
    return tiles, reach, n_rows


@compiled
@no_type_check
def _pack_transposed(matrix, depth, n, triangle):
    nothing = matrix.dtype.type(0)
    tiles, reach = _empty_pack(n, depth, matrix.dtype)
    for tile in range(tiles.shape[0]):
        own, start = tiles[tile], tile * ROWS
        begin, most = start if triangle else 0, min(n - start, ROWS)
        reach[tile, 0], reach[tile, 1] = begin, depth
        if most == ROWS:
            # How many they are is known in advance: so they are copied by whole vectors.
            for k in range(begin, depth):
                row, at = matrix[k], (k - begin) * ROWS
                for i in range(ROWS):
                    own[at + i] = row[start + i]
        else:
            for k in range(begin, depth):
                row, at = matrix[k], (k - begin) * ROWS
                for i in range(most):
                    own[at + i] = row[start + i]
                for i in range(most, ROWS):
                    own[at + i] = nothing
        for k in range(begin, min(start + ROWS, depth) if triangle else begin):
            for i in range(k - start + 1, ROWS):
                own[(k - begin) * ROWS + i] = nothing
    return tiles, reach, n


@compiled
@no_type_check
def first_rows(factor, count):
    """So many rows of a left factor."""
    tiles, reach, _ = factor
    n_tiles = -(-count // ROWS)
    return tiles[:n_tiles], reach[:n_tiles], count


@compiled
@no_type_check
def multiply(factor, x, first, count, out, at):
    """Write products of a left factor with columns of X, ``count`` from ``first`` on, to ``out`` from column ``at`` on.

    These may be the columns of X themselves. Further rows of X and ``out`` are left alone.
    """
    if factor[2] > 0:
        multiply_part(factor, x, first, count, out, at, 0, 0, factor[1][-1, 1])


@compiled
@no_type_check
def multiply_part(factor, x, first, count, out, at, top, begin, depth):
    """The same for rows of the product from ``top`` on, where a tile starts, and for the terms of sums in between."""
    tiles, reach, n_rows = factor
    like, width, item, step = x.dtype.type(0), panel_width(x.itemsize), x.itemsize, out.strides[0] // x.itemsize
    panel = np.empty(depth * width, x.dtype)
    for start in range(0, count, width):
        columns = min(width, count - start)
        for k in range(begin, depth):
            row, own = x[k, first + start : first + start + columns], panel[k * width : k * width + columns]
            for j in range(columns):
                own[j] = row[j]
            panel[k * width + columns : (k + 1) * width] = like
        for tile in range(top // ROWS, tiles.shape[0]):
            i, offset = tile * ROWS, reach[tile, 0]
            k = max(offset, begin)
            add_tile(
                like, tiles[tile].ctypes.data + (k - offset) * ROWS * item, ROWS,
                panel.ctypes.data + k * width * item, min(reach[tile, 1], depth) - k,
                out.ctypes.data + i * out.strides[0] + (at + start) * item, step, n_rows - i, columns, False,
            )  # fmt: skip


@compiled
@no_type_check
def pack_solver(lower, inverse):
    """What :func:`solve_lower` multiplies with: −L, but for squares of a tile's rows on the diagonal, and L⁻¹ there."""
    n = lower.shape[0]
    (tiles, _), (squares, _) = _empty_pack(n, n, lower.dtype), _empty_pack(n, ROWS, lower.dtype)
    for tile in range(tiles.shape[0]):
        own, square, start = tiles[tile], squares[tile], tile * ROWS
        stop = min(start + ROWS, n)
        for row in range(stop - start):
            for k in range(start):
                own[k * ROWS + row] = -lower[start + row, k]
            for k in range(ROWS):
                square[k * ROWS + row] = inverse[start + row, start + k] if k <= row else lower.dtype.type(0)
        for k in range(start):
            own[k * ROWS + stop - start : (k + 1) * ROWS] = lower.dtype.type(0)
        for k in range(ROWS):
            square[k * ROWS + stop - start : (k + 1) * ROWS] = lower.dtype.type(0)
    return tiles, squares, n


@compiled
@no_type_check
def solve_lower(solver, x, first, count, out, at):
    """Write L⁻¹X for columns of X, ``count`` from ``first`` on, to ``out`` from column ``at`` on.

    These may be the columns of X themselves. Tile by tile, A_I = (L⁻¹)_II (X_I − L_I< A_<): that is as much work as a
    product with L⁻¹, and as accurate as a substitution, which that product is not where L is ill conditioned.
    """
    tiles, squares, n = solver
    like, width, item, step = x.dtype.type(0), panel_width(x.itemsize), x.itemsize, out.strides[0] // x.itemsize
    panel = np.empty((n, width), x.dtype)
    for start in range(0, count, width):
        columns = min(width, count - start)
        for tile in range(tiles.shape[0]):
            i = tile * ROWS
            stop = min(i + ROWS, n)
            for k in range(i, stop):
                row, own = x[k, first + start : first + start + columns], panel[k]
                for j in range(columns):
                    own[j] = row[j]
                own[columns:] = like
            here, there = panel.ctypes.data + i * width * item, out.ctypes.data + i * out.strides[0]
            add_tile(like, tiles[tile].ctypes.data, ROWS, panel.ctypes.data, i, here, width, n - i, width, True)
            # Not in the same place: a tile is read and written at once.
            add_tile(
                like, squares[tile].ctypes.data, ROWS, here, stop - i,
                there + (at + start) * item, step, n - i, columns, False,
            )  # fmt: skip
            for k in range(i, stop):
                row, own = out[k, at + start : at + start + columns], panel[k]
                for j in range(columns):
                    own[j] = row[j]


@compiled
@no_type_check
def multiply_lower(factor, x, first, count, out, at, lower_half):
    """:func:`multiply` for columns of a lower triangle X, panel by panel: what is above the diagonal of these is zero.

    Perhaps only the ``lower_half`` of the product, too, is of interest. ``first`` is a row with which a tile starts.
    """
    width = panel_width(x.itemsize)
    for start in range(first, first + count, width):
        columns, top = min(width, first + count - start), start if lower_half else 0
        multiply_part(factor, x, start, columns, out, at + start - first, top, start, x.shape[0])


@compiled
@no_type_check
def write_transpose(x, first, count, depth, out, at):
    """Write ``count`` rows of X from ``first`` on, ``depth`` entries of each, to columns of ``out`` from ``at`` on."""
    item, like = x.itemsize, x.dtype.type(0)
    length, step, out_step = BYTES // item, x.strides[0] // item, out.strides[0] // item
    for i in range(0, count, length):
        for j in range(0, depth, length):
            transpose(
                like, x.ctypes.data + (first + i) * x.strides[0] + j * item, step,
                out.ctypes.data + j * out.strides[0] + (at + i) * item, out_step, count - i, depth - j, count - i,
            )  # fmt: skip


@compiled
@no_type_check
def _panels_of_transpose(x, first, count):
    """Xᵀ as a right factor, for ``count`` columns of X from ``first`` on; zeros fill up the last panel."""
    n, item, like, width = x.shape[0], x.itemsize, x.dtype.type(0), panel_width(x.itemsize)
    length = BYTES // item
    panels = np.empty((-(-n // width), count * width), x.dtype)
    for panel in range(panels.shape[0]):
        for i in range(0, width, length):
            row = panel * width + i
            for j in range(0, count, length):
                transpose(
                    like, x.ctypes.data + row * x.strides[0] + (first + j) * item, x.strides[0] // item,
                    panels[panel].ctypes.data + (j * width + i) * item, width, n - row, count - j, width,
                )  # fmt: skip
    return panels


@compiled
@no_type_check
def add_tiles(left, left_step, panel, depth, out, top, count):
    """Add products of columns with those of a panel to ``count`` rows of ``out`` from ``top`` on, which is as wide.

    Sums are over ``depth`` rows. ``left`` is the address of the first of so many columns; its rows are ``left_step``
    numbers apart.
    """
    width, item = panel.shape[1], panel.itemsize
    for i in range(0, count, ROWS):
        add_tile(
            panel.dtype.type(0), left + i * item, left_step, panel.ctypes.data, depth,
            out.ctypes.data + (top + i) * out.strides[0], out.strides[0] // item, count - i, width, True,
        )  # fmt: skip


@compiled
@no_type_check
def add_lower_half(total, x, scale, first, count):
    """Add X diag(s) Xᵀ to ``total`` on and below the diagonal; what is above it has no meaning afterwards.

    The product is over ``count`` columns of X from ``first`` on, and as many entries of s from the beginning.
    """
    n, item, like, width = x.shape[0], x.itemsize, x.dtype.type(0), panel_width(x.itemsize)
    panels, left = _panels_of_transpose(x, first, count), np.empty(count * ROWS, x.dtype)
    for i in range(0, n, ROWS):
        own, offset, stop = panels[i // width], i % width, min(i + ROWS, n)
        for c in range(count):
            for row in range(ROWS):
                left[c * ROWS + row] = scale[c] * own[c * width + offset + row]
        for j in range(0, stop, width):
            add_tile(
                like, left.ctypes.data, ROWS, panels[j // width].ctypes.data, count,
                total.ctypes.data + i * total.strides[0] + j * item, total.strides[0] // item, n - i, stop - j, True,
            )  # fmt: skip
