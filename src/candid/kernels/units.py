"""A kernel on standardised inputs and targets, told in the units of the table."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping

import torch
from torch import Tensor

from candid.kernels.base import Kernel
from candid.kernels.composite import Scale

__all__ = ["in_units", "leaf_in_units"]


def in_units(kernel: Kernel, x_scale: Tensor, y_scale: Tensor, x_shift: Tensor | None = None) -> Kernel:
    """The kernel in the units of a table; see :meth:`Kernel.in_units`."""
    return kernel.in_units(x_scale, y_scale, x_shift)


@torch.no_grad()
def leaf_in_units(kernel: Kernel, rescaled: Mapping[str, Tensor], y_scale: Tensor) -> Kernel:
    """A copy of a kernel without parts, with ``rescaled`` values of the hyper-parameters that have a unit, times y²."""
    leaf = copy.deepcopy(kernel)
    for name, value in rescaled.items():
        parameter = getattr(leaf, name)
        dtype = parameter.raw.dtype
        # Bounds were meant for standardised inputs.
        parameter.restrict(0.0, math.inf)
        parameter.expand(tuple(value.shape))
        parameter.set(value.to(dtype).clamp(torch.finfo(dtype).tiny, torch.finfo(dtype).max))
    return leaf if bool((y_scale == 1).all()) else Scale.by(leaf, y_scale.square())
