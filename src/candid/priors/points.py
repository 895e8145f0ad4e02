"""Priors of inducing inputs, which speak of the inputs as the model sees them (standardised unless told otherwise).

A uniform density, and that of a process of points which only repel each other, needs a bounded space: all of ℝ^D would
make the posterior improper. So these live in a :class:`Box` around the data, whose walls are soft.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from candid.kernels import Kernel
from candid.linalg import normal_log_density

__all__ = ["POINT_PRIORS", "Box", "DeterminantalPoints", "NormalPoints", "PointPrior", "StraussPoints", "UniformPoints"]

LOG_2PI = math.log(2 * math.pi)
# Softness of a wall, as a share of the width of the box.
SOFTNESS = 0.05
# A box is wider than the data by this share, and at least so wide.
MARGIN, LEAST_WIDTH = 0.1, 1e-3
# Radius of the Strauss process in units of the softness of its indicator.
SHARPNESS = 10.0
# Share of the diagonal at which the factorisation of K_zz starts.
JITTER = 1e-6


@dataclass(frozen=True)
class Box:
    """A uniform density with the tails of a normal one beyond its walls."""

    lower: Float[Tensor, " d"]
    upper: Float[Tensor, " d"]

    @staticmethod
    def around(x: Float[Tensor, "n d"]) -> Box:
        """A little wider than the data."""
        lower, upper = x.amin(0), x.amax(0)
        margin = (MARGIN * (upper - lower)).clamp_min(LEAST_WIDTH)
        return Box(lower - margin, upper + margin)

    def log_density(self, points: Float[Tensor, "*batch m d"]) -> Float[Tensor, "*batch"]:
        """Of all points together."""
        lower, upper = self.lower.to(points), self.upper.to(points)
        softness = SOFTNESS * (upper - lower)
        beyond = (points - upper).clamp_min(0.0) + (lower - points).clamp_min(0.0)
        # ∫ exp(−½ (beyond/s)²) = width + s√(2π)
        volume = (upper - lower + softness * math.sqrt(2 * math.pi)).log()
        return -(0.5 * (beyond / softness).square() + volume).sum((-2, -1))


class PointPrior(ABC):
    """A density of all inducing inputs of one GP together, up to a constant factor."""

    @abstractmethod
    def log_density(self, points: Float[Tensor, "*batch m d"], unit: Kernel) -> Float[Tensor, "*batch"]:
        """For each entry of a batch; ``unit`` is the kernel without its amplitude."""


@dataclass(frozen=True)
class NormalPoints(PointPrior):
    """Each z ~ N(0, I): inducing inputs are spread like the rows of a standardised table."""

    def log_density(self, points: Float[Tensor, "*batch m d"], unit: Kernel) -> Float[Tensor, "*batch"]:
        return -0.5 * (points.square() + LOG_2PI).sum((-2, -1))


@dataclass(frozen=True)
class UniformPoints(PointPrior):
    """Anywhere in a box around the data."""

    box: Box

    def log_density(self, points: Float[Tensor, "*batch m d"], unit: Kernel) -> Float[Tensor, "*batch"]:
        return self.box.log_density(points)


@dataclass(frozen=True)
class DeterminantalPoints(PointPrior):
    """p(Z) ∝ det K_zz with a kernel of unit amplitude, in a box: points whose values are alike repel each other.

    What normalises it depends on the kernel's hyper-parameters and is left out, as in the paper on BSGP: jointly with
    them it is not a density of Z given these, but one of both.
    """

    box: Box

    def log_density(self, points: Float[Tensor, "*batch m d"], unit: Kernel) -> Float[Tensor, "*batch"]:
        gram = unit(points)
        nothing = gram.new_zeros(gram.shape[:-1])
        # log det K = −2 log N(0; 0, K) − M log 2π
        log_det = -2 * normal_log_density(gram, nothing, JITTER) - gram.shape[-1] * LOG_2PI
        return log_det + self.box.log_density(points)


@dataclass(frozen=True)
class StraussPoints(PointPrior):
    """p(Z) ∝ γ^(pairs of points nearer than r) in a box, with an indicator that has a slope.

    A pair at distance d counts 1/(1 + exp((d − r)/s)), where s is a tenth of r. The intensity of the process is a
    constant where the number of points is.
    """

    box: Box
    gamma: float = 0.5
    radius: float = 0.5

    def log_density(self, points: Float[Tensor, "*batch m d"], unit: Kernel) -> Float[Tensor, "*batch"]:
        first, second = torch.triu_indices(points.shape[-2], points.shape[-2], 1, device=points.device)
        squares = (points[..., first, :] - points[..., second, :]).square().sum(-1)
        # Where two points are the same, the distance has no slope.
        distance = squares.clamp_min(torch.finfo(points.dtype).tiny).sqrt()
        near = torch.sigmoid(SHARPNESS * (1 - distance / self.radius))
        return math.log(self.gamma) * near.sum(-1) + self.box.log_density(points)


#: Priors by the name under which estimators speak of them, made from a box around the data.
POINT_PRIORS: dict[str, Callable[[Box], PointPrior]] = {
    "normal": lambda box: NormalPoints(),
    "uniform": UniformPoints,
    "determinantal": DeterminantalPoints,
    "strauss": StraussPoints,
}
