"""Batch normalisation for the networks of kernels and mean functions.

In a training step the statistics are those of the rows of the batch, and gradients flow through them. Whatever else
passes through the network in that step (inducing points) is normalised by the same statistics, but does not count in
them. Everywhere else the running averages of these statistics take their place, so that a row's features depend on
that row alone.

References
----------
S. Ioffe, C. Szegedy, Batch normalization (2015).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

__all__ = ["RowNorm", "counting_rows", "with_row_norms"]


class _Counted(NamedTuple):
    """Which of the rows that pass count in the statistics: the first ones, each of a weight (None: all the same)."""

    n_rows: int
    weight: Tensor | None


class RowNorm(nn.Module):
    """(x − mean)/√(variance + ε), for each feature; then, if ``affine``, times a learned factor plus a learned shift.

    The running averages follow those of torch, with two differences. The first steps are averaged evenly, so that what
    the averages start from is forgotten at once. And the variance is that of the batch itself (not n/(n − 1) of it), so
    that where every batch is the whole table, prediction converges to what training has seen.

    Parameters
    ----------
    width : int
    affine : bool, default=True
    eps : float, default=1e-5
        ε.
    momentum : float or None, default=0.1
        Weight of the newest batch in the running averages; None is an even average over all batches.
    """

    weight: nn.Parameter | None
    bias: nn.Parameter | None
    running_mean: Tensor
    running_var: Tensor
    n_steps: Tensor

    def __init__(self, width: int, affine: bool = True, eps: float = 1e-5, momentum: float | None = 0.1) -> None:
        super().__init__()
        self.eps, self.momentum = eps, momentum
        self.register_parameter("weight", nn.Parameter(torch.ones(width)) if affine else None)
        self.register_parameter("bias", nn.Parameter(torch.zeros(width)) if affine else None)
        self.register_buffer("running_mean", torch.zeros(width))
        self.register_buffer("running_var", torch.ones(width))
        # A float like all tensors of a model.
        self.register_buffer("n_steps", torch.zeros(()))
        self._counted: _Counted | None = None

    @staticmethod
    def like(layer: nn.BatchNorm1d) -> RowNorm:
        """The same layer as one of torch, with its parameters and its running averages."""
        norm = RowNorm(layer.num_features, layer.affine, layer.eps, layer.momentum)
        if layer.affine:
            norm.weight, norm.bias = layer.weight, layer.bias
        if layer.running_mean is not None and layer.running_var is not None and layer.num_batches_tracked is not None:
            norm.running_mean, norm.running_var = layer.running_mean, layer.running_var
            norm.n_steps = layer.num_batches_tracked.to(layer.running_mean)
        return norm

    def forward(self, x: Float[Tensor, "n w"]) -> Float[Tensor, "n w"]:
        if x.dim() != 2:
            raise ValueError(f"batch normalisation takes a table of rows and features, got the shape {tuple(x.shape)}")
        mean, variance = (
            (self.running_mean, self.running_var) if self._counted is None else self._observed(x, *self._counted)
        )
        normal = (x - mean) * torch.rsqrt(variance + self.eps)
        return normal if self.weight is None or self.bias is None else normal * self.weight + self.bias

    def _observed(self, x: Tensor, n_rows: int, weight: Tensor | None) -> tuple[Tensor, Tensor]:
        """Mean and variance of the rows that count; the running averages take note of them."""
        rows = x[:n_rows]
        if weight is None:
            variance, mean = torch.var_mean(rows, 0, correction=0)
        else:
            share = (weight / weight.sum()).unsqueeze(-1)
            mean = (share * rows).sum(0)
            variance = (share * (rows - mean).square()).sum(0)
        with torch.no_grad():
            self.n_steps.add_(1.0)
            # 1/t at step t, until that is less than the momentum
            rate = self.n_steps.reciprocal().clamp_min(self.momentum or 0.0)
            self.running_mean.lerp_(mean, rate)
            self.running_var.lerp_(variance, rate)
        return mean, variance


@contextmanager
def counting_rows(module: nn.Module, n_rows: int, weight: Tensor | None = None) -> Iterator[None]:
    """Inside the block, layers of ``module`` take their statistics from the first ``n_rows`` rows that pass."""
    norms = [part for part in module.modules() if isinstance(part, RowNorm)]
    for norm in norms:
        norm._counted = _Counted(n_rows, weight)
    try:
        yield
    finally:
        for norm in norms:
            norm._counted = None


def with_row_norms(module: nn.Module) -> nn.Module:
    """``module`` with the batch normalisation of torch replaced by ours, in place."""
    if isinstance(module, nn.BatchNorm1d):
        return RowNorm.like(module)
    if isinstance(module, nn.modules.batchnorm._NormBase):
        raise ValueError(f"of layers with statistics only BatchNorm1d is possible in a network, not {module}")
    for name, child in module.named_children():
        module._modules[name] = with_row_norms(child)
    return module
