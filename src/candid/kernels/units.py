"""A kernel on standardised inputs and targets, told in the units of the table."""

from __future__ import annotations

import copy
import math

import torch
from torch import Tensor

from candid.kernels.base import Kernel
from candid.kernels.composite import Product, Scale, Sum
from candid.parameters import Hyperparameter

__all__ = ["in_units"]

# How a hyper-parameter grows with the unit of the inputs: lengths with it, variances of slopes against its square.
_POWERS = {("lengthscale", "Stationary"): 1, ("period", "Periodic"): 1, ("variance", "Linear"): -2}


@torch.no_grad()
def in_units(kernel: Kernel, x_scale: Tensor, y_scale: Tensor) -> Kernel:
    """The kernel k'(x, x') = y_scale² k(x/x_scale, x'/x_scale), as a kernel of the same form.

    Parameters
    ----------
    kernel : Kernel
        Built with one entry in its batch for each output.
    x_scale : Tensor of shape (D,)
    y_scale : Tensor of shape (P,)
    """
    if isinstance(kernel, Sum):
        return Sum(*(in_units(part, x_scale, y_scale) for part in kernel._own_parts()))
    if isinstance(kernel, Product):
        first, *others = kernel._own_parts()
        rest = (in_units(part, x_scale, torch.ones_like(y_scale)) for part in others)
        return Product(in_units(first, x_scale, y_scale), *rest)
    if isinstance(kernel, Scale):
        inner = in_units(kernel.base, x_scale, torch.ones_like(y_scale))
        return _scaled(inner, kernel.amplitude.value * y_scale.square())
    leaf = _with_lengths(kernel, x_scale)
    return leaf if bool((y_scale == 1).all()) else _scaled(leaf, y_scale.square())


def _scaled(kernel: Kernel, amplitude: Tensor) -> Scale:
    scaled = Scale(kernel).to(amplitude.dtype)
    scaled.amplitude.expand(tuple(amplitude.shape))
    scaled.amplitude.set(amplitude)
    return scaled


def _with_lengths(kernel: Kernel, x_scale: Tensor) -> Kernel:
    kinds = {kind.__name__ for kind in type(kernel).__mro__}
    scaled = copy.deepcopy(kernel)
    for (name, kind), power in _POWERS.items():
        parameter = getattr(scaled, name, None)
        if kind in kinds and isinstance(parameter, Hyperparameter):
            value = parameter.value * x_scale.to(parameter.raw.dtype).pow(power)
            value = value.clamp(torch.finfo(value.dtype).tiny, torch.finfo(value.dtype).max)
            # Bounds were meant for standardised inputs.
            parameter.restrict(0.0, math.inf)
            parameter.expand(tuple(value.shape))
            parameter.set(value)
    return scaled
