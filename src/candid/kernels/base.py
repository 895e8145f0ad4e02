"""The interface that every kernel keeps, and the shapes of its hyper-parameters.

A user writes ``Matern52(lengthscale=1.0)`` without knowing the number of features; :meth:`Kernel.build` makes the copy
that fits a table. After it, with ``batch`` the leading dimensions (chains, the GPs of a layer):

===============================  =====================================================
hyper-parameter                  shape
===============================  =====================================================
lengthscale                      (\\*batch, 1, D), or (\\*batch, 1, 1) without ARD
alpha, period, variance          (\\*batch, 1, 1), or (\\*batch, 1, D) if given per feature
amplitude                        (\\*batch,)
===============================  =====================================================
"""

from __future__ import annotations

import copy
import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from numbers import Real
from typing import Any

import torch
from torch import Tensor, nn

from candid.parameters import Hyperparameter, positive

__all__ = ["Kernel", "check_features", "readable", "resize", "row"]


class Kernel(nn.Module, ABC):
    """A covariance function k(x, x').

    Kernels combine with ``+`` and ``*``; a number times a kernel is a :class:`~candid.kernels.Scale`, whose amplitude
    is a variance: ``1.5 * Matern52() + Linear()``.
    """

    @abstractmethod
    def forward(self, x1: Tensor, x2: Tensor | None = None) -> Tensor:
        """Covariances of all pairs.

        Parameters
        ----------
        x1 : Tensor of shape (..., N1, D)
        x2 : Tensor of shape (..., N2, D), optional
            Without it, ``x1`` is paired with itself; the result is then symmetric.

        Returns
        -------
        Tensor of shape (..., N1, N2)
            Leading dimensions of ``x1``, ``x2`` and the hyper-parameters broadcast. Do not change it in place: the
            backward pass may need it.
        """

    @abstractmethod
    def diagonal(self, x: Tensor) -> Tensor:
        """k(x_i, x_i) for each row, shape (..., N), without the matrix."""

    @abstractmethod
    def in_units(self, x_scale: Tensor, y_scale: Tensor, x_shift: Tensor | None = None) -> Kernel:
        """The kernel k'(x, x') = y_scale² k((x − x_shift)/x_scale, (x' − x_shift)/x_scale), as one of the same form.

        Only networks take note of the shift: other kernels are functions of differences, or (linear ones) are told
        relative to the centre of the table.

        Parameters
        ----------
        x_scale : Tensor of shape (D,)
        y_scale : Tensor of shape (P,), the last dimension of the kernel's batch
        """

    @property
    def unit(self) -> Kernel:
        """The kernel without its outermost amplitude."""
        return self

    def split(self) -> tuple[Tensor | None, Kernel]:
        """The outermost amplitude (shape ``batch``; None if there is none) and the kernel without it."""
        return None, self.unit

    def build(self, n_features: int, ard: bool = True, batch_shape: tuple[int, ...] = ()) -> Kernel:
        """A deep copy for tables of ``n_features`` columns.

        Parameters
        ----------
        n_features : int
            The number of features D.
        ard : bool, default=True
            Whether each feature gets a lengthscale of its own. Values that were given per feature are kept either way.
        batch_shape : tuple of int, default=()
            Leading dimensions; each entry gets hyper-parameters of its own, all starting at the same value.

        Returns
        -------
        Kernel
            A lengthscale that was left open (``None``) starts at √D, so that the typical scaled distance between two
            rows of a standardised table does not depend on the number of columns.
        """
        built = copy.deepcopy(self)
        built._fit(n_features, ard, tuple(batch_shape))
        return built

    def to_spec(self) -> dict[str, Any]:
        """The structure as plain JSON data: types, nesting, shapes and domains. The values live in ``state_dict()``."""
        return {
            "type": type(self).__name__,
            "parameters": {name: _describe(parameter) for name, parameter in self._own_parameters()},
            "parts": [part.to_spec() for part in self._own_parts()],
        }

    @staticmethod
    def from_spec(spec: dict[str, Any], code: Any = None) -> Kernel:
        """The kernel that :meth:`to_spec` described; see :func:`~candid.kernels.kernel_from_spec`."""
        from candid.kernels.spec import kernel_from_spec

        return kernel_from_spec(spec, code)

    def __add__(self, other: Kernel) -> Kernel:
        from candid.kernels.composite import Sum

        return Sum(self, other) if isinstance(other, Kernel) else NotImplemented

    def __mul__(self, other: Kernel | float) -> Kernel:
        from candid.kernels.composite import Product, Scale

        if isinstance(other, Kernel):
            return Product(self, other)
        return Scale(self, float(other)) if isinstance(other, Real) else NotImplemented

    def __rmul__(self, other: float) -> Kernel:
        return self.__mul__(other)

    def __repr__(self) -> str:
        given = [f"{name}={readable(p.value)}" for name, p in self._own_parameters() if p is not None]
        return f"{type(self).__name__}({', '.join(given)})"

    def _own_parameters(self) -> Iterator[tuple[str, Hyperparameter | None]]:
        for name, part in self._modules.items():
            if part is None or isinstance(part, Hyperparameter):
                yield name, part

    def _own_parts(self) -> list[Kernel]:
        return [part for part in self.children() if isinstance(part, Kernel)]

    def _fit(self, n_features: int, ard: bool, batch_shape: tuple[int, ...]) -> None:
        """Give all hyper-parameters their shapes, those of parts too, which may see other features than this kernel."""
        self._resize(n_features, ard, batch_shape)
        for part in self._own_parts():
            part._fit(n_features, ard, batch_shape)

    def _resize(self, n_features: int, ard: bool, batch_shape: tuple[int, ...]) -> None:
        """Give this kernel's own hyper-parameters the shapes of the table above."""
        for name, parameter in list(self._own_parameters()):
            is_lengthscale = name == "lengthscale"
            if parameter is None:
                parameter = positive(torch.full((1, 1), math.sqrt(n_features)))
                setattr(self, name, parameter)
            width = parameter.raw.shape[-1]
            if width not in (1, n_features):
                raise ValueError(
                    f"{type(self).__name__} has {width} values of {name}, but the table has {n_features} features: "
                    f"give one value, or one per feature"
                )
            resize(parameter, (*batch_shape, 1, n_features if is_lengthscale and ard else width), name)


def row(value: Any) -> Hyperparameter:
    """A positive hyper-parameter of shape (…, 1, W) from a number, a sequence of W numbers, or a tensor (…, 1, W)."""
    value = torch.as_tensor(value, dtype=torch.get_default_dtype())
    if value.dim() < 2:
        value = value.reshape(1, -1)
    if value.shape[-2] != 1 or value.numel() == 0:
        raise ValueError(f"give one number, or one per feature; got a tensor of shape {tuple(value.shape)}")
    return positive(value)


def resize(parameter: Hyperparameter, shape: tuple[int, ...], name: str) -> None:
    """Expand ``parameter`` to ``shape``, or say why that cannot be done."""
    present = tuple(parameter.raw.shape)
    if present == shape:
        return
    try:
        parameter.expand(shape)
    except RuntimeError:
        raise ValueError(
            f"{name} has shape {present}, which does not expand to the batch of kernels {shape}: "
            f"set it after building the kernel"
        ) from None


def check_features(kernel: Kernel, width: int, x1: Tensor, x2: Tensor | None) -> None:
    """Refuse inputs that would broadcast over features by accident."""
    n_features = x1.shape[-1]
    if x2 is not None and x2.shape[-1] != n_features:
        raise ValueError(f"both inputs need the same features, got {n_features} and {x2.shape[-1]}")
    if width not in (1, n_features):
        raise ValueError(f"{type(kernel).__name__} was built for {width} features, but the input has {n_features}")


def _describe(parameter: Hyperparameter | None) -> dict[str, Any] | None:
    if parameter is None:
        return None
    return {
        "shape": list(parameter.raw.shape),
        "lower": parameter.lower if math.isfinite(parameter.lower) else None,
        "upper": parameter.upper if math.isfinite(parameter.upper) else None,
        "fixed": parameter.fixed,
        "dtype": str(parameter.raw.dtype).removeprefix("torch."),
    }


def readable(value: Tensor) -> str:
    """``0.3``, ``[0.3, 1.2]``, or for more than a dozen numbers their range and shape."""
    value = value.detach()
    if value.numel() > 12:
        shape = "×".join(str(n) for n in value.shape if n > 1)
        return f"{value.min().item():.3g}…{value.max().item():.3g} ({shape})"
    return _nested(value.squeeze().tolist())


def _nested(values: Any) -> str:
    return f"[{', '.join(map(_nested, values))}]" if isinstance(values, list) else f"{values:.3g}"
