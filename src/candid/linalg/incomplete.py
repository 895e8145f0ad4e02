"""Rows of which some entries are missing, as if they were normal: their mean and covariance, and what is missing.

With the mean μ and covariance C, and o and m the observed and missing entries of a row,

    E y_m = μ_m + C_mo C_oo⁻¹ (y_o − μ_o)        cov y_m = C_mm − C_mo C_oo⁻¹ C_om.

Averages of y and of y yᵀ with these in place of what is missing give μ and C anew (expectation maximisation). Averages
of what was observed would do only if entries were missing at random: an output that was measured on half of the inputs
has another mean there.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

__all__ = ["IncompleteMoments", "incomplete_moments"]

# Rounds of expectation maximisation, and the change of μ and C, in units of the columns, below which there are no more.
MOST_ROUNDS, SMALL_CHANGE = 100, 1e-5
# Least eigenvalue of C relative to the largest.
LEAST_SHARE = 1e-5


@dataclass(frozen=True)
class IncompleteMoments:
    """μ and C."""

    mean: Float[Tensor, " p"]
    covariance: Float[Tensor, "p p"]

    def expected(self, y: Float[Tensor, "n p"]) -> Float[Tensor, "n p"]:
        """y with the expectation of what is NaN given the rest of the row."""
        missing = torch.isnan(y)
        solved, _ = self._solved(y, missing)
        return torch.where(missing, self.mean + solved @ self.covariance, y)

    def errors(self, y: Float[Tensor, "n p"]) -> Float[Tensor, "n p"]:
        """y − E[y | the other entries of the row] for each entry that was observed, and zero for others."""
        missing = torch.isnan(y)
        solved, inverse = self._solved(y, missing)
        # (C⁻¹(y − μ))/diag(C⁻¹)
        return torch.where(missing, 0.0, solved / inverse.diagonal(dim1=-2, dim2=-1))

    def renewed(self, y: Float[Tensor, "n p"], share: Float[Tensor, " n"]) -> IncompleteMoments:
        """One round, in which rows count by their share of all."""
        missing = torch.isnan(y)
        solved, inverse = self._solved(y, missing)
        filled = torch.where(missing, self.mean + solved @ self.covariance, y)
        mean = share @ filled
        centred = filled - mean
        # Σ cov y_m = C − C (Σ C_oo⁻¹) C, which is zero for entries that were observed
        left = self.covariance - self.covariance @ torch.einsum("n,npq->pq", share, inverse) @ self.covariance
        covariance = centred.mT @ (share.unsqueeze(-1) * centred) + left
        return IncompleteMoments(mean, _positive(0.5 * (covariance + covariance.mT)))

    def _solved(self, y: Tensor, missing: Bool[Tensor, "n p"]) -> tuple[Tensor, Tensor]:
        """C_oo⁻¹(y_o − μ_o) and C_oo⁻¹, with zeros for what is missing."""
        there = (~missing).to(self.mean)
        pairs = there.unsqueeze(-1) * there.unsqueeze(-2)
        # Entries that are missing are made independent of the others.
        inverse = torch.linalg.inv(pairs * self.covariance + torch.diag_embed(1 - there)) * pairs
        return (inverse @ torch.where(missing, 0.0, y - self.mean).unsqueeze(-1)).squeeze(-1), inverse


@torch.no_grad()
def incomplete_moments(y: Float[Tensor, "n p"], weight: Float[Tensor, " n"] | None = None) -> IncompleteMoments:
    """Mean and covariance of rows with NaN; the columns should be of order one, and none of them all NaN."""
    share = y.new_ones(len(y)) if weight is None else weight
    share = share / share.sum()
    there = (~torch.isnan(y)).to(y)
    totals = (share @ there).clamp_min(torch.finfo(y.dtype).tiny)
    mean = share @ y.nan_to_num(0.0) / totals
    variance = share @ (there * (y.nan_to_num(0.0) - mean).square()) / totals
    moments = IncompleteMoments(mean, _positive(torch.diag(variance)))
    for _ in range(MOST_ROUNDS):
        before, moments = moments, moments.renewed(y, share)
        change = max(
            float((now - then).abs().max())
            for now, then in ((moments.mean, before.mean), (moments.covariance, before.covariance))
        )
        if change < SMALL_CHANGE:
            break
    return moments


def _positive(covariance: Float[Tensor, "p p"]) -> Float[Tensor, "p p"]:
    """With no eigenvalue below a share of the largest."""
    values, basis = torch.linalg.eigh(covariance)
    least = max(LEAST_SHARE * float(values.max()), torch.finfo(values.dtype).tiny)
    return (basis * values.clamp_min(least)) @ basis.mT
