"""How targets change from rows to those nearby."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor

from candid.linalg import nearest

__all__ = ["MOST_ROWS", "N_NEAREST", "changes_nearby", "others_nearby"]

#: Averages are of so many rows, the nearest ones among at most so many.
N_NEAREST, MOST_ROWS = 8, 5000


@torch.no_grad()
def changes_nearby(x: Float[Tensor, "n d"], y: Float[Tensor, "n p"]) -> Float[Tensor, "m p"]:
    """Targets of some rows, or of all, less the averages of the rows nearest to each; none for a single row."""
    some = slice(None, None, math.ceil(len(x) / MOST_ROWS))
    x, y = x[some], y[some]
    if len(x) == 1:
        return y[:0]
    return y - y[others_nearby(x)].mean(-2)


def others_nearby(x: Float[Tensor, "n d"]) -> Int[Tensor, "n k"]:
    """Which rows are nearest to each of two or more."""
    # The first of them is the row itself.
    return nearest(x, x, min(N_NEAREST + 1, len(x)))[:, 1:]
