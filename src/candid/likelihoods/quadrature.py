"""Averages over f ~ N(mean, variance) by fixed rules: E g(f), and log E p(f) for densities of any size.

Functions of f are called with one more axis in front, that of the nodes; whatever else they use has to broadcast
against ``mean`` from the right.

The nodes are evenly spaced and not those of Gauss and Hermite. Both rules converge exponentially for smooth integrands,
but what limits them here is a likelihood that changes within one unit of f while the latent deviation is 16 units. Then
only the distance of neighbouring nodes counts, and of as many Gauss–Hermite nodes it is more than twice as large.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache

import numpy as np
import torch
from torch import Tensor

__all__ = ["average", "deviation_of", "gauss_hermite", "log_average", "positions", "window"]

# With 96 nodes, E log σ(f) is good to 1e-8 up to variance 64, to 1e-5 at 256 and to 1e-3 at 1024.
N_NODES = 96
# N(f; mean, variance) is left out where it is below exp(−REACH²/2) = 7e-10 of its height.
REACH = 6.5
MODE_STEPS, END_STEPS = 40, 14

Function = Callable[[Tensor], Tensor]


@cache
@torch.inference_mode(False)
def gauss_hermite(n_nodes: int, dtype: torch.dtype, device: torch.device) -> tuple[Tensor, Tensor]:
    """Nodes x and weights ω with E g(x) = Σ ω g(x) over x ~ N(0, 1), exact for polynomials below degree 2n."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(n_nodes)
    return torch.tensor(nodes, dtype=dtype, device=device), torch.tensor(
        weights / weights.sum(), dtype=dtype, device=device
    )


@cache
@torch.inference_mode(False)
def positions(n_nodes: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Middles of ``n_nodes`` equal parts of (0, 1)."""
    return (torch.arange(n_nodes, dtype=dtype, device=device) + 0.5) / n_nodes


def average(function: Function, mean: Tensor, variance: Tensor, n_nodes: int = N_NODES) -> Tensor:
    """E g(f) for f ~ N(mean, variance)."""
    mean, variance = torch.broadcast_tensors(mean, variance)
    x = REACH * (2 * positions(n_nodes, mean.dtype, mean.device) - 1)
    # Σ φ(x_j) g(mean + deviation·x_j) / Σ φ(x_j)
    weight = torch.softmax(-0.5 * x.square(), dim=0)
    f = mean + deviation_of(variance) * x.view(-1, *[1] * mean.ndim)
    return torch.tensordot(weight, function(f), dims=1)


def log_average(
    log_density: Function,
    mean: Tensor,
    variance: Tensor,
    ends: tuple[Tensor, Tensor],
    n_nodes: int = N_NODES,
) -> Tensor:
    """log E p(f) for f ~ N(mean, variance).

    ``ends`` are those of :func:`window`. The nodes do not move with mean and variance when this is differentiated: the
    sum does not depend on where they are.
    """
    mean, variance = torch.broadcast_tensors(mean, variance)
    low, high = (end.expand_as(mean) for end in ends)
    share = positions(n_nodes, mean.dtype, mean.device).view(-1, *[1] * mean.ndim)
    x = low + (high - low) * share
    # log Σ p(mean + deviation·x_j) φ(x_j) Δ
    log_step = torch.log((high - low) / n_nodes) - 0.5 * math.log(2 * math.pi)
    return torch.logsumexp(log_density(mean + deviation_of(variance) * x) - 0.5 * x.square(), dim=0) + log_step


@torch.no_grad()
def window(log_density: Function, slope: Function, mean: Tensor, variance: Tensor) -> tuple[Tensor, Tensor]:
    """Where p(f)·N(f; mean, variance) is not negligible, in latent deviations from the mean.

    For log-concave p, whose logarithm has the (decreasing) derivative ``slope``. A likelihood may move all of the mass
    far away from the mean, and cut it off sharply on one side: then nodes around the mean would miss it.
    """
    mean, variance = torch.broadcast_tensors(mean, variance)
    deviation = deviation_of(variance)

    def height(x: Tensor) -> Tensor:
        return log_density(mean + deviation * x) - 0.5 * x.square()

    # The mode solves x = deviation · slope, and the slope there is between zero and that at the mean.
    start, pull = torch.zeros_like(mean), deviation * slope(mean)
    bracket = torch.minimum(start, pull), torch.maximum(start, pull)
    mode, _ = _bisect(lambda x: deviation * slope(mean + deviation * x) > x, *bracket, MODE_STEPS)
    # log p is concave, so the logarithm of the product falls by at least ½x² within a distance of x.
    bottom = height(mode) - 0.5 * REACH**2
    low, _ = _bisect(lambda x: height(x) < bottom, mode - REACH, mode, END_STEPS)
    _, high = _bisect(lambda x: height(x) > bottom, mode, mode + REACH, END_STEPS)
    return low, high


def _bisect(is_right: Function, low: Tensor, high: Tensor, steps: int) -> tuple[Tensor, Tensor]:
    """Ends of an interval around the place where ``is_right`` (the place is right of here) turns false."""
    for _ in range(steps):
        middle = 0.5 * (low + high)
        right = is_right(middle)
        low, high = torch.where(right, middle, low), torch.where(right, high, middle)
    return low, high


def deviation_of(variance: Tensor) -> Tensor:
    """√variance, with a derivative at zero too: a variance of one rounding error changes nothing else."""
    return torch.sqrt(variance + torch.finfo(variance.dtype).eps)
