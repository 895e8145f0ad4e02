"""Targets that were not observed: guesses to start from.

Two things tell of a missing entry: the same output in rows nearby, and the other outputs in the same row. Each guesses
entries that were observed, as if they had not been, and counts by how well it does.
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor

from candid.linalg import nearest

__all__ = ["fill_gaps"]

# The average of so many targets of the nearest among at most so many rows.
N_NEAREST, MOST_ROWS = 8, 5000
# Least eigenvalue of the covariance of the outputs, relative to the largest: a covariance of which every entry is from
# other rows need not be one.
LEAST_SHARE = 1e-2


@torch.no_grad()
def fill_gaps(x: Float[Tensor, "n d"], y: Float[Tensor, "n p"]) -> Float[Tensor, "n p"]:
    """Standardised targets with guesses in place of NaN; zero for an output that was observed in no row."""
    missing = torch.isnan(y)
    if not bool(missing.any()):
        return y
    filled = torch.where(missing, 0.0, y)
    same_row, row_errors = _from_other_outputs(filled, missing)
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
    """Guesses of one output at the rows of ``gaps``, and the mean square error of such guesses where it is known."""
    there = there[:: math.ceil(len(there) / MOST_ROWS)]
    points, known = x[there], y[there]
    guesses = known[nearest(points, x[gaps], min(N_NEAREST, len(there)))].mean(-1)
    if len(there) == 1:
        return guesses, known.square().mean()
    # Of those nearest to a known row, the first is itself.
    others = nearest(points, points, min(N_NEAREST + 1, len(there)))[:, 1:]
    return guesses, (known - known[others].mean(-1)).square().mean()


def _from_other_outputs(filled: Tensor, missing: Tensor) -> tuple[Tensor, Tensor]:
    """Guesses of all entries from the other outputs of their rows, and the mean square error of each output's."""
    there = (~missing).to(filled)
    # Covariances from the rows in which both outputs were observed
    covariance = (filled.mT @ filled) / (there.mT @ there).clamp_min(1.0)
    values, basis = torch.linalg.eigh(covariance)
    covariance = (basis * values.clamp_min(LEAST_SHARE * float(values.max()))) @ basis.mT
    # Outputs that were not observed are independent of the others: C⁻¹y of those that were, and CC⁻¹y of all
    pairs = there.unsqueeze(-1) * there.unsqueeze(-2)
    inverse = torch.linalg.inv(pairs * covariance + torch.diag_embed(1 - there))
    solved = (inverse @ filled.unsqueeze(-1)).squeeze(-1)
    # y − E[y | others] = (C⁻¹y)/diag(C⁻¹)
    errors = there * solved / inverse.diagonal(dim1=-2, dim2=-1)
    return solved @ covariance, errors.square().sum(0) / there.sum(0).clamp_min(1.0)
