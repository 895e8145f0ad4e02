"""Networks that see the inducing points of a layer one at a time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import torch
from jaxtyping import Float
from torch import Tensor, nn

__all__ = ["PointNetwork"]


class PointNetwork(nn.Module):
    """Fully connected layers, one network for each GP, whose weights all points of the GP share.

    Between layers there is x·σ(x), which is smooth; the last one is linear.

    Parameters
    ----------
    n_inputs : int
    widths : sequence of int
        Of each layer; the last one is the number of outputs.
    n_gps : int
    seed : int
        Of the initial weights, which keep the size of their inputs; biases start from zero.
    silent : bool, default=False
        Whether the last layer starts from zero, and with it all that comes out.
    """

    def __init__(self, n_inputs: int, widths: Sequence[int], n_gps: int, seed: int, silent: bool = False) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        starts = [
            torch.randn(n_gps, below, above, generator=generator) / math.sqrt(below)
            for below, above in pairwise((n_inputs, *widths))
        ]
        if silent:
            starts[-1].zero_()
        self.slopes = nn.ParameterList([nn.Parameter(start) for start in starts])
        self.biases = nn.ParameterList([nn.Parameter(torch.zeros(n_gps, 1, width)) for width in widths])

    def forward(self, x: Float[Tensor, "p n inputs"], frozen: bool = False) -> Float[Tensor, "p n outputs"]:
        """Outputs at n points, or draws of points, of each GP; no gradient reaches the weights of a ``frozen`` one."""
        layers = list(zip(self.slopes, self.biases, strict=True))
        for number, (slope, bias) in enumerate(layers):
            if frozen:
                slope, bias = slope.detach(), bias.detach()
            x = torch.baddbmm(bias, x, slope)
            if number < len(layers) - 1:
                x = nn.functional.silu(x)
        return x
