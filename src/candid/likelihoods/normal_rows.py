"""Log-densities of rows under normal noise, with their gradient in closed form.

With r = y − mean,

    L = −½(log 2πV + (r² + v)/V),        ∂/∂mean = r/V,        ∂/∂v = −1/(2V),        ∂/∂V = ½((r² + v)/V − 1)/V.

With v = 0 that is log N(y; mean, V); with V = σ² it is the average of log N(y; f, σ²) over f ~ N(mean, v).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from candid.linalg import first_order

__all__ = ["normal_terms"]

LOG_2PI = math.log(2 * math.pi)


def normal_terms(y: Tensor, mean: Tensor, variance: Tensor, blur: Tensor | None = None) -> Tensor:
    """L for every entry; all arguments, of which ``blur`` is v (None: zero), broadcast with each other."""
    return _NormalTerms.apply(y, mean, variance, blur)  # pyright: ignore[reportReturnType]


class _NormalTerms(torch.autograd.Function):
    @staticmethod
    def forward(ctx, y: Tensor, mean: Tensor, variance: Tensor, blur: Tensor | None) -> Tensor:
        residual = y - mean
        squares = residual.square() if blur is None else torch.addcmul(blur, residual, residual)
        ratio = squares / variance
        ctx.save_for_backward(residual, variance, ratio)
        ctx.shapes = [None if values is None else values.shape for values in (y, mean, variance, blur)]
        return torch.add(ratio, variance.log().add_(LOG_2PI)).mul_(-0.5)

    @staticmethod
    @first_order
    def backward(ctx, grad: Tensor):  # pyright: ignore[reportIncompatibleMethodOverride]
        residual, variance, ratio = ctx.saved_tensors
        of_y, of_mean, of_variance, of_blur = ctx.needs_input_grad
        scaled, mean_bar, y_bar, variance_bar, blur_bar = grad / variance, None, None, None, None
        if of_mean or of_y:
            mean_bar = scaled * residual
            y_bar = -mean_bar if of_y else None
        if of_variance:
            # ½((r² + v)/V − 1)/V
            variance_bar = torch.addcmul(scaled, scaled, ratio, value=-1.0).mul_(-0.5)
        if of_blur:
            blur_bar = -0.5 * scaled
        bars = (y_bar, mean_bar, variance_bar, blur_bar)
        return tuple(
            None if bar is None else bar.sum_to_size(shape) for bar, shape in zip(bars, ctx.shapes, strict=True)
        )
