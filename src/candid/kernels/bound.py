"""Kernels between fixed points and rows that come later, perhaps one at a time.

A stationary kernel scales and centres its inputs, and sums their squares, before it multiplies them. For fixed points
that can be done once, and is most of the work of comparing a single row with them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial, reduce

import torch
from torch import Tensor

from candid.kernels.base import Kernel, check_features
from candid.kernels.composite import Product, Scale, Sum
from candid.kernels.gram import FEW_FEATURES
from candid.kernels.stationary import Stationary, known_lengthscale

__all__ = ["CrossCovariance", "bind"]

#: From rows (…, N, D) to their covariances (…, M, N) with M fixed points.
CrossCovariance = Callable[[Tensor], Tensor]


@torch.inference_mode(False)
@torch.no_grad()
def bind(kernel: Kernel, points: Tensor) -> CrossCovariance:
    """``x ↦ kernel(points, x)`` for the present values of ``points`` and hyper-parameters; differentiable."""
    if isinstance(kernel, (Sum, Product)):
        combine = torch.add if isinstance(kernel, Sum) else torch.mul
        parts = [bind(part, points) for part in kernel._own_parts()]
        return lambda x: reduce(combine, (part(x) for part in parts))
    if isinstance(kernel, Scale):
        amplitude, base = kernel.amplitude.value[..., None, None], bind(kernel.base, points)
        return lambda x: amplitude * base(x)
    # Few features need no squares, and float32 a precaution that depends on x.
    if isinstance(kernel, Stationary) and points.shape[-1] > FEW_FEATURES and points.dtype == torch.float64:
        return _BoundStationary(kernel, points)
    return partial(kernel, points)


class _BoundStationary:
    """A stationary kernel in float64, from many features to points."""

    def __init__(self, kernel: Stationary, points: Tensor) -> None:
        self._kernel, self._points = kernel, points
        self._evaluate, self._shapes = kernel.profile.evaluate, kernel.shapes()
        lengthscale = known_lengthscale(kernel)
        self._n_scales = lengthscale.shape[-1]
        self._rate = math.sqrt(kernel.profile.stretch) / lengthscale
        self._centre = points.mean(-2, keepdim=True)
        scaled = (points - self._centre) * self._rate
        # ‖a − b‖² = [1, ‖a‖², −2a]·[‖b‖², 1, b]
        self._left = torch.cat([torch.ones_like(scaled[..., :1]), _squared_norms(scaled), -2.0 * scaled], -1)

    def __call__(self, x: Tensor) -> Tensor:
        if torch.is_grad_enabled() and x.requires_grad:
            return self._kernel(self._points, x)
        check_features(self._kernel, self._n_scales, self._points, x)
        scaled = (x - self._centre) * self._rate
        right = torch.cat([_squared_norms(scaled), torch.ones_like(scaled[..., :1]), scaled], -1)
        return self._evaluate(self._left @ right.mT, *self._shapes)[0]


def _squared_norms(rows: Tensor) -> Tensor:
    return rows.square().sum(-1, keepdim=True)
