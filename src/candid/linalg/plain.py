"""Tensors whose numbers can be read where they are, by code that is not torch's."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["is_plain"]


def is_plain(values: Tensor) -> bool:
    """Whether these are real numbers in the processor's memory, and torch neither records nor transforms nor traces."""
    return (
        values.device.type == "cpu"
        and values.dtype in (torch.float32, torch.float64)
        and not (values.requires_grad and torch.is_grad_enabled())
        and not torch._C._functorch.is_functorch_wrapped_tensor(values)  # pyright: ignore[reportAttributeAccessIssue]
        and not (torch.jit.is_tracing() or torch.compiler.is_compiling())
    )
