"""Units in which neighbours are near."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from jaxtyping import Float
from torch import Tensor

from candid.kernels import Deep, Kernel, Stationary

__all__ = ["metric_of"]


@torch.no_grad()
def metric_of(kernel: Kernel, n_features: int) -> Float[Tensor, " d"]:
    """What inputs are divided by before distances are measured: one length for each feature.

    It is ℓ for one stationary kernel. Otherwise 1/length² is the average of 1/ℓ² over the outputs, the chains and the
    stationary parts of the kernel, whatever their amplitudes: so the shortest lengthscale decides how near is near.
    Linear and periodic parts do not count, nor does what is behind a network; without any stationary part the inputs
    are compared as they are.
    """
    parts = [part.lengthscale.value for part in _stationary_parts(kernel)]
    if not parts:
        return torch.ones(n_features)
    logarithms = torch.cat([value.expand(*value.shape[:-1], n_features).flatten(0, -2) for value in parts]).log()
    # length = (mean of ℓ⁻²)^(−½)
    return torch.exp(-0.5 * (torch.logsumexp(-2.0 * logarithms, 0) - math.log(len(logarithms))))


def _stationary_parts(kernel: Kernel) -> Iterator[Stationary]:
    """Those whose lengthscales are of inputs."""
    if isinstance(kernel, Stationary):
        yield kernel
    elif not isinstance(kernel, Deep):
        for part in kernel._own_parts():
            yield from _stationary_parts(part)
