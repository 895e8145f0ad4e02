"""Rows that see only some inducing points, each of them others.

For a row x whose points are Z, with q(u) = N(mu(Z) + m, diag(v)), prior u ~ N(mu(Z), sK), k = k(Z, x)/s and b = K⁻¹k:

    mean = mu(x) + bᵀm        residual = k(x, x) − s kᵀb        spread = Σ v b²
    KL = ½(mᵀK⁻¹m/s + Σ v diag(K⁻¹)/s + log det sK − Σ log v − k)

The kernel's outermost amplitude s stays out of the matrices: the values are divided by its root.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from candid.families.means import Mean
from candid.kernels import Kernel
from candid.linalg import infer
from candid.marginal import Marginal

__all__ = ["Points", "subset_marginal"]

# Entries of the covariances of points that are made at once: so many stay in the processor's cache.
GROUP_ENTRIES = 2**19


class Points(NamedTuple):
    """Inducing points, and means and variances of their values."""

    x: Float[Tensor, "m d"]
    mean: Float[Tensor, "p m"]
    variance: Float[Tensor, "p m"]


def subset_marginal(
    kernel: Kernel,
    mean: Mean,
    x: Float[Tensor, "n d"],
    near: Int[Tensor, "n k"],
    points: Points,
    jitter: float | Tensor = 0.0,
) -> tuple[Marginal, Float[Tensor, " n"], Float[Tensor, "n p"]]:
    """The marginal of each row given its own points, the divergence of these from their prior, and the jitter it took.

    Parameters
    ----------
    kernel : Kernel
        With batch shape (P,).
    mean : Mean
    x : Tensor
        The rows.
    near : Tensor
        Which points each of them sees.
    points : Points
        All of them.
    jitter : float or Tensor
        Share of the diagonal to start from.
    """
    rows = max(1, GROUP_ENTRIES // (points.mean.shape[0] * near.shape[-1] ** 2))
    groups = zip(x.split(rows), near.split(rows), strict=True)
    latent, residual, spread, divergence, jitters = (
        torch.cat(part) for part in zip(*(_group(kernel, x, near, points, jitter) for x, near in groups), strict=True)
    )
    return Marginal(mean(x) + latent, residual, spread), divergence, jitters


def _group(
    kernel: Kernel, x: Float[Tensor, "n d"], near: Int[Tensor, "n k"], points: Points, jitter: float | Tensor
) -> tuple[Tensor, ...]:
    amplitude, unit = kernel.split()
    scale = torch.ones_like(points.mean[:, 0]) if amplitude is None else amplitude
    # Kernels have the batch shape (P,), so the rows go in front of it: K is (row, P, k, k).
    rows, places = x[:, None, None], points.x[near].unsqueeze(1)
    means, variances = (value[:, near].movedim(0, 1) for value in (points.mean, points.variance))
    # m/√s and v/s
    means, variances = means / scale.sqrt().unsqueeze(-1), variances / scale.unsqueeze(-1)
    cross = unit(rows, places).squeeze(-2)
    inferred, factor = infer(unit(places), cross, means, variances, jitter)
    residual = (unit.diagonal(rows).squeeze(-1) - inferred.explained).clamp_min(0.0)
    # Over the outputs, which are independent
    divergence = 0.5 * (inferred.divergence - variances.log().sum(-1) - near.shape[-1]).sum(-1)
    return scale.sqrt() * inferred.mean, scale * residual, scale * inferred.spread, divergence, factor.jitter
