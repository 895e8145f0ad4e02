"""Which rows tell the most of the function at one place: active learning after Cohn (ALC), one row after the other.

Given the rows chosen so far, let c(·, ·) be the posterior covariance and v(·) the posterior variance. A row j with
noise g_j reduces the variance at the target t by

    c(t, j)² / (v(j) + g_j)

The row that reduces it the most comes next. With the column l = c(·, j)/√(v(j) + g_j), all covariances are then less by
products of its entries: columns are those of a Cholesky factor, so a choice among C candidates costs O(C · rows).

References
----------
R. B. Gramacy, D. W. Apley (2015), Local Gaussian process approximation for large computer experiments.
"""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor

from candid.kernels import Kernel

__all__ = ["greedy_design"]


@torch.no_grad()
def greedy_design(
    unit: Kernel,
    target: Float[Tensor, "t p 1 d"],
    candidates: Float[Tensor, "t p c d"],
    noise: Float[Tensor, "t p c"],
    n_rows: int,
    n_start: int,
) -> Int[Tensor, "t p k"]:
    """Positions of ``n_rows`` candidates of each target: the first ones, and those that reduce its variance the most.

    Parameters
    ----------
    unit : Kernel
        With batch shape (P,).
    target, candidates : Tensor
        Places; candidates in the order of their distance, the nearest first.
    noise : Tensor
        Of the candidates, relative to the kernel's amplitude; positive.
    n_rows, n_start : int
        How many, and how many of them are simply the first; at most as many as there are candidates.
    """
    chosen = torch.zeros(*candidates.shape[:2], n_rows, dtype=torch.long, device=candidates.device)
    columns = candidates.new_zeros(*candidates.shape[:2], n_rows, candidates.shape[2])
    to_target = unit(target, candidates).squeeze(-2).clone()
    variance = unit.diagonal(candidates).expand(to_target.shape).clone()
    noise = noise.expand(to_target.shape).clone()
    for step in range(n_rows):
        if step < n_start:
            best = torch.full_like(chosen[..., :1], step)
        else:
            best = (to_target.square() / (variance.clamp_min(0.0) + noise)).argmax(-1, keepdim=True)
        chosen[..., step] = best.squeeze(-1)
        root = (variance.gather(-1, best).clamp_min(0.0) + noise.gather(-1, best)).sqrt()
        place = candidates.gather(-2, best.unsqueeze(-1).expand(*best.shape, candidates.shape[-1]))
        # c(·, j) = k(·, j) − Σ l(·) l(j)
        earlier = columns[..., :step, :]
        own = earlier.gather(-1, best.unsqueeze(-2).expand(*earlier.shape[:-1], 1))
        column = (unit(place, candidates) - own.mT @ earlier).squeeze(-2) / root
        columns[..., step, :] = column
        to_target -= column * (to_target.gather(-1, best) / root)
        variance -= column.square()
        # A row that is there says nothing new.
        noise.scatter_(-1, best, torch.inf)
    return chosen
