"""Products with triangles, in place, by the BLAS that SciPy brings.

They do half of the work of a product of full matrices, where torch has nothing but full ones. SciPy publishes the
addresses of these routines for Cython (``scipy.linalg.cython_blas``); called by address they do not hold the
interpreter's lock. They store matrices by columns: what is stored by rows is for them the transpose, and for
X ← L X they are asked for Xᵀ ← Xᵀ Lᵀ.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from scipy.linalg import cython_blas, cython_lapack  # pyright: ignore[reportAttributeAccessIssue]
from torch import Tensor

from candid.linalg.crew import crew_size
from candid.linalg.plain import is_plain
from candid.linalg.products import onednn_takes

__all__ = ["blas_takes", "counts_in_ints", "factorisation", "multiply_by_lower"]

# Multiplications of full matrices beyond which oneDNN, where it has wider instructions, is faster with parts of them.
MOST_WORK = 2**25
# How names of routines begin, and the type of their numbers.
LETTERS = {torch.float32: ("s", ctypes.c_float), torch.float64: ("d", ctypes.c_double)}


def blas_takes(lower: Tensor, x: Tensor) -> bool:
    """Whether these are matrices for it, and there is a crew: without one torch has several threads for a product."""
    suited = is_plain(lower) and 1 in lower.stride()[-2:] and counts_in_ints()
    return crew_size() > 0 and suited and not onednn_takes(lower, x, MOST_WORK)


def multiply_by_lower(lower: Tensor, x: Tensor, transposed: bool = False) -> None:
    """X ← L X, or Lᵀ X. What is above the diagonal of L is not read."""
    by_rows = lower.stride(-1) == 1
    letters = b"R", b"U" if by_rows else b"L", b"T" if transposed == by_rows else b"N", b"N"
    size, columns = x.shape
    # A single row may have any stride.
    step, own_step = max(lower.stride(-2 if by_rows else -1), size), max(x.stride(0), columns, 1)
    _routine("trmm", x.dtype)(
        *map(_letter, letters), _number(columns), _number(size), _one(x.dtype),
        lower.data_ptr(), _number(step), x.data_ptr(), _number(own_step),
    )  # fmt: skip


@cache
def factorisation(dtype: torch.dtype) -> int:
    """The address, for machine code, of the routine that finds Cholesky factors."""
    address, _ = _found("potrf", dtype)
    return address


@cache
def _routine(name: str, dtype: torch.dtype) -> Callable[..., None]:
    """A routine that takes addresses."""
    address, signature = _found(name, dtype)
    return ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * signature.count(b"*"))(address)


def _found(name: str, dtype: torch.dtype) -> tuple[int, bytes]:
    """The address of a routine, and its signature."""
    capsule, signature = _published(LETTERS[dtype][0] + name)
    pointer_of = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)
    return pointer_of(("PyCapsule_GetPointer", ctypes.pythonapi))(capsule, signature), signature


def _published(name: str) -> tuple[Any, bytes]:
    """What SciPy has for a routine: a capsule with its address, and its signature, «void (char *, …, int *, …)»."""
    capsule = {**cython_lapack.__pyx_capi__, **cython_blas.__pyx_capi__}[name]
    signature_of = ctypes.PYFUNCTYPE(ctypes.c_char_p, ctypes.py_object)(("PyCapsule_GetName", ctypes.pythonapi))
    return capsule, signature_of(capsule)


@cache
def counts_in_ints() -> bool:
    """Whether numbers of rows are C's int, as in all builds of SciPy that are published."""
    return b"char *, int *, int *" in _published("strmm")[1]


# Arguments are passed by their addresses, so they are kept.
_kept: dict[int, Any] = {}


def _address(value: Any) -> int:
    address = ctypes.addressof(value)
    _kept[address] = value
    return address


@cache
def _letter(letter: bytes) -> int:
    return _address(ctypes.c_char(letter))


@cache
def _number(number: int) -> int:
    return _address(ctypes.c_int(number))


@cache
def _one(dtype: torch.dtype) -> int:
    return _address(LETTERS[dtype][1](1))
