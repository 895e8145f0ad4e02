"""Rows that do not belong to the function that the others follow, found before training begins.

What a GP of neighbours says of each row without having seen it, f ~ N(m, v), leaves the score z = (y − m)/√(v + σ²).
Most scores tell how large they usually are. Outliers have far larger ones, and are farther from m than targets are from
each other: where a function is steep or the noise changes, large scores alone do not make an outlier. Outliers then say
the same as their neighbours, m. Without them the others are predicted better, so there are a few rounds of it.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from candid.engines.rows import Rows
from candid.families import Mean, Neighbours, pick_search
from candid.kernels import Kernel
from candid.likelihoods import Gaussian, normal_deviation
from candid.marginal import Batch

__all__ = ["Outliers", "find_outliers"]

# Outliers have scores so many times larger than usual ones, and are so many times the spread of targets away from m.
OUTLYING, GROSS = 4.0, 2.0
# Usual scores are not less than this, however much noise there seems to be among outliers.
LEAST_USUAL = 0.1
# Outliers that are found after so many rounds are all; so are those that one round finds again.
ROUNDS = 3
# Neighbours of a row, and rows at a time.
N_NEIGHBOURS, CHUNK = 32, 8192


@dataclass(frozen=True)
class Outliers:
    """Which targets are outliers, targets without them, and what neighbours say of every row; row × output."""

    where: Bool[Tensor, "n p"]
    targets: Float[Tensor, "n p"]
    mean: Float[Tensor, "n p"]
    variance: Float[Tensor, "n p"]


@torch.no_grad()
def find_outliers(kernel: Kernel, mean: Mean, noise: Tensor, rows: Rows, targets: Float[Tensor, "n p"]) -> Outliers:
    """Find the outliers among the targets of ``rows``, under a GP with noise variances ``noise`` (1 × output).

    ``targets`` are what neighbours show each other in the first round.
    """
    dtype = targets.dtype
    rows, targets, noise = rows.to(torch.float64), targets.double(), noise.double()
    kernel, mean = copy.deepcopy(kernel).double(), copy.deepcopy(mean).double()
    likelihood = Gaussian(known=noise.expand_as(targets)).to(rows.x)
    search = pick_search("auto", len(rows))
    family = Neighbours(kernel, mean, rows.x, likelihood.sites(targets), rows.weight, N_NEIGHBOURS, search=search)
    batches = [rows.batch(index) for index in torch.arange(len(rows), device=rows.x.device).split(CHUNK)]
    near = [family.near(batch) for batch in batches]
    spread = _spread(rows.y)
    latent, variance, where = targets, targets, torch.zeros_like(targets, dtype=torch.bool)
    for _ in range(ROUNDS):
        family.sites = likelihood.sites(targets)
        latent, variance = _left_out(family, batches, near)
        distance, deviation = (rows.y - latent).abs(), (variance + noise).sqrt()
        usual = normal_deviation(distance / deviation).clamp_min(LEAST_USUAL)
        before, where = where, (distance > OUTLYING * usual * deviation) & (distance > GROSS * spread) & (spread > 0)
        targets = torch.where(where, latent, rows.y)
        if torch.equal(where, before):
            break
    return Outliers(where, targets.to(dtype), latent.to(dtype), variance.to(dtype))


def _left_out(family: Neighbours, batches: list[Batch], near: list[Tensor]) -> tuple[Tensor, Tensor]:
    """Moments of every row given its neighbours."""
    marginals = [family.marginal(*pair) for pair in zip(batches, near, strict=True)]
    return torch.cat([part.mean for part in marginals]), torch.cat([part.variance for part in marginals])


def _spread(y: Float[Tensor, "n p"]) -> Float[Tensor, " p"]:
    """The standard deviation of normal numbers whose quartiles are as far from the median as the farther one here."""
    quartiles = y.sort(0).values[[len(y) // 4, len(y) // 2, 3 * len(y) // 4]]
    return 1.4826 * quartiles.diff(dim=0).amax(0)
