"""Matrix products in full precision, whatever the caller allows elsewhere.

TF32 keeps ten bits of the mantissa and bfloat16 seven. A squared distance is a small difference of large numbers, so
with either of them a Gram matrix stops being positive definite.
"""

from __future__ import annotations

from typing import Any

import torch

__all__ = ["full_precision"]


class full_precision:
    """Inside the block, products on ``device`` use neither autocast nor reduced-precision float32."""

    __slots__ = ("_autocast", "_before", "_products")

    def __init__(self, device: torch.device) -> None:
        enabled = torch.is_autocast_enabled(device.type)
        self._autocast = torch.autocast(device.type, enabled=False) if enabled else None
        backend: Any = torch.backends.cuda if device.type == "cuda" else torch.backends.mkldnn
        products: Any = getattr(backend, "matmul", None)
        # PyTorch before 2.9 has one switch for all devices.
        self._products = products if hasattr(products, "fp32_precision") else None
        self._before = torch.get_float32_matmul_precision() if self._products is None else products.fp32_precision

    def __enter__(self) -> None:
        if self._autocast is not None:
            self._autocast.__enter__()
        self._set("highest" if self._products is None else "ieee")

    def __exit__(self, *error: Any) -> None:
        self._set(self._before)
        if self._autocast is not None:
            self._autocast.__exit__(*error)

    def _set(self, precision: str) -> None:
        if self._products is None:
            torch.set_float32_matmul_precision(precision)
        else:
            self._products.fp32_precision = precision
