"""Normal numbers that belong to rows: pure functions of a seed, a step and the number of a row.

Rows that are looked up in any order and as often as one likes find the same numbers, and none are made for the others.
They come from the output function of SplitMix64 (Steele, Lea, Flood 2014), applied to a counter.
"""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

__all__ = ["normal_numbers"]

# Odd multipliers, and shifts of the output function; numbers above 2⁶³ are written as signed ones.
STRIDE = 0x9E3779B97F4A7C15 - 2**64
ROUNDS = ((30, 0xBF58476D1CE4E5B9 - 2**64), (27, 0x94D049BB133111EB - 2**64))
LAST_SHIFT = 31
BITS = 53


def normal_numbers(rows: Int[Tensor, " n"], n_columns: int, *key: int) -> Float[Tensor, "n columns"]:
    """Standard normal numbers of each of some rows, in float64; other ``key``s (seed, step, …) give others."""
    (start,) = np.random.SeedSequence(key).generate_state(1, np.uint64).view(np.int64)
    counter = rows.unsqueeze(-1) * n_columns + torch.arange(n_columns, device=rows.device)
    mixed = int(start) + STRIDE * counter
    for shift, multiplier in ROUNDS:
        mixed = (mixed ^ _shifted(mixed, shift)) * multiplier
    mixed = mixed ^ _shifted(mixed, LAST_SHIFT)
    # Middles of 2⁵³ equal parts of (0, 1); where float64 cannot tell the last one from 1, it is half a part below.
    uniform = ((_shifted(mixed, 64 - BITS).double() + 0.5) / 2**BITS).clamp_max(1 - 2.0**-BITS)
    return torch.special.ndtri(uniform)


def _shifted(bits: Tensor, by: int) -> Tensor:
    """To the right, with zeros from the left."""
    return (bits >> by) & ((1 << (64 - by)) - 1)
