"""Normal variables given k others under a stationary kernel of unit variance, by machine code on the processor.

It is :func:`~candid.linalg.condition` with the Gram matrices made inside: one row after the other stays in the cache
from its distances to its gradients. Both results are computed together with their derivatives: for gradients m̄ and ē
with respect to mean and explained variance, with b and α as there and C = K + diag(σ²),

    r̄ = m̄b        σ̄² = −b∘(m̄α + ēb)        ℓ̄ = −2·slope·(m̄M + ēE)/ℓ,

where M and E are sums over pairs of points, one for each feature (:mod:`candid.linalg.row_kernels`). So the backward
pass costs nothing.

Rows are shared out among as many threads as torch has. Each writes its own results, so that these do not depend on the
threads. The threads are Python's (machine code does not hold the interpreter's lock): no second pool competes with
torch's while it is idle, and processes may fork.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from importlib.util import find_spec
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from candid.linalg.autograd import first_order
from candid.linalg.crew import threads_of_our_own
from candid.linalg.plain import is_plain

__all__ = [
    "MOST_NEIGHBOURS",
    "CompiledProfile",
    "can_compile",
    "condition_stationary",
    "machine_code_takes",
    "without_machine_code",
]

# Pieces of work for each thread: one that is held up leaves its share to the others.
PIECES = 4
#: Larger Gram matrices do not stay in the cache.
MOST_NEIGHBOURS = 1024


class CompiledProfile(NamedTuple):
    """A stationary kernel that machine code knows: its number there, and q = stretch·d², dk/dq = slope·w."""

    number: int
    stretch: float
    slope: float


_allowed: ContextVar[bool] = ContextVar("machine_code", default=True)


@contextmanager
def without_machine_code() -> Iterator[None]:
    """Inside the block, :func:`can_compile` says no: everything goes through torch."""
    token = _allowed.set(False)
    try:
        yield
    finally:
        _allowed.reset(token)


@cache
def _numba_is_there() -> bool:
    return find_spec("numba") is not None


def machine_code_takes(values: Tensor) -> bool:
    """Whether machine code can read such a tensor."""
    return is_plain(values) and _allowed.get() and _numba_is_there()


def can_compile(points: Tensor) -> bool:
    """Whether machine code can take neighbours like these, …×k×D."""
    return 0 < points.shape[-2] <= MOST_NEIGHBOURS and machine_code_takes(points)


def condition_stationary(
    profile: CompiledProfile,
    points: Float[Tensor, "*#batch k d"],
    rows: Float[Tensor, "*#batch 1 d"],
    lengthscale: Float[Tensor, "*#batch 1 #d"],
    noise: Float[Tensor, "*#batch k"],
    targets: Float[Tensor, "*#batch k"],
    absent: Bool[Tensor, "*#batch k"],
    jitter: float = 0.0,
) -> tuple[Float[Tensor, "*batch"], Float[Tensor, "*batch"], Bool[Tensor, "*batch"]]:
    """The mean of each row given its neighbours, how much of its unit variance they explain, and where that failed.

    Parameters
    ----------
    profile : CompiledProfile
    points, rows : Tensor
        Inputs of neighbours and of the rows; constants in the gradient.
    lengthscale : Tensor
    noise : Tensor
        Variances that are added to the diagonal of the neighbours' covariance.
    targets : Tensor
        Of the neighbours, minus their prior mean.
    absent : Tensor
        Neighbours that are not there; of the batch shape of ``points``.
    jitter : float
        Share of the diagonal that is added to it; a constant in the gradient.

    Notes
    -----
    Where a covariance is singular to working precision, both results and their gradients are zero.
    """
    batch = np.broadcast_shapes(points.shape[:-2], lengthscale.shape[:-2], noise.shape[:-1], targets.shape[:-1])
    noise, targets = (values.expand(*batch, points.shape[-2]) for values in (noise, targets))
    # Inside the function, gradients are never enabled.
    learns = torch.is_grad_enabled() and any(value.requires_grad for value in (lengthscale, noise, targets))
    return _ConditionStationary.apply(  # pyright: ignore[reportReturnType]
        profile, points, rows, lengthscale, noise, targets, absent, jitter, learns
    )


class _ConditionStationary(torch.autograd.Function):
    @staticmethod
    def forward(ctx, profile, points, rows, lengthscale, noise, targets, absent, jitter, learns):
        batch, k, d = noise.shape[:-1], *points.shape[-2:]
        number = math.prod(batch)
        results, moments = noise.new_zeros(number, 2), noise.new_zeros(number, 2, (d + 3) // 4 * 4)
        b, alpha = noise.new_zeros(2, number, k).unbind(0)
        failed = torch.zeros(number, dtype=torch.bool)
        # √stretch/ℓ
        rates = math.sqrt(profile.stretch) / lengthscale.expand(*lengthscale.shape[:-1], d)
        given = (
            points.reshape(-1, k, d),
            rows.expand(*points.shape[:-2], 1, d).reshape(-1, d),
            _entries(points.shape[:-2], batch),
            rates.reshape(-1, d),
            _entries(lengthscale.shape[:-2], batch),
            absent.expand(points.shape[:-1]).reshape(-1, k),
            noise.reshape(-1, k),
            targets.reshape(-1, k),
        )
        _share_out(
            number,
            profile.number,
            [values.detach().contiguous().numpy() for values in given],
            float(jitter),
            learns,
            [values.numpy() for values in (results, b, alpha, moments, failed)],
        )
        ctx.save_for_backward(
            lengthscale, b.view(*batch, k), alpha.view(*batch, k), moments[..., :d].reshape(*batch, 2, d)
        )
        ctx.slope = profile.slope
        failed = failed.view(batch)
        ctx.mark_non_differentiable(failed)
        return results[:, 0].reshape(batch), results[:, 1].reshape(batch), failed

    @staticmethod
    @first_order
    def backward(ctx, grad_mean: Tensor, grad_explained: Tensor, _):
        lengthscale, b, alpha, moments = ctx.saved_tensors
        grad_mean, grad_explained = grad_mean.unsqueeze(-1), grad_explained.unsqueeze(-1)
        grad_lengthscale = None
        if ctx.needs_input_grad[3]:
            # −2·slope·(m̄M + ēE)/ℓ
            of_mean, of_explained = moments.unbind(-2)
            moment = (grad_mean * of_mean + grad_explained * of_explained).unsqueeze(-2)
            grad_lengthscale = (moment * (-2.0 * ctx.slope / lengthscale)).sum_to_size(lengthscale.shape)
        # −b∘(m̄α + ēb)
        grad_noise = -b * (grad_mean * alpha + grad_explained * b)
        return None, None, None, grad_lengthscale, grad_noise, grad_mean * b, None, None, None


def _entries(shape: torch.Size, batch: torch.Size) -> Tensor:
    """Which entry of an array of batch shape ``shape`` each entry of the whole batch sees."""
    return torch.arange(math.prod(shape)).view(shape).expand(batch).reshape(-1)


def _share_out(number: int, profile: int, given: list, jitter: float, learns: bool, written: list) -> None:
    """Condition all systems, on as many threads as torch uses."""
    from candid.linalg.row_kernels import condition_rows

    def condition_some(start: int, stop: int) -> None:
        condition_rows(profile, *given, jitter, start, stop, learns, *written)

    workers = min(torch.get_num_threads(), number)
    if workers <= 1:
        condition_some(0, number)
        return
    bounds = [number * piece // (PIECES * workers) for piece in range(PIECES * workers + 1)]
    # The results are nothing, but exceptions come out with them.
    list(threads_of_our_own(workers, os.getpid()).map(condition_some, bounds[:-1], bounds[1:]))
