"""Stationary kernels: covariance falls with the distance d, where d² = Σ_i (x_i − x'_i)²/ℓ_i².

References
----------
C. E. Rasmussen and C. K. I. Williams, Gaussian Processes for Machine Learning (2006), section 4.2.
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor

from candid.kernels import profiles
from candid.kernels.base import Kernel, check_features, row
from candid.kernels.gram import stationary_gram
from candid.kernels.units import leaf_in_units
from candid.parameters import Hyperparameter

__all__ = [
    "RBF",
    "Matern12",
    "Matern32",
    "Matern52",
    "RationalQuadratic",
    "Stationary",
    "known_lengthscale",
    "unit_diagonal",
]


class Stationary(Kernel):
    """Base of the kernels with a lengthscale; k(x, x) = 1.

    Parameters
    ----------
    lengthscale : float, sequence of float or None, default=None
        One value, or one per feature. None means √D, decided when the kernel is built for D features.
    """

    #: The covariance as a function of distance.
    profile: ClassVar[profiles.Profile]
    lengthscale: Hyperparameter

    def __init__(self, lengthscale: Any = None) -> None:
        super().__init__()
        self.register_module("lengthscale", None if lengthscale is None else row(lengthscale))

    def shapes(self) -> tuple[Tensor, ...]:
        """Present values of the profile's shape parameters."""
        return ()

    def forward(self, x1: Tensor, x2: Tensor | None = None) -> Tensor:
        lengthscale = known_lengthscale(self)
        check_features(self, lengthscale.shape[-1], x1, x2)
        return stationary_gram(self.profile, x1, x2, lengthscale, *self.shapes())

    def diagonal(self, x: Tensor) -> Tensor:
        return unit_diagonal(built_lengthscale(self).raw, x)

    def in_units(self, x_scale: Tensor, y_scale: Tensor, x_shift: Tensor | None = None) -> Kernel:
        return leaf_in_units(self, {"lengthscale": known_lengthscale(self) * x_scale}, y_scale)


class RBF(Stationary):
    """k = exp(−d²/2): infinitely smooth functions. Also known as squared exponential or Gaussian."""

    profile = profiles.RBF


class Matern12(Stationary):
    """k = exp(−d): continuous, nowhere differentiable functions."""

    profile = profiles.MATERN12


class Matern32(Stationary):
    """k = (1 + √3 d) exp(−√3 d): once differentiable functions."""

    profile = profiles.MATERN32


class Matern52(Stationary):
    """k = (1 + √5 d + 5d²/3) exp(−√5 d): twice differentiable functions."""

    profile = profiles.MATERN52


class RationalQuadratic(Stationary):
    """k = (1 + d²/(2α))^(−α): a mixture of RBF kernels with many lengthscales; α → ∞ is one RBF.

    Parameters
    ----------
    lengthscale : float, sequence of float or None, default=None
        One value, or one per feature. None means √D, decided when the kernel is built for D features.
    alpha : float, default=1.0
        The smaller, the heavier the tail.
    """

    profile = profiles.RATIONAL_QUADRATIC
    alpha: Hyperparameter

    def __init__(self, lengthscale: Any = None, alpha: Any = 1.0) -> None:
        super().__init__(lengthscale)
        self.alpha = row(alpha)
        if self.alpha.raw.shape[-1] != 1:
            raise ValueError(
                "RationalQuadratic has one alpha for all features; only lengthscales may differ by feature"
            )

    def shapes(self) -> tuple[Tensor, ...]:
        return (self.alpha.value,)


def known_lengthscale(kernel: Kernel) -> Tensor:
    """The value of the lengthscale, or an error that says how to get one."""
    return built_lengthscale(kernel).value


def built_lengthscale(kernel: Kernel) -> Hyperparameter:
    """The lengthscale, or an error that says how to get one."""
    lengthscale = kernel.lengthscale
    if not isinstance(lengthscale, Hyperparameter):
        raise ValueError(
            f"{type(kernel).__name__} has no lengthscale yet: it becomes √D when the kernel is built for D features. "
            f"Call kernel.build(n_features) first, or give a lengthscale"
        )
    return lengthscale


def unit_diagonal(lengthscale: Tensor, x: Tensor) -> Tensor:
    """Ones, one per row of ``x`` and entry of the kernel's batch."""
    # A sum has the shape and the dtype that both broadcast to, and finds them faster than a function for shapes does.
    return torch.ones_like(x[..., 0] + lengthscale[..., 0])
