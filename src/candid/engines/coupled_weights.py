"""q(v) of latent functions that share outputs, in closed form from one pass over the rows in float64.

The best means of all latent functions are one linear regression: with regressors φ_w of the w-th of them, the
confidences h in the outputs of a row that were observed, and G = A diag(h) Aᵀ,

    coefficients = (I + Σ_n G_wv φ_w φ_vᵀ)⁻¹ Σ_n φ_w (A h r)_w          S_w⁻¹ = I + Σ_n G_ww φ_w φ_wᵀ

where all w and v are blocks of one system. By turns, one latent function after the other, this would take very long
where many entries are missing, because then several latent functions explain the same outputs.
"""

from __future__ import annotations

import copy

import torch
from torch import Tensor

from candid.engines.closed_form import opened, settle_weights
from candid.engines.rows import Rows
from candid.families import Regressors, Sparse
from candid.likelihoods import Coregionalised
from candid.likelihoods.partly_observed import observed_part
from candid.weights import optimal_weights

__all__ = ["solve_together"]

# A start needs no more rows than this, so many at a time.
MOST_ROWS, CHUNK = 10_000, 4096
# Coefficients of the largest system; larger ones are solved by turns.
MOST_COEFFICIENTS = 6000


@torch.no_grad()
def solve_together(
    family: Sparse,
    likelihood: Coregionalised,
    rows: Rows,
    beta: float = 1.0,
    residual_is_noise: bool = False,
    openness: float = 0.0,
) -> None:
    """Set the weights of the means and q(v), in place, to the best ones at the present hyper-parameters.

    The options are those of :func:`~candid.engines.closed_form.solve_weights`.
    """
    # The jitter that training will need, in its own precision
    family.evaluate(rows.batch(torch.zeros(1, dtype=torch.long, device=rows.x.device)))
    mean, regression = copy.deepcopy(family.mean).double(), family.regression()
    if regression(rows.x[:1].double()).mean.numel() > MOST_COEFFICIENTS:
        settle_weights(family, likelihood, rows, beta, openness)
        return
    exact = copy.deepcopy(likelihood).double()
    index = torch.randperm(len(rows), generator=torch.Generator().manual_seed(0))[:MOST_ROWS].to(rows.x.device)
    sums: _Sums | None = None
    for part in index.split(CHUNK):
        some = rows.subset(part).to(torch.float64)
        at_rows, at = regression(some.x), exact.at(part)
        observed, y = observed_part(some.y)
        variance = at.variance + at_rows.residual.mT @ at.mixing.square() if residual_is_noise else at.variance
        # h = w/(βσ²), and A h (y − Aᵀmu)
        confidence = torch.where(observed, some.weight.unsqueeze(-1) / (beta * variance), 0.0)
        pull = (confidence * (y - mean(some.x) @ at.mixing)) @ at.mixing.mT
        sums = sums or _Sums(at_rows)
        sums.add(at_rows, (at.mixing * confidence.unsqueeze(-2)) @ at.mixing.mT, pull)
    assert sums is not None
    share = float(rows.weight[index].double().sum()) / rows.total
    coefficients, _ = optimal_weights(sums.gram.flatten(2).flatten(0, 1) / share, sums.projection.flatten() / share)
    precision = sums.spread / share + torch.eye(sums.spread.shape[-1]).to(sums.spread)
    family.assign(coefficients.view_as(sums.projection), opened(precision, openness))


class _Sums:
    """Sums over rows: all pairs of regressors (W, J, W, J), their projections (W, J), and those of each S (W, M, M)."""

    def __init__(self, like: Regressors) -> None:
        n_latents, n_coefficients = like.mean.shape[:2]
        n_points = n_coefficients if like.spread is None else like.spread.shape[-2]
        self.gram = like.mean.new_zeros(n_latents, n_coefficients, n_latents, n_coefficients)
        self.projection = like.mean.new_zeros(n_latents, n_coefficients)
        self.spread = like.mean.new_zeros(n_latents, n_points, n_points)

    def add(self, at_rows: Regressors, confidence: Tensor, pull: Tensor) -> None:
        """Rows with G (n, W, W) and A h r (n, W)."""
        for w, features in enumerate(at_rows.mean):
            self.projection[w] += features @ pull[:, w]
            of_spread = features if at_rows.spread is None else at_rows.spread[w]
            self.spread[w] += (of_spread * confidence[:, w, w]) @ of_spread.mT
            for v in range(w + 1):
                block = (features * confidence[:, w, v]) @ at_rows.mean[v].mT
                self.gram[w, :, v] += block
                if v < w:
                    self.gram[v, :, w] += block.mT
