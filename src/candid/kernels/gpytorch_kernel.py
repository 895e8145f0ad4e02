"""Kernels of GPyTorch with the interface of ours.

Their code stays theirs: gradients come from autograd, constraints and fixed parameters (``requires_grad=False``) are
kept, and a model file holds their tensors only, so that loading needs the kernel object again. Kernels of ours are
batched; one of theirs is copied for every entry of the batch, and each copy sees the inputs of its own entries.
"""

from __future__ import annotations

import copy
import math
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from candid.kernels.base import Kernel, readable
from candid.kernels.code import describe_code
from candid.kernels.precision import full_precision
from candid.kernels.units import leaf_in_units

__all__ = ["GPyTorchKernel", "is_gpytorch"]


def is_gpytorch(thing: Any) -> bool:
    """Whether this is a kernel of GPyTorch; whoever has one has imported GPyTorch already."""
    return "gpytorch" in sys.modules and isinstance(thing, sys.modules["gpytorch"].kernels.Kernel)


class GPyTorchKernel(Kernel):
    """Copies of one GPyTorch kernel, one for each entry of the batch; see :func:`~candid.kernels.from_gpytorch`.

    Parameters
    ----------
    kernel : gpytorch.kernels.Kernel

    Attributes
    ----------
    copies : ModuleList of gpytorch.kernels.Kernel
    x_scale : Tensor
        What inputs are divided by before the copies see them; one, unless the kernel is told in units of a table.
    """

    x_scale: Tensor

    def __init__(self, kernel: Any) -> None:
        super().__init__()
        self.copies = nn.ModuleList([kernel])
        self.batch_shape: tuple[int, ...] = ()
        self.register_buffer("x_scale", torch.ones(1, dtype=kernel.dtype))

    def forward(self, x1: Tensor, x2: Tensor | None = None) -> Tensor:
        if x2 is not None:
            return self._stacked(lambda kernel, *pair: kernel(*pair).to_dense(), x1, x2)
        gram = self._stacked(lambda kernel, x: kernel(x).to_dense(), x1)
        # Rounding leaves the two triangles of theirs a little apart.
        return 0.5 * (gram + gram.mT)

    def diagonal(self, x: Tensor) -> Tensor:
        return self._stacked(lambda kernel, x: kernel(x, diag=True), x)

    def in_units(self, x_scale: Tensor, y_scale: Tensor, x_shift: Tensor | None = None) -> Kernel:
        rescaled = copy.deepcopy(self)
        rescaled.x_scale = self.x_scale * x_scale
        return leaf_in_units(rescaled, {}, y_scale)

    def to_spec(self) -> dict[str, Any]:
        return {
            **super().to_spec(),
            "code": self._code(),
            "batch": list(self.batch_shape),
            "x_scale": list(self.x_scale.shape),
            "dtype": str(self.x_scale.dtype).removeprefix("torch."),
        }

    def described(self, spec: dict[str, Any]) -> GPyTorchKernel:
        """A kernel of this one's code and of the shapes that :meth:`to_spec` told; its values are arbitrary."""
        wanted, own = list(spec["code"]), self._code()
        # Settings that only one side knows belong to another version of GPyTorch.
        same = (
            mine.get(name, value) == value
            for theirs, mine in zip(wanted, own, strict=False)
            for name, value in theirs.items()
        )
        if len(wanted) != len(own) or not all(same):
            raise ValueError(f"the model has the GPyTorch kernel {wanted}, but the one that was given is {own}")
        rebuilt = GPyTorchKernel(copy.deepcopy(self.copies[0]))
        rebuilt._copy_for(tuple(int(size) for size in spec["batch"]))
        rebuilt.x_scale = torch.ones(tuple(int(size) for size in spec["x_scale"]))
        return rebuilt

    def __repr__(self) -> str:
        values = [f"{name}={readable(value)}" for name, value in self._values()]
        units = [f"x_scale={readable(self.x_scale)}"] if bool((self.x_scale != 1).any()) else []
        return f"GPyTorchKernel({', '.join([_outline(self.copies[0]), *values, *units])})"

    def _resize(self, n_features: int, ard: bool, batch_shape: tuple[int, ...]) -> None:
        rows = torch.zeros(5, n_features, dtype=self.x_scale.dtype, device=self.x_scale.device)
        name = _outline(self.copies[0])
        try:
            with torch.no_grad():
                shape = tuple(self(rows[:2], rows[2:]).shape[-2:])
        except Exception as error:
            raise ValueError(
                f"{name} does not take {n_features} features ({error}); make it for the table, for example with "
                f"ard_num_dims={n_features}"
            ) from error
        if shape != (2, 3):
            raise ValueError(f"{name} has covariances of shape {shape} for 2 and 3 rows; give a kernel of one output")
        self._copy_for(batch_shape)

    def _copy_for(self, batch_shape: tuple[int, ...]) -> None:
        """Make one copy for each entry of the batch."""
        if self.batch_shape not in ((), batch_shape):
            raise ValueError(
                f"the kernel was built for the batch shape {self.batch_shape}, which does not expand to {batch_shape}: "
                f"start from the GPyTorch kernel again"
            )
        self.copies.extend(copy.deepcopy(self.copies[0]) for _ in range(len(self.copies), math.prod(batch_shape)))
        self.batch_shape = batch_shape

    def _stacked(self, evaluate: Callable[..., Tensor], *inputs: Tensor) -> Tensor:
        """What ``evaluate(copy, *inputs)`` gives, each copy at those entries of the batch that are its own."""
        leading = np.broadcast_shapes(self.batch_shape, *(x.shape[:-2] for x in inputs))
        flat = [(x / self.x_scale).expand(*leading, *x.shape[-2:]).reshape(-1, *x.shape[-2:]) for x in inputs]
        owner = torch.arange(len(self.copies)).reshape(self.batch_shape).expand(leading).flatten()
        entries = [(owner == position).nonzero().flatten() for position in range(len(self.copies))]
        with full_precision(self.x_scale.device):
            parts = [
                evaluate(kernel, *(x[own.to(x.device)] for x in flat))
                for kernel, own in zip(self.copies, entries, strict=True)
            ]
        # From the order of the copies back to that of the batch.
        order = torch.cat(entries).argsort().to(parts[0].device)
        return torch.cat(parts)[order].reshape(*leading, *parts[0].shape[1:])

    def _code(self) -> list[dict[str, str]]:
        """Of the GPyTorch kernel and the kernels in it."""
        return describe_code(filter(is_gpytorch, self.copies[0].modules()))

    def _values(self) -> Iterator[tuple[str, Tensor]]:
        """Names and values of the parameters, those of all copies together."""
        copies: list[Any] = list(self.copies)
        for same in zip(*(kernel.named_parameters_and_constraints() for kernel in copies), strict=True):
            values = [raw if constraint is None else constraint.transform(raw) for _, raw, constraint in same]
            yield same[0][0].replace("raw_", ""), torch.stack(values)


def _outline(kernel: nn.Module) -> str:
    """For example ``AdditiveKernel(RBFKernel, LinearKernel)``."""
    inner = [_outline(part) for part in _kernels_in(kernel)]
    return f"{type(kernel).__name__}({', '.join(inner)})" if inner else type(kernel).__name__


def _kernels_in(module: nn.Module) -> Iterator[nn.Module]:
    for child in module.children():
        if is_gpytorch(child):
            yield child
        else:
            yield from _kernels_in(child)
