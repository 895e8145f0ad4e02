"""Targets that were not observed: guesses to start from.

Two things tell of a missing entry: the same output in rows nearby, and the other outputs in the same row. Each guesses
entries that were observed, as if they had not been, and counts by how well it does.
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor

from candid.engines.nearby import MOST_ROWS, N_NEAREST, others_nearby
from candid.linalg import incomplete_moments, nearest

__all__ = ["fill_gaps"]


@torch.no_grad()
def fill_gaps(x: Float[Tensor, "n d"], y: Float[Tensor, "n p"]) -> Float[Tensor, "n p"]:
    """Standardised targets with guesses in place of NaN; zero for an output that was observed in no row."""
    missing = torch.isnan(y)
    if not bool(missing.any()):
        return y
    filled = torch.where(missing, 0.0, y)
    same_row, row_errors = _from_other_outputs(y)
    for output in missing.any(0).nonzero().flatten().tolist():
        gaps, there = (part.nonzero().flatten() for part in (missing[:, output], ~missing[:, output]))
        if not len(there):
            continue
        near, error = _from_near_rows(x, y[:, output], gaps, there)
        # Weights in proportion to one over the mean square error
        share = error / (error + row_errors[output]).clamp_min(torch.finfo(y.dtype).tiny)
        alone = missing[gaps].all(-1)
        filled[gaps, output] = torch.where(alone, near, (1 - share) * near + share * same_row[gaps, output])
    return filled


def _from_near_rows(x: Tensor, y: Tensor, gaps: Tensor, there: Tensor) -> tuple[Tensor, Tensor]:
    """Guesses of one output at the rows of ``gaps``, and the mean square error to expect of each.

    It is known for rows of which the output was observed. Away from these, it grows as the square of the distance, as
    errors of a smooth function do.
    """
    there = there[:: math.ceil(len(there) / MOST_ROWS)]
    points, known = x[there], y[there]
    found = nearest(points, x[gaps], min(N_NEAREST, len(there)))
    guesses = known[found].mean(-1)
    if len(there) == 1:
        return guesses, known.square().mean().expand_as(guesses)
    others = others_nearby(points)
    error = (known - known[others].mean(-1)).square().mean()
    usual = _square_distances(points, points, others).mean().clamp_min(torch.finfo(x.dtype).tiny)
    return guesses, error * (_square_distances(x[gaps], points, found) / usual).clamp_min(1.0)


def _square_distances(x: Tensor, points: Tensor, found: Tensor) -> Tensor:
    """Of each row to those that were found, on average."""
    return (x.unsqueeze(-2) - points[found]).square().sum(-1).mean(-1)


def _from_other_outputs(y: Tensor) -> tuple[Tensor, Tensor]:
    """Guesses of missing entries from the other outputs of their rows, and the mean square error of each output's."""
    moments = incomplete_moments(y[:: math.ceil(len(y) / MOST_ROWS)])
    observed = (~torch.isnan(y)).sum(0)
    return moments.expected(y), moments.errors(y).square().sum(0) / observed.clamp_min(1)
