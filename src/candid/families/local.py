"""Rows that are conditioned on their neighbours only: what these say.

For a row x with neighbours of inputs X, targets y and noise variances σ², K = k(X, X), k = k(X, x) and
C = K + diag(σ²):

    mean = mu(x) + kᵀC⁻¹(y − mu(X))        residual = k(x, x) − kᵀC⁻¹k

The kernel's outermost amplitude s stays out of the matrices: with a unit-amplitude kernel and noise σ²/s the mean is
the same, the residual is multiplied by s, and the jitter is relative by itself.

A single stationary kernel on the processor goes through machine code where Numba is installed; what that cannot
factorise, and everything else, through torch.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from candid.families.axes import for_each_gp
from candid.families.means import Mean
from candid.kernels import Kernel, Stationary
from candid.kernels.compiled import COMPILED
from candid.linalg import can_compile, condition, condition_stationary
from candid.marginal import Marginal

__all__ = ["local_marginal"]

# Entries of the covariances of neighbours that torch makes at once: so many stay in the processor's cache.
GROUP_ENTRIES = 2**19
# Entries of the inputs of neighbours that are looked up at once.
INPUT_ENTRIES = 2**20


class _Neighbourhoods(NamedTuple):
    """Rows, each with its own neighbours: the axes are (row, \\*chains, P, …), where chains and P may be one."""

    x: Float[Tensor, "n *batch 1 d"]
    points: Float[Tensor, "n *batch k d"]
    noise: Float[Tensor, "n *batch k"]
    targets: Float[Tensor, "n *batch k"]
    absent: Tensor


def local_marginal(
    kernel: Kernel,
    mean: Mean,
    x: Float[Tensor, "*#chains n d"],
    near: Int[Tensor, "*#chains n k"],
    look_up: Callable[[Tensor], tuple[Tensor, Tensor, Tensor]],
    jitter: float = 0.0,
) -> tuple[Marginal, Float[Tensor, "n *chains p"]]:
    """The marginal of each row of ``x`` given its own neighbours, and the jitter that it took.

    Parameters
    ----------
    kernel, mean : Kernel, Mean
        With batch shapes (\\*chains, P) and (\\*chains,).
    x : Tensor
        The rows.
    near : Tensor
        Which training rows are their neighbours; −1 where a row has fewer than others.
    look_up : callable
        Gives inputs, targets and noise variances of such an array of training rows, along new last axes.
    jitter : float
        Share of the diagonal to start from.
    """
    gps = math.prod(kernel.diagonal(for_each_gp(x[..., :1, :])).shape[:-1])
    rows = max(1, INPUT_ENTRIES // max(1, gps * near.shape[-1] * x.shape[-1]))
    groups = zip(x.split(rows, -2), near.split(rows, -2), strict=True)
    marginals, jitters = zip(*(_group(kernel, mean, x, near, look_up, jitter) for x, near in groups), strict=True)
    parts = (torch.cat([getattr(m, part) for m in marginals], -2) for part in ("mean", "residual", "spread"))
    return Marginal(*parts), torch.cat(jitters)


def _group(
    kernel: Kernel,
    mean: Mean,
    x: Float[Tensor, "*#chains n d"],
    near: Int[Tensor, "*#chains n k"],
    look_up: Callable[[Tensor], tuple[Tensor, Tensor, Tensor]],
    jitter: float,
) -> tuple[Marginal, Float[Tensor, "n *chains p"]]:
    neighbours, targets, noise = look_up(near.clamp_min(0))
    amplitude, unit = kernel.split()
    # y − mu(X)
    residual = targets - mean(neighbours.flatten(-3, -2)).unflatten(-2, neighbours.shape[-3:-1])
    # Kernels have the batch shape (*chains, P), so the rows go in front of it: K is (row, *chains, P, k, k).
    axes = residual.dim()
    rows, points = _rows_first(x.unsqueeze(-2), axes).unsqueeze(-3), _rows_first(neighbours, axes).unsqueeze(-3)
    noise, residual = _rows_first(noise, axes).mT, _rows_first(residual, axes).mT
    if amplitude is not None:
        noise = noise / amplitude.unsqueeze(-1)
    absent = _rows_first((near < 0).unsqueeze(-1), axes).mT
    latent, explained, jitters = _conditionals(unit, _Neighbourhoods(rows, points, noise, residual, absent), jitter)
    variance = (unit.diagonal(rows).squeeze(-1) - explained).clamp_min(0.0)
    if amplitude is not None:
        variance = amplitude * variance
    latent, variance = latent.movedim(0, -2), variance.movedim(0, -2)
    return Marginal(mean(x) + latent, variance, torch.zeros_like(variance)), jitters


def _conditionals(unit: Kernel, given: _Neighbourhoods, jitter: float) -> tuple[Tensor, Tensor, Tensor]:
    """The mean of each row given its neighbours, how much of its variance they explain, and the jitter that it took."""
    can_be_compiled = can_compile(given.points) and can_compile(given.x)
    if isinstance(unit, Stationary) and unit.profile in COMPILED and can_be_compiled:
        return _by_machine_code(unit, given, jitter)
    return _by_torch(unit, given, jitter)


def _by_machine_code(unit: Stationary, given: _Neighbourhoods, jitter: float) -> tuple[Tensor, Tensor, Tensor]:
    """Rows whose covariance is singular to working precision go through torch, which finds the jitter they need."""
    profile, lengthscale = COMPILED[unit.profile], unit.lengthscale.value
    latent, explained, failed = condition_stationary(profile, given.points, given.x, lengthscale, *given[2:], jitter)
    jitters = torch.full_like(latent, jitter, requires_grad=False)
    again = failed.flatten(1).any(1).nonzero().squeeze(-1)
    if not len(again):
        return latent, explained, jitters
    repaired = _by_torch(unit, _Neighbourhoods(*(part[again] for part in given)), jitter)
    parts = zip((latent, explained, jitters), repaired, strict=True)
    latent, explained, jitters = (part.index_copy(0, again, of_rows) for part, of_rows in parts)
    return latent, explained, jitters


def _by_torch(unit: Kernel, given: _Neighbourhoods, jitter: float) -> tuple[Tensor, Tensor, Tensor]:
    rows = max(1, GROUP_ENTRIES // max(1, math.prod(given.noise.shape[1:]) * given.noise.shape[-1]))
    groups = zip(*(part.split(rows) for part in given), strict=True)
    found = [_group_by_torch(unit, _Neighbourhoods(*group), jitter) for group in groups]
    latent, explained, jitters = (torch.cat(part) for part in zip(*found, strict=True))
    return latent, explained, jitters


def _group_by_torch(unit: Kernel, given: _Neighbourhoods, jitter: float) -> tuple[Tensor, Tensor, Tensor]:
    covariance = unit(given.points) + torch.diag_embed(given.noise)
    cross = unit(given.x, given.points).squeeze(-2)
    if bool(given.absent.any()):
        covariance, cross = _without(given.absent, covariance, cross)
    latent, explained, factor = condition(covariance, cross, given.targets.expand(cross.shape), jitter)
    return latent, explained, factor.jitter


def _without(absent: Tensor, covariance: Tensor, cross: Tensor) -> tuple[Tensor, Tensor]:
    """Neighbours that are not there: independent of all others and of the row itself, so that they say nothing."""
    pairs = absent.unsqueeze(-1) | absent.unsqueeze(-2)
    alone = torch.diag_embed(absent.to(covariance.dtype))
    return covariance.masked_fill(pairs, 0.0) + alone, cross.masked_fill(absent, 0.0)


def _rows_first(values: Tensor, n_axes: int) -> Tensor:
    """(\\*chains, row, k, …) → (row, \\*chains, k, …), with chains of length one where there are none."""
    return values[(None,) * (n_axes - values.dim())].movedim(-3, 0)
