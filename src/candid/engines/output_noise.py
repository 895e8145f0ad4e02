"""The noise of several outputs that share latent functions, or are partly observed."""

from __future__ import annotations

import torch

from candid.engines.rows import Rows
from candid.families import Family
from candid.likelihoods import Coregionalised, PartlyObserved

__all__ = ["match_output_noise"]

# A start needs no more rows than this, so many at a time.
MOST_ROWS, CHUNK = 10_000, 4096


@torch.no_grad()
def match_output_noise(
    family: Family, likelihood: Coregionalised | PartlyObserved, rows: Rows, variance_is_noise: bool = True
) -> None:
    """Move the noise variances, in place, to the best ones for the ELBO at the present q(v).

    They are the averages of E(y − Aᵀf)² = (y − Aᵀmean)² + (A²)ᵀvariance over the rows in which an output was observed.
    Unless ``variance_is_noise``, the second term is left out, and the noise only becomes less: objectives that count
    the variance as spread of the prediction find errors of the inducing points there.
    """
    noise = likelihood.noise.noise
    if noise is None or noise.fixed:
        return
    n_outputs = rows.y.shape[1]
    coupled = isinstance(likelihood, Coregionalised)
    mixing = likelihood.mixing.value if coupled else torch.eye(n_outputs).to(rows.y)
    index = torch.randperm(len(rows), generator=torch.Generator().manual_seed(0))[:MOST_ROWS].to(rows.x.device)
    squares, weights = torch.zeros(2, n_outputs, dtype=torch.float64, device=rows.y.device)
    for part in index.split(CHUNK):
        batch = rows.batch(part)
        marginal = family.evaluate(batch).marginal
        square = (batch.y - marginal.mean @ mixing).square()
        if variance_is_noise:
            square = square + marginal.variance @ mixing.square()
        observed = ~torch.isnan(batch.y)
        squares += (batch.weight @ torch.where(observed, square, 0.0)).double()
        weights += (batch.weight @ observed.to(square)).double()
    best = squares / weights.clamp_min(torch.finfo(weights.dtype).tiny)
    present = noise.value.flatten().double()
    best = torch.where(weights > 0, best if variance_is_noise else torch.minimum(best, present), present)
    likelihood.noise.adopt(best.to(noise.value), rows.y)
