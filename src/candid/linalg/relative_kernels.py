"""Machine code for :mod:`candid.linalg.relative`: products of triangles, of which only a triangle has a meaning.

Each member of a crew takes every so many panels of columns: the first ones are longer than the last. What is above the
diagonal of an argument is not read, and of a product it has no meaning. Matrices are stored row after row.
"""

from __future__ import annotations

from typing import no_type_check

import numpy as np

from candid.linalg.machine_code import compiled, kept_on_disk
from candid.linalg.machine_products import (
    multiply_part,
    pack_lower,
    pack_lower_transposed,
    panel_width,
    write_transpose,
)

__all__ = ["lower_times_lower", "lower_times_transposed", "transposed_times_lower"]


@kept_on_disk
@no_type_check
def lower_times_lower(lower, other, product, member, members):
    """L M."""
    _multiply_lower(pack_lower(lower), other, product, member, members)


@kept_on_disk
@no_type_check
def transposed_times_lower(lower, x, product, member, members):
    """Lᵀ X."""
    _multiply_lower(pack_lower_transposed(lower), x, product, member, members)


@compiled
@no_type_check
def _multiply_lower(factor, x, product, member, members):
    """What is on and below the diagonal of the product of a left factor with the lower triangle of X."""
    n, width = x.shape[0], panel_width(x.itemsize)
    panel = np.empty((n, width), x.dtype)
    for first in range(member * width, n, members * width):
        count = min(width, n - first)
        for k in range(first, n):
            own, row, full = panel[k], x[k, first : first + count], min(k - first + 1, count)
            for j in range(full):
                own[j] = row[j]
            for j in range(full, count):
                own[j] = x.dtype.type(0)
        multiply_part(factor, panel, 0, count, product, first, first, first, n)


@kept_on_disk
@no_type_check
def lower_times_transposed(x, lower, product, member, members):
    """X Lᵀ."""
    n, width = lower.shape[0], panel_width(lower.itemsize)
    factor, panel = pack_lower(x), np.empty((n, width), lower.dtype)
    for first in range(member * width, n, members * width):
        count = min(width, n - first)
        write_transpose(lower, first, count, first + count, panel, 0)
        for k in range(first + 1, first + count):
            for j in range(k - first):
                panel[k, j] = lower.dtype.type(0)
        multiply_part(factor, panel, 0, count, product, first, first, 0, first + count)
