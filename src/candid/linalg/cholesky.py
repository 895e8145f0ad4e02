"""Cholesky factors of covariance matrices that may be singular to working precision."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import pad

__all__ = ["Factor", "NotPositiveDefinite", "cholesky"]

GROWTH = 10.0
# Jitter is a share of the mean of the diagonal, or of a scale; a matrix that needs more than this is not a covariance.
LARGEST_JITTER = 1e-1
# Beyond this it is better to factorise the one matrix in float64 than to blur it further.
LARGEST_SINGLE_JITTER = 1e-3
# Columns of so many numbers, or a multiple, lie so far apart that a processor's cache has the same few places for all
# of them: factors of 512 or 1024 rows take about twice as long as of eight rows more.
CROWDED, MORE = 256, 8


class NotPositiveDefinite(ArithmeticError):
    """A matrix that should be a covariance is not one, even with jitter."""


@dataclass(frozen=True)
class Factor:
    """Lower factor of ``matrix + jitter · scale · I``; ``jitter`` has one entry for each matrix."""

    lower: Float[Tensor, "*batch n n"]
    jitter: Float[Tensor, "*batch"]


@torch.no_grad()
def cholesky(
    matrix: Float[Tensor, "*batch n n"],
    jitter: float | Tensor = 0.0,
    scale: float | None = None,
    largest: float = LARGEST_JITTER,
) -> Factor:
    """Factorise each matrix of a batch with the least jitter that works, from ``jitter`` to the ``largest``.

    Jitter is a share of ``scale``, by default the mean of a matrix's diagonal; give one for a small difference of large
    matrices, whose rounding errors are those of the large ones. Only the matrices that fail are tried again, each with
    ten times its own jitter; what does not succeed in float32 is factorised in float64. No gradient flows through the
    factor: callers have closed forms.
    """
    _check_finite(matrix)
    start = torch.as_tensor(jitter, dtype=matrix.dtype, device=matrix.device).expand(matrix.shape[:-2])
    lower, info = _factorise(_add_jitter(matrix, start, scale))
    if not bool(info.any()):
        return Factor(lower, start)
    flat, flat_lower = matrix.flatten(0, -3) if matrix.dim() > 2 else matrix[None], lower.reshape(-1, *lower.shape[-2:])
    flat_jitter = start.reshape(-1).clone()
    for position in info.reshape(-1).nonzero().flatten().tolist():
        flat_lower[position], flat_jitter[position] = _stubborn(
            flat[position], float(flat_jitter[position]), scale, largest
        )
    return Factor(flat_lower.reshape(lower.shape), flat_jitter.reshape(start.shape))


def _stubborn(matrix: Tensor, failed: float, scale: float | None, largest: float) -> tuple[Tensor, float]:
    """Factorise one matrix for which ``failed`` was too little jitter."""
    first = max(failed * GROWTH, 10 * torch.finfo(matrix.dtype).eps)
    attempts = [(matrix, largest)]
    if matrix.dtype != torch.float64:
        attempts = [(matrix, LARGEST_SINGLE_JITTER), (matrix.double(), largest)]
    for candidate, most in attempts:
        level = first
        while level <= most:
            lower, info = _factorise(_add_jitter(candidate, torch.as_tensor(level).to(candidate), scale))
            if not bool(info):
                return lower.to(matrix.dtype), level
            level *= GROWTH
    raise NotPositiveDefinite(
        f"a {matrix.shape[-1]}×{matrix.shape[-1]} covariance matrix could not be factorised even with a jitter of "
        f"{largest:g} of its diagonal; check the kernel, or try dtype='float64'"
    )


def _factorise(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """The lower factor, and for each matrix of a batch whether there is none."""
    size = matrix.shape[-1]
    if size == 0 or size % CROWDED or matrix.device.type != "cpu":
        return torch.linalg.cholesky_ex(matrix)
    # With a few rows and columns of the identity in addition, columns lie elsewhere.
    larger = pad(matrix, (0, MORE, 0, MORE))
    larger.diagonal(dim1=-2, dim2=-1)[..., size:] = 1.0
    lower, info = torch.linalg.cholesky_ex(larger)
    return lower[..., :size, :size].mT.contiguous().mT, info


def _add_jitter(matrix: Tensor, jitter: Tensor, scale: float | None) -> Tensor:
    shifted = matrix.clone()
    diagonal = shifted.diagonal(dim1=-2, dim2=-1)
    diagonal.add_(jitter.unsqueeze(-1) * (diagonal.mean(-1, keepdim=True) if scale is None else scale))
    return shifted


def _check_finite(matrix: Tensor) -> None:
    # One NaN or infinity anywhere makes the sum non-finite, and the sum is much cheaper than isfinite().all().
    if not math.isfinite(float(matrix.sum())) and not bool(torch.isfinite(matrix).all()):
        raise NotPositiveDefinite(
            "a covariance matrix contains NaN or infinity: training has diverged or the inputs are too large; "
            "try a smaller lr, standardize=True or dtype='float64'"
        )
