"""Cholesky factors inside machine code, by the LAPACK that SciPy brings, and inverses of triangles.

Machine code gets the address of the routine as a number (:func:`candid.linalg.blas.factorisation`): so it can be kept
on disk, though the routine is elsewhere in each process.
"""

from __future__ import annotations

from typing import no_type_check

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from candid.linalg.machine_code import compiled
from candid.linalg.machine_products import multiply, pack, pack_lower

__all__ = ["factorise", "invert"]

UPPER = np.frombuffer(b"U", np.uint8)
# Larger triangles are inverted by halves.
LARGEST_INVERSE = 40


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
def factorise(routine, matrix):
    """Overwrite what is on and below the diagonal of a matrix with its lower Cholesky factor; whether there is one."""
    # It stores by columns: what it sees is the transpose, of which it makes UᵀU.
    sizes = np.array((matrix.shape[0], matrix.shape[1], 0), np.int32)
    size = sizes.ctypes.data
    _call(routine, (UPPER.ctypes.data, size, matrix.ctypes.data, size + 4, size + 8))
    # NaN passes for a number until it reaches the last place.
    return sizes[2] == 0 and np.isfinite(matrix[-1, -1])


@compiled
@no_type_check
def invert(lower, inverse):
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
            start, middle, stop = n * block // count, n * (block + 1) // count, n * (block + 2) // count
            own = np.empty((stop - middle, middle - start), lower.dtype)
            for i in range(own.shape[0]):
                for j in range(own.shape[1]):
                    own[i, j] = -lower[middle + i, start + j]
            # −L₂⁻¹K, and that times L₁⁻¹
            multiply(pack_lower(inverse[middle:stop, middle:stop]), own, 0, middle - start, own, 0)
            multiply(pack(own), inverse[start:middle], start, middle - start, inverse[middle:stop], start)
        count //= 2


@compiled
@no_type_check
def _invert_block(lower, inverse, start, stop):
    """Forward substitution; what is beside the block becomes zero."""
    for i in range(start, stop):
        own, row = inverse[i], lower[i]
        for j in range(own.shape[0]):
            own[j] = own.dtype.type(0)
        scale = own.dtype.type(1) / row[i]
        for k in range(start, i):
            factor, other = row[k] * scale, inverse[k]
            for j in range(start, k + 1):
                own[j] -= factor * other[j]
        own[i] = scale
