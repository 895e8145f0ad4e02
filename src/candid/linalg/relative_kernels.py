"""Machine code for :mod:`candid.linalg.relative_divergence`, whose names these are.

Each member of a crew takes every so many panels of columns, of which the first ones are longer than the last; the
longest one is the last member's. What is above the diagonals of J, R and R' is not read, and of results without a word
about it it has no meaning. Matrices are stored row after row.
"""

from __future__ import annotations

from typing import no_type_check

import numpy as np

from candid.linalg.machine_code import compiled, dot, kept_on_disk
from candid.linalg.machine_products import (
    multiply_part,
    pack_lower,
    pack_lower_transposed,
    panel_width,
    write_transpose,
)

__all__ = ["pull_back_root", "pull_back_turn", "turn_root", "turn_vectors", "turn_vectors_back"]


@kept_on_disk
@no_type_check
def turn_vectors(whiteners, others, vectors, results):
    """L⁻¹(J v) for each GP."""
    size = vectors.shape[1]
    product = np.empty(size, vectors.dtype)
    for gp in range(vectors.shape[0]):
        for i in range(size):
            product[i] = dot(others[gp, i, : i + 1], vectors[gp])
        for i in range(size):
            results[gp, i] = dot(whiteners[gp, i, : i + 1], product)


@kept_on_disk
@no_type_check
def turn_vectors_back(whiteners, others, vectors, results):
    """Jᵀ(L⁻ᵀv) for each GP."""
    size = vectors.shape[1]
    product = np.empty(size, vectors.dtype)
    for gp in range(vectors.shape[0]):
        for first, given, result in ((whiteners[gp], vectors[gp], product), (others[gp], product, results[gp])):
            result[:] = result.dtype.type(0)
            for i in range(size):
                row, factor = first[i], given[i]
                for j in range(i + 1):
                    result[j] += factor * row[j]


@kept_on_disk
@no_type_check
def turn_root(whitener, other, root, turned, member, members):
    """R' = L⁻¹(J R)."""
    n, width = root.shape[0], panel_width(root.itemsize)
    whiten, multiply_other = pack_lower(whitener), pack_lower(other)
    panel, product = np.empty((n, width), root.dtype), np.empty((n, width), root.dtype)
    for first in range((members - 1 - member) * width, n, members * width):
        count = min(width, n - first)
        _write_columns(root, first, count, panel)
        multiply_part(multiply_other, panel, 0, count, product, 0, first, first, n)
        multiply_part(whiten, product, 0, count, turned, first, first, first, n)


@kept_on_disk
@no_type_check
def pull_back_turn(whitener, other, root, turned_root, turned, of_frame, of_root, member, members):
    """Ψ̄, and R̄ with zeros above the diagonal."""
    n, width, one = root.shape[0], panel_width(root.itemsize), root.dtype.type(1)
    whiten_back, multiply_other = pack_lower_transposed(whitener), pack_lower_transposed(other)
    square, panel = pack_lower(turned_root), np.empty((n, width), root.dtype)
    for first in range((members - 1 - member) * width, n, members * width):
        count = min(width, n - first)
        # P = Jᵀ(L⁻ᵀR')
        _write_columns(turned_root, first, count, panel)
        multiply_part(whiten_back, panel, 0, count, panel, 0, first, first, n)
        multiply_part(multiply_other, panel, 0, count, of_root, first, first, first, n)
        for i in range(first + count):
            of_root[i, max(first, i + 1) : first + count] = root.dtype.type(0)
            if i >= first:
                of_root[i, i] -= one / root[i, i]
        # R'R'ᵀ
        _write_rows(turned_root, first, count, panel)
        multiply_part(square, panel, 0, count, of_frame, first, first, 0, first + count)
        for i in range(first, n):
            own, m = of_frame[i], turned[i]
            for j in range(first, min(i + 1, first + count)):
                own[j] = -(own[j] + m * turned[j])
            if i < first + count:
                own[i] += one


@kept_on_disk
@no_type_check
def pull_back_root(of_root, root, mean, mean_bar, of_other_frame, member, members):
    """Ψ̄' = R̄ Rᵀ + m̄ mᵀ, which is the same."""
    n, width = root.shape[0], panel_width(root.itemsize)
    factor, panel = pack_lower(of_root), np.empty((n, width), root.dtype)
    for first in range((members - 1 - member) * width, n, members * width):
        count = min(width, n - first)
        _write_rows(root, first, count, panel)
        multiply_part(factor, panel, 0, count, of_other_frame, first, first, 0, first + count)
        for i in range(first, n):
            own, m = of_other_frame[i], mean_bar[i]
            for j in range(first, min(i + 1, first + count)):
                own[j] += m * mean[j]


@compiled
@no_type_check
def _write_columns(lower, first, count, panel):
    """Some columns of a lower triangle, from row ``first`` on."""
    for k in range(first, lower.shape[0]):
        own, row, full = panel[k], lower[k, first : first + count], min(k - first + 1, count)
        for j in range(full):
            own[j] = row[j]
        for j in range(full, count):
            own[j] = lower.dtype.type(0)


@compiled
@no_type_check
def _write_rows(lower, first, count, panel):
    """Some rows of a lower triangle, as columns."""
    write_transpose(lower, first, count, first + count, panel, 0)
    for k in range(first + 1, first + count):
        for j in range(k - first):
            panel[k, j] = lower.dtype.type(0)
