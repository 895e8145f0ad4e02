"""Products and factors of matrices inside machine code, by the BLAS that SciPy brings.

Machine code gets the addresses of its routines as numbers (:func:`candid.linalg.blas.routines`): so it can be kept on
disk, though they are elsewhere in each process. A matrix is stored by rows, and what is multiplied may be some columns
of a wider one. For BLAS, which stores by columns, it is the transpose.
"""

from __future__ import annotations

from typing import no_type_check

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from candid.linalg.machine_code import compiled

__all__ = ["add_lower_half", "factorise", "invert", "lower_times", "products_with", "transposed_lower_times"]

# Letters that routines are asked with; an address is that of the first, plus a number.
LETTERS = np.frombuffer(b"LRUNT", np.uint8)
L, R, U, N, T = range(5)
# Which routine is which.
TRMM, GEMM, POTRF = range(3)
# Larger triangles are inverted by halves.
LARGEST_INVERSE = 40
# Rows of a symmetric product that are computed at a time, from the first column to the diagonal.
TOGETHER = 100


@intrinsic
@no_type_check
def _call(typing_context, address, arguments):
    """Call the routine at an address, which takes addresses and returns nothing."""

    def generate(context, builder, signature, values):
        address, arguments = values
        given = [builder.extract_value(arguments, place) for place in range(len(signature.args[1]))]
        routine = ir.FunctionType(ir.VoidType(), [value.type for value in given])
        builder.call(builder.inttoptr(address, routine.as_pointer()), given)
        return context.get_dummy_value()

    return types.none(types.int64, arguments), generate


@compiled
@no_type_check
def lower_times(blas, lower, x, first, count, top):
    """X ← L X for ``count`` columns of X from ``first`` on, which are zero above row ``top``.

    What is above the diagonal of L is not read.
    """
    _multiply(blas, lower, x, first, count, top, N)


@compiled
@no_type_check
def transposed_lower_times(blas, lower, x, first, count):
    """X ← Lᵀ X for these columns."""
    _multiply(blas, lower, x, first, count, 0, T)


@compiled
@no_type_check
def _multiply(blas, lower, x, first, count, top, how):
    # Xᵀ ← Xᵀ Lᵀ, where Lᵀ is what is stored
    sizes = np.array((count, lower.shape[0] - top, lower.shape[1], x.shape[1]), np.int32)
    one, letter, size, item = np.ones(1, x.dtype), LETTERS.ctypes.data, sizes.ctypes.data, x.itemsize
    _call(
        blas[TRMM],
        (letter + R, letter + U, letter + how, letter + N, size, size + 4, one.ctypes.data,
         lower.ctypes.data + top * (lower.shape[1] + 1) * item, size + 8,
         x.ctypes.data + (top * x.shape[1] + first) * item, size + 12),
    )  # fmt: skip


@compiled
@no_type_check
def add_lower_half(blas, total, x, y, first, count):
    """Add X Yᵀ to ``total`` on and below the diagonal; what is above it has no meaning afterwards.

    The products are over ``count`` columns, of X from its beginning, of Y from ``first`` on. X may have more rows.
    """
    one, letter = np.ones(1, x.dtype), LETTERS.ctypes.data
    for start in range(0, x.shape[0], TOGETHER):
        stop = min(start + TOGETHER, x.shape[0])
        columns = min(stop, y.shape[0])
        # totalᵀ ← Y Xᵀ + totalᵀ, where Yᵀ and Xᵀ are what is stored
        sizes = np.array((columns, stop - start, count, y.shape[1], x.shape[1], total.shape[1]), np.int32)
        size, item = sizes.ctypes.data, x.itemsize
        _call(
            blas[GEMM],
            (letter + T, letter + N, size, size + 4, size + 8, one.ctypes.data,
             y.ctypes.data + first * item, size + 12, x.ctypes.data + start * x.shape[1] * item, size + 16,
             one.ctypes.data, total.ctypes.data + start * total.shape[1] * item, size + 20),
        )  # fmt: skip


@compiled
@no_type_check
def products_with(blas, matrix, x, count, product):
    """``product`` ← Mᵀ X for the first ``count`` columns of both, and those first columns of M that it has rows for."""
    one, nothing, letter = np.ones(1, x.dtype), np.zeros(1, x.dtype), LETTERS.ctypes.data
    # productᵀ ← Xᵀ M, where Xᵀ and Mᵀ are what is stored
    sizes = np.array((count, product.shape[0], x.shape[0], x.shape[1], matrix.shape[1], product.shape[1]), np.int32)
    size = sizes.ctypes.data
    _call(
        blas[GEMM],
        (letter + N, letter + T, size, size + 4, size + 8, one.ctypes.data, x.ctypes.data, size + 12,
         matrix.ctypes.data, size + 16, nothing.ctypes.data, product.ctypes.data, size + 20),
    )  # fmt: skip


@compiled
@no_type_check
def factorise(blas, matrix):
    """Overwrite what is on and below the diagonal of a matrix with its lower Cholesky factor; whether there is one."""
    # Of the transpose, UᵀU
    sizes, letter = np.array((matrix.shape[0], matrix.shape[1], 0), np.int32), LETTERS.ctypes.data
    size = sizes.ctypes.data
    _call(blas[POTRF], (letter + U, size, matrix.ctypes.data, size + 4, size + 8))
    # NaN passes for a number until it reaches the last place.
    return sizes[2] == 0 and np.isfinite(matrix[-1, -1])


@compiled
@no_type_check
def invert(blas, lower, inverse):
    """Write L⁻¹, which has nothing but zeros above its diagonal, to ``inverse``.

    With L = [L₁, 0; K, L₂] it is [L₁⁻¹, 0; −L₂⁻¹K L₁⁻¹, L₂⁻¹]: first all small blocks on the diagonal, then what is
    between two that are next to each other, until there is one.
    """
    n, count = lower.shape[0], 1
    while n > count * LARGEST_INVERSE:
        count *= 2
    for block in range(count):
        _invert_block(lower, inverse, n * block // count, n * (block + 1) // count)
    while count > 1:
        for block in range(0, count, 2):
            edges = n * block // count, n * (block + 1) // count, n * (block + 2) // count
            _join(blas, lower, inverse, *edges)
        count //= 2


@compiled
@no_type_check
def _invert_block(lower, inverse, start, stop):
    """Forward substitution; what is beside the block becomes zero."""
    for i in range(start, stop):
        own, row = inverse[i], lower[i]
        own[:] = own.dtype.type(0)
        scale = own.dtype.type(1) / row[i]
        for k in range(start, i):
            factor, other = row[k] * scale, inverse[k]
            for j in range(start, k + 1):
                own[j] -= factor * other[j]
        own[i] = scale


@compiled
@no_type_check
def _join(blas, lower, inverse, start, middle, stop):
    """−L₂⁻¹K L₁⁻¹, where the inverses of both blocks are there."""
    for i in range(middle, stop):
        own, row = inverse[i, start:middle], lower[i, start:middle]
        for j in range(middle - start):
            own[j] = -row[j]
    one, letter, step, item = np.ones(1, lower.dtype), LETTERS.ctypes.data, inverse.shape[1], inverse.itemsize
    sizes = np.array((middle - start, stop - middle, step), np.int32)
    size, origin = sizes.ctypes.data, inverse.ctypes.data
    corner = origin + (middle * step + start) * item
    # Kᵀ ← Kᵀ L₂⁻ᵀ and Kᵀ ← L₁⁻ᵀ Kᵀ, where what is stored are these transposes
    for side, at in ((R, middle), (L, start)):
        _call(
            blas[TRMM],
            (letter + side, letter + U, letter + N, letter + N, size, size + 4, one.ctypes.data,
             origin + at * (step + 1) * item, size + 8, corner, size + 8),
        )  # fmt: skip
