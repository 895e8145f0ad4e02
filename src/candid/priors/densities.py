"""Prior densities of hyper-parameters, and bounds. All are small immutable records that can be written as JSON.

They speak of the hyper-parameter as the model sees it, that is on the standardised table unless ``standardize=False``.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

__all__ = ["Gamma", "HalfNormal", "Interval", "LogNormal", "Normal", "Prior"]

HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)


class Prior(ABC):
    """A prior density of one hyper-parameter."""

    #: The hyper-parameter has to stay above this.
    support: ClassVar[float] = -math.inf
    #: Whether it is the density of the logarithm.
    of_logarithm: ClassVar[bool] = False

    @abstractmethod
    def log_density(self, value: Tensor) -> Tensor:
        """Log-density of each entry of ``value``."""


def _require_positive(**numbers: float) -> None:
    for name, number in numbers.items():
        if not number > 0:
            raise ValueError(f"{name} of a prior must be positive, got {number}")


@dataclass(frozen=True)
class Normal(Prior):
    """value ~ N(mean, std²)."""

    mean: float = 0.0
    std: float = 1.0

    def __post_init__(self) -> None:
        _require_positive(std=self.std)

    def log_density(self, value: Tensor) -> Tensor:
        return -0.5 * ((value - self.mean) / self.std).square() - math.log(self.std) - HALF_LOG_2PI


@dataclass(frozen=True)
class LogNormal(Prior):
    """log value ~ N(log median, spread²).

    The density is that of the logarithm, without a Jacobian: its mode is at the median, whatever the parameterisation.
    """

    support: ClassVar[float] = 0.0
    of_logarithm: ClassVar[bool] = True
    median: float = 1.0
    spread: float = 1.0

    def __post_init__(self) -> None:
        _require_positive(median=self.median, spread=self.spread)

    def log_density(self, value: Tensor) -> Tensor:
        score = (value.log() - math.log(self.median)) / self.spread
        return -0.5 * score.square() - math.log(self.spread) - HALF_LOG_2PI


@dataclass(frozen=True)
class Gamma(Prior):
    """value ~ Gamma(shape, rate), with mean shape/rate."""

    support: ClassVar[float] = 0.0
    shape: float = 2.0
    rate: float = 1.0

    def __post_init__(self) -> None:
        _require_positive(shape=self.shape, rate=self.rate)

    def log_density(self, value: Tensor) -> Tensor:
        constant = self.shape * math.log(self.rate) - math.lgamma(self.shape)
        return constant + (self.shape - 1) * value.log() - self.rate * value


@dataclass(frozen=True)
class HalfNormal(Prior):
    """The absolute value of a N(0, scale²) variable."""

    support: ClassVar[float] = 0.0
    scale: float = 1.0

    def __post_init__(self) -> None:
        _require_positive(scale=self.scale)

    def log_density(self, value: Tensor) -> Tensor:
        density = math.log(2) - math.log(self.scale) - HALF_LOG_2PI - 0.5 * (value / self.scale).square()
        return torch.where(value >= 0, density, -math.inf)


@dataclass(frozen=True)
class Interval:
    """Not a density but a bound: the hyper-parameter stays strictly between ``lower`` and ``upper``."""

    lower: float = 0.0
    upper: float = math.inf

    def __post_init__(self) -> None:
        if not self.lower < self.upper:
            raise ValueError(f"an interval needs lower < upper, got ({self.lower}, {self.upper})")
