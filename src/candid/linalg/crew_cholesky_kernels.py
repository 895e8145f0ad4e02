"""Machine code for :mod:`candid.linalg.crew_cholesky`: what one member of a crew does.

A matrix is stored as panels, a group of rows each: its entry k, r is the one in column k of the group's row r. Groups
belong to members in turn.
"""

from __future__ import annotations

from typing import no_type_check

import numpy as np

from candid.linalg.machine_code import compiled, kept_on_disk
from candid.linalg.machine_factors import factorise, invert
from candid.linalg.machine_products import (
    add_tiles,
    multiply,
    pack_lower,
    pack_lower_transposed,
    panel_width,
    write_transpose,
)

__all__ = ["advance", "group_size", "solve_back"]


@kept_on_disk
@no_type_check
def group_size(item):
    """How many rows are a group, if numbers have so many bytes."""
    return panel_width(item)


@kept_on_disk
@no_type_check
def advance(routine, panels, start, inverse, rows, member, members):
    """Take the factor from column ``start`` on as many columns further as ``inverse`` has rows; whether there is one.

    Of the square on the diagonal, ``inverse`` gets the inverse factor D⁻¹; rows X below it become X D⁻ᵀ, in ``panels``
    and, unless they are behind the last column, also row by row in ``rows``. What is still to be done has the opposite
    sign.
    """
    (_, n, width), size = panels.shape, inverse.shape[0]
    stop, first, behind = start + size, start // width, (start + size) // width
    # Nobody overwrites what is on the diagonal, so that each member can have its own.
    square, lower = np.empty((size, size), panels.dtype), np.empty((size, size), panels.dtype)
    corner = np.empty((size, width), panels.dtype)
    for group in range(first, behind):
        for k in range(size):
            for r in range(width):
                corner[k, r] = panels[group, start + k, r]
        for other in range(first, group + 1):
            add_tiles(panels[other].ctypes.data, width, panels[group], start, corner, (other - first) * width, width)
        write_transpose(corner, 0, size, width, lower[(group - first) * width :], 0)
    _negate(lower)
    if not factorise(routine, lower):
        return False
    invert(lower, square)
    if member == 0:
        for i in range(size):
            for j in range(size):
                inverse[i, j] = square[i, j]
    _negate(square)
    whiten = pack_lower(square)
    for group in range(behind, panels.shape[0]):
        if group % members == member:
            own = panels[group]
            for other in range(first, behind):
                add_tiles(panels[other].ctypes.data, width, own, start, own, other * width, width)
            multiply(whiten, own[start:stop], 0, width, own[start:stop], 0)
            if group * width < n:
                write_transpose(own, start, size, width, rows[group * width :], start)
    return True


@kept_on_disk
@no_type_check
def solve_back(panels, inverses, rows, solved, first, stop):
    """Write Y = X L⁻¹ for some groups of rows X behind the factor L, whose squares are ``inverses``."""
    (n, block), width = inverses.shape, panels.shape[2]
    part = np.empty((block, width), panels.dtype)
    for group in range(first, stop):
        own = panels[n // width + group]
        for start in range((n - 1) // block * block, -1, -block):
            size = min(block, n - start)
            # Yᵀ = D⁻ᵀXᵀ, and that times the rows of L is subtracted from what is before it
            multiply(pack_lower_transposed(inverses[start : start + size, :size]), own[start:], 0, width, part, 0)
            for r in range(min(width, solved.shape[0] - group * width)):
                for k in range(size):
                    solved[group * width + r, start + k] = part[k, r]
            _negate(part)
            add_tiles(rows[start].ctypes.data, rows.shape[1], part, size, own, 0, start)


@compiled
@no_type_check
def _negate(matrix):
    for i in range(matrix.shape[0]):
        for j in range(matrix.shape[1]):
            matrix[i, j] = -matrix[i, j]
