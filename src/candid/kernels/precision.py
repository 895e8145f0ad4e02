"""Matrix products in full precision, whatever the caller allows elsewhere.

TF32 keeps ten bits of the mantissa and bfloat16 seven. A squared distance is a small difference of large numbers, so
with either of them a Gram matrix stops being positive definite.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

__all__ = ["full_precision"]


@contextmanager
def full_precision(device: torch.device) -> Iterator[None]:
    """Inside the block, products on ``device`` use neither autocast nor reduced-precision float32."""
    with _without_autocast(device), _without_reduced_float32(device):
        yield


@contextmanager
def _without_autocast(device: torch.device) -> Iterator[None]:
    if torch.is_autocast_enabled(device.type):
        with torch.autocast(device.type, enabled=False):
            yield
    else:
        yield


@contextmanager
def _without_reduced_float32(device: torch.device) -> Iterator[None]:
    backend: Any = torch.backends.cuda if device.type == "cuda" else torch.backends.mkldnn
    backend = getattr(backend, "matmul", None)
    if hasattr(backend, "fp32_precision"):
        before = backend.fp32_precision
        backend.fp32_precision = "ieee"
        try:
            yield
        finally:
            backend.fp32_precision = before
    else:  # PyTorch before 2.9 has one switch for all devices
        before = torch.get_float32_matmul_precision()
        torch.set_float32_matmul_precision("highest")
        try:
            yield
        finally:
            torch.set_float32_matmul_precision(before)
