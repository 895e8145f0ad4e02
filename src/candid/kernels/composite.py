"""Kernels made of kernels: sums, products, and a kernel times a variance."""

from __future__ import annotations

from functools import reduce
from typing import Any

import torch
from torch import Tensor, nn

from candid.kernels.base import Kernel, readable, resize
from candid.parameters import Hyperparameter, positive

__all__ = ["Product", "Scale", "Sum"]


class _Combination(Kernel):
    """Several kernels of the same input; nested combinations of one type are one combination."""

    parts: nn.ModuleList

    def __init__(self, *parts: Kernel) -> None:
        super().__init__()
        for part in parts:
            if not isinstance(part, Kernel):
                raise TypeError(f"{type(self).__name__} is made of kernels, got {type(part).__name__}")
        if not parts:
            raise ValueError(f"{type(self).__name__} needs at least one kernel")
        self.parts = nn.ModuleList(
            inner for part in parts for inner in (part.parts if type(part) is type(self) else [part])
        )

    def _own_parts(self) -> list[Kernel]:
        return list(self.parts)  # pyright: ignore[reportReturnType]


class Sum(_Combination):
    """k(x, x') = Σ_j k_j(x, x')."""

    def forward(self, x1: Tensor, x2: Tensor | None = None) -> Tensor:
        return reduce(torch.add, (part(x1, x2) for part in self.parts))

    def diagonal(self, x: Tensor) -> Tensor:
        return reduce(torch.add, (part.diagonal(x) for part in self._own_parts()))

    def in_units(self, x_scale: Tensor, y_scale: Tensor, x_shift: Tensor | None = None) -> Kernel:
        return Sum(*(part.in_units(x_scale, y_scale, x_shift) for part in self._own_parts()))

    def __repr__(self) -> str:
        return " + ".join(map(repr, self.parts))


class Product(_Combination):
    """k(x, x') = Π_j k_j(x, x')."""

    def forward(self, x1: Tensor, x2: Tensor | None = None) -> Tensor:
        return reduce(torch.mul, (part(x1, x2) for part in self.parts))

    def diagonal(self, x: Tensor) -> Tensor:
        return reduce(torch.mul, (part.diagonal(x) for part in self._own_parts()))

    def in_units(self, x_scale: Tensor, y_scale: Tensor, x_shift: Tensor | None = None) -> Kernel:
        first, *others = self._own_parts()
        rest = (part.in_units(x_scale, torch.ones_like(y_scale), x_shift) for part in others)
        return Product(first.in_units(x_scale, y_scale, x_shift), *rest)

    def __repr__(self) -> str:
        return " * ".join(map(_factor, self.parts))


class Scale(Kernel):
    """k(x, x') = amplitude · base(x, x').

    Parameters
    ----------
    base : Kernel
        The kernel to scale. If it is a scaled kernel itself, the two amplitudes become one.
    amplitude : float, default=1.0
        A variance, not a standard deviation; or one per entry of a batch of kernels.
    """

    amplitude: Hyperparameter
    base: Kernel

    def __init__(self, base: Kernel, amplitude: Any = 1.0) -> None:
        super().__init__()
        if not isinstance(base, Kernel):
            raise TypeError(f"Scale multiplies a kernel, got {type(base).__name__}")
        if isinstance(base, Scale):
            amplitude = amplitude * base.amplitude.value.detach()
            base = base.base
        self.amplitude = positive(amplitude)
        self.base = base

    def forward(self, x1: Tensor, x2: Tensor | None = None) -> Tensor:
        return self.amplitude.value[..., None, None] * self.base(x1, x2)

    def diagonal(self, x: Tensor) -> Tensor:
        return self.amplitude.value[..., None] * self.base.diagonal(x)

    @property
    def unit(self) -> Kernel:
        return self.base

    def split(self) -> tuple[Tensor | None, Kernel]:
        return self.amplitude.value, self.base

    def in_units(self, x_scale: Tensor, y_scale: Tensor, x_shift: Tensor | None = None) -> Kernel:
        base = self.base.in_units(x_scale, torch.ones_like(y_scale), x_shift)
        return Scale.by(base, self.amplitude.value * y_scale.square())

    @staticmethod
    def by(base: Kernel, amplitude: Tensor) -> Scale:
        """``base`` times one amplitude for each entry of its batch, in the dtype of the amplitude."""
        scaled = Scale(base).to(amplitude.dtype)
        scaled.amplitude.expand(tuple(amplitude.shape))
        scaled.amplitude.set(amplitude.detach())
        return scaled

    def _resize(self, n_features: int, ard: bool, batch_shape: tuple[int, ...]) -> None:
        resize(self.amplitude, batch_shape, "amplitude")

    def __repr__(self) -> str:
        return f"{readable(self.amplitude.value)} * {_factor(self.base)}"


def _factor(kernel: nn.Module) -> str:
    return f"({kernel!r})" if isinstance(kernel, (Sum, Product, Scale)) else repr(kernel)
