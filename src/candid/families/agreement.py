"""Sites that agree with the latent function they imply.

Given an auxiliary variable, a label says of the latent function what a real number with normal noise says. Which
variable that is depends on the function: of ω ~ PG(1, c), c² = E f², the mean is what q(ω) in a mean-field posterior
has. In training, each row's own variable serves the rows around it, and those of a rare class learn to be overheard.
So predictions have variables that belong to the function at their rows: given what the neighbours of a row say of it,
f ~ N(m, v), and a target t with noise variance s,

    f | t ~ N(V(m/v + t/s), V),    V = (1/v + 1/s)⁻¹,    t, s ← those of such an f,

for all rows at a time, until little changes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from candid.likelihoods import Sites
from candid.marginal import Batch

if TYPE_CHECKING:
    from candid.families.neighbours import Neighbours

__all__ = ["agreed_sites"]

# Noise variances that change by less than this share agree; after so many rounds they are taken as they are.
TOLERANCE, MOST_ROUNDS = 1e-2, 20
# Rows at a time.
CHUNK = 8192


class _Known(Sites):
    """Targets and noise variances of all training rows."""

    def __init__(self, targets: Tensor, noise: Tensor) -> None:
        super().__init__()
        self.targets, self.noise = targets, noise

    def forward(self, index: Tensor) -> tuple[Tensor, Tensor]:
        return self.targets[index], self.noise[index]


@torch.no_grad()
def agreed_sites(family: Neighbours) -> Callable[[Tensor], tuple[Tensor, Tensor]]:
    """What predictions see of training rows, by their numbers; changes the sites of ``family``, which is a copy."""
    sites, n_rows = family.sites, len(family.weight)
    every = torch.arange(n_rows, device=family.weight.device)
    if sites.agreeing(every[:0], *(sites.targets[:0],) * 2) is None:
        return sites.settled
    known = _Known(*sites.settled(every))
    batches = [
        Batch(family.rows.x[index], known.targets[index], family.weight[index], float(n_rows), index)
        for index in every.split(CHUNK)
    ]
    near = [family.near(batch) for batch in batches]
    for _ in range(MOST_ROUNDS):
        family.sites = known
        agreeing = [_agreeing(family, sites, *pair) for pair in zip(batches, near, strict=True)]
        before, known = known, _Known(*(torch.cat(parts) for parts in zip(*agreeing, strict=True)))
        if bool(((known.noise / before.noise).log().abs() < TOLERANCE).all()):
            break
    return known


def _agreeing(family: Neighbours, sites: Sites, batch: Batch, near: Tensor) -> tuple[Tensor, Tensor]:
    """Sites of some rows that belong to what the present ones say."""
    assert batch.index is not None
    marginal = family.marginal(batch, near)
    targets, noise = family.sites(batch.index)
    variance = (1 / marginal.variance + 1 / noise).reciprocal()
    found = sites.agreeing(batch.index, variance * (marginal.mean / marginal.variance + targets / noise), variance)
    assert found is not None
    return found
