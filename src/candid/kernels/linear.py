"""The linear kernel: Bayesian linear regression through the origin."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from candid.kernels.base import Kernel, check_features, row
from candid.kernels.precision import full_precision
from candid.kernels.units import leaf_in_units
from candid.parameters import Hyperparameter

__all__ = ["Linear"]


class Linear(Kernel):
    """k = Σ_i v_i x_i x'_i: functions that are straight and zero at the origin.

    Parameters
    ----------
    variance : float or sequence of float, default=1.0
        The prior variance v of the slopes, one for all features or one per feature.
    """

    variance: Hyperparameter

    def __init__(self, variance: Any = 1.0) -> None:
        super().__init__()
        self.variance = row(variance)

    def forward(self, x1: Tensor, x2: Tensor | None = None) -> Tensor:
        variance = self.variance.value
        check_features(self, variance.shape[-1], x1, x2)
        with full_precision(x1.device):
            if x2 is None:
                scaled = variance.sqrt() * x1
                return scaled @ scaled.mT
            scaled = variance * x1
            return scaled @ x2.to(scaled.dtype).mT

    def diagonal(self, x: Tensor) -> Tensor:
        check_features(self, self.variance.raw.shape[-1], x, None)
        return (self.variance.value * x.square()).sum(-1)

    def in_units(self, x_scale: Tensor, y_scale: Tensor, x_shift: Tensor | None = None) -> Kernel:
        # Slopes are per unit of the input.
        return leaf_in_units(self, {"variance": self.variance.value / x_scale.square()}, y_scale)
