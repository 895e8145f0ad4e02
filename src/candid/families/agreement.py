"""Sites that agree with the latent function they imply.

Given an auxiliary variable, a label says of the latent function what a real number with normal noise says. Which
variable that is depends on the function: of ω ~ PG(1, c), c² = E f², the mean is what q(ω) of a mean-field posterior
has. In training, each row's own variable serves the rows around it, and those of a rare class learn to be overheard.
So predictions have variables that belong to the function at their rows: given what the neighbours of a row say of it,
f ~ N(m, v), and a target t with noise variance s,

    f | t ~ N(V(m/v + t/s), V),    V = (1/v + 1/s)⁻¹,    t, s ← those of such an f,

for all rows at a time, until little changes. Where classes hardly overlap, learned variables tell them apart more
sharply than these. They stay if they predict the rows that were left out much better; a little better they always are,
because that is what they have learned.
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
# What is learned stays if the rows that were left out surprise it so many times less.
MUCH_BETTER = 0.95
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
    learned = known = _Known(*sites.settled(every))
    batches = [
        Batch(family.rows.x[index], known.targets[index], family.weight[index], float(n_rows), index)
        for index in every.split(CHUNK)
    ]
    near = [family.near(batch) for batch in batches]

    def left_out(shown: _Known) -> tuple[Tensor, Tensor]:
        """Moments of every row given its neighbours."""
        family.sites = shown
        marginals = [family.marginal(*pair) for pair in zip(batches, near, strict=True)]
        return torch.cat([part.mean for part in marginals]), torch.cat([part.variance for part in marginals])

    def surprise(moments: tuple[Tensor, Tensor]) -> float:
        return -float((family.weight @ sites.log_density(every, *moments)).sum())

    first = moments = left_out(learned)
    for _ in range(MOST_ROUNDS):
        before, known = known, _agreeing(sites, every, known, *moments)
        moments = left_out(known)
        if bool(((known.noise / before.noise).log().abs() < TOLERANCE).all()):
            break
    return learned if surprise(first) < MUCH_BETTER * surprise(moments) else known


def _agreeing(sites: Sites, index: Tensor, known: _Known, mean: Tensor, variance: Tensor) -> _Known:
    """Sites that belong to what neighbours and the present sites say together."""
    both = (1 / variance + 1 / known.noise).reciprocal()
    found = sites.agreeing(index, both * (mean / variance + known.targets / known.noise), both)
    assert found is not None
    return _Known(*found)
