"""Functions that Numba compiles: with which options, where machine code is kept, and a fast exponential for vectors."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any, no_type_check

import numpy as np
from numba import njit, types
from numba.extending import overload

__all__ = ["compiled", "compiled_sums", "decay", "dot", "inlined", "kept_on_disk"]

# Products and sums may become one operation; nothing else is rearranged, and NaN and infinity keep their meaning.
OPTIONS: dict[str, Any] = {"fastmath": {"contract", "nsz"}, "error_model": "numpy", "nogil": True}
# Sums over columns may be taken in the order of vectors: the same one at every call.
SUMS: dict[str, Any] = OPTIONS | {"fastmath": {"contract", "nsz", "reassoc"}}
INLINED: Any = OPTIONS | {"forceinline": True}

# Files whose functions become part of others' machine code.
SHARED = tuple(
    f"{name}.py"
    for name in ("machine_code", "row_kernels", "block_kernels", "machine_tiles", "machine_products", "machine_factors")
)

inlined = njit(**INLINED)
compiled, compiled_sums = njit(**OPTIONS), njit(**SUMS)


@cache
def _version() -> str:
    """Of these files."""
    folder = Path(__file__).parent
    return sha256(b"".join((folder / name).read_bytes() for name in SHARED)).hexdigest()[:8]


def kept_on_disk(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile at the first call, and keep the machine code for later processes where there is a place for it.

    Numba knows when the function's own file has changed. That what it calls has, it learns from the name.
    """
    function.__qualname__ += f"_{_version()}"
    try:
        return njit(cache=True, **OPTIONS)(function)
    except RuntimeError:
        return njit(**OPTIONS)(function)


@compiled_sums
@no_type_check
def dot(a, b):
    """Σ a_i b_i over as many entries as the first one has."""
    total = a.dtype.type(0)
    for i in range(a.shape[0]):
        total += a[i] * b[i]
    return total


def decay(r: float) -> float:
    """exp(−r) for 0 ≤ r, as long as the result is a normal number."""
    return math.exp(-r)


@overload(decay, jit_options=INLINED)
@no_type_check
def _decay(r):
    # Types, powers of the series, offset and position of a number's exponent, and log 2 in two parts: n times the first
    # is exact.
    if r == types.float32:
        real, whole, last, offset, position, high, low = np.float32, np.int32, 7, 127, 23, 0.693359375, -2.12194440e-4
    else:
        real, whole, last, offset, position = np.float64, np.int64, 13, 1023, 52
        high, low = 0.693145751953125, 1.42860682030941723212e-6
    series = tuple(1 / math.factorial(power) for power in range(last, -1, -1))
    inverse = 1 / math.log(2)

    def decay_of(r):
        # exp(−r) = 2⁻ⁿ exp(f) with n = round(r / log 2) and |f| ≤ ½ log 2
        n = np.floor(real(inverse) * r + real(0.5))
        f = (real(high) * n - r) + real(low) * n
        p = real(0)
        for coefficient in series:
            p = p * f + real(coefficient)
        # By way of 32 bits: vectors of processors know no other conversion.
        return p * whole((offset - whole(np.int32(n))) << position).view(real)

    return decay_of
