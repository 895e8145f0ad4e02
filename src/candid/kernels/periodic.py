"""The periodic kernel.

References
----------
D. J. C. MacKay, Introduction to Gaussian processes (1998), section 5.2.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from candid.kernels import profiles
from candid.kernels.base import Kernel, check_features, row
from candid.kernels.gram import stationary_gram
from candid.kernels.stationary import known_lengthscale, unit_diagonal
from candid.kernels.units import leaf_in_units
from candid.parameters import Hyperparameter

__all__ = ["Periodic"]


class Periodic(Kernel):
    """k = exp(−2 Σ_i sin²(π (x_i − x'_i)/p_i)/ℓ_i²): functions that repeat.

    Parameters
    ----------
    period : float or sequence of float, default=1.0
        The period p, in units of the input; one for all features or one per feature.
    lengthscale : float, sequence of float or None, default=None
        Smoothness within a period. None means √D, decided when the kernel is built for D features.
    """

    period: Hyperparameter
    lengthscale: Hyperparameter

    def __init__(self, period: Any = 1.0, lengthscale: Any = None) -> None:
        super().__init__()
        self.period = row(period)
        self.register_module("lengthscale", None if lengthscale is None else row(lengthscale))

    def forward(self, x1: Tensor, x2: Tensor | None = None) -> Tensor:
        period, lengthscale = self.period.value, known_lengthscale(self)
        check_features(self, period.shape[-1], x1, x2)
        check_features(self, lengthscale.shape[-1], x1, x2)
        if lengthscale.shape[-1] > 1:
            lengthscale = torch.cat([lengthscale, lengthscale], -1)
        # An RBF kernel of points on circles: 4 sin²((s − t)/2) = ‖(cos s, sin s) − (cos t, sin t)‖².
        circle2 = None if x2 is None else _circle(x2, period)
        return stationary_gram(profiles.RBF, _circle(x1, period), circle2, lengthscale)

    def diagonal(self, x: Tensor) -> Tensor:
        return unit_diagonal(known_lengthscale(self), x)

    def in_units(self, x_scale: Tensor, y_scale: Tensor, x_shift: Tensor | None = None) -> Kernel:
        # The lengthscale is a share of the period and has no unit.
        return leaf_in_units(self, {"period": self.period.value * x_scale}, y_scale)


def _circle(x: Tensor, period: Tensor) -> Tensor:
    angle = 2.0 * math.pi * x / period
    return torch.cat([torch.cos(angle), torch.sin(angle)], -1)
