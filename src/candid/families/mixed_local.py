"""Latent functions given observations of mixtures of them, of neighbours or of any rows.

Each of P outputs is a mixture of W latent functions with noise, y = Aᵀf + ε. Given the outputs of k rows, latent
functions depend on each other, and there is one system of all these outputs: with K_w the covariances of the w-th
latent function,

    C = Σ_w (a_w a_wᵀ) ⊗ K_w + diag(σ²)          covariances of f_w(x) with the outputs: a_w ⊗ k_w(X, x)

An output that was not observed is independent of everything, so that it says nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from candid.families.means import Mean
from candid.kernels import Kernel
from candid.linalg import condition_together
from candid.marginal import Marginal

__all__ = ["MixedRows", "mixed_marginal"]

# Entries of the covariances of neighbours that are made at once: so many stay in the processor's cache.
GROUP_ENTRIES = 2**19


class MixedRows(NamedTuple):
    """Rows that others are conditioned on; there may be several groups of them, along leading axes."""

    x: Float[Tensor, "*groups k d"]
    targets: Float[Tensor, "*groups k p"]  # NaN where one was not observed
    noise: Float[Tensor, "*groups k p"]

    def system(
        self, kernel: Kernel, mean: Mean, mixing: Float[Tensor, "w p"], x: Float[Tensor, "*groups n d"]
    ) -> tuple[Float[Tensor, "*groups pk pk"], Float[Tensor, "*groups pk wn"], Float[Tensor, "*groups pk"]]:
        """C, the covariances of outputs with the latent functions at ``x``, and outputs less their means."""
        points = self.x.unsqueeze(-3)
        # Σ_w A_wp A_wq K_w(x_i, x_j), and A_wp k_w(x_i, x)
        covariance = torch.einsum("wp,wq,...wij->...piqj", mixing, mixing, kernel(points)).flatten(-2).flatten(-3, -2)
        cross = torch.einsum("wp,...win->...piwn", mixing, kernel(points, x.unsqueeze(-3))).flatten(-2).flatten(-3, -2)
        # y − Aᵀmu(X)
        means = mean(self.x.flatten(0, -2)).unflatten(0, self.x.shape[:-1])
        residual = (self.targets - means @ mixing).mT.flatten(-2)
        covariance = covariance + torch.diag_embed(self.noise.mT.flatten(-2))
        absent = torch.isnan(residual)
        if bool(absent.any()):
            pairs = absent.unsqueeze(-1) | absent.unsqueeze(-2)
            covariance = covariance.masked_fill(pairs, 0.0) + torch.diag_embed(absent.to(covariance.dtype))
            cross, residual = cross.masked_fill(absent.unsqueeze(-1), 0.0), residual.masked_fill(absent, 0.0)
        return covariance, cross, residual


def mixed_marginal(
    kernel: Kernel,
    mean: Mean,
    mixing: Float[Tensor, "w p"],
    x: Float[Tensor, "n d"],
    near: Int[Tensor, "n k"],
    look_up: Callable[[Tensor], tuple[Tensor, Tensor, Tensor]],
    jitter: float = 0.0,
) -> tuple[Marginal, Float[Tensor, " n"]]:
    """The latent functions at each row of ``x`` given the outputs of its own neighbours, and the jitter that it took.

    Parameters
    ----------
    kernel, mean : Kernel, Mean
        Of W latent functions.
    mixing : Tensor
        A.
    x : Tensor
        The rows.
    near : Tensor
        Which training rows are their neighbours; −1 where a row has fewer than others.
    look_up : callable
        Gives inputs, targets and noise variances of such an array of training rows, along new last axes.
    jitter : float
        Share of the diagonal to start from.
    """
    rows = max(1, GROUP_ENTRIES // max(1, (near.shape[-1] * mixing.shape[-1]) ** 2))
    groups = zip(x.split(rows), near.split(rows), strict=True)
    parts = [_group(kernel, mean, mixing, x, near, look_up, jitter) for x, near in groups]
    means, covariances, jitters = (torch.cat(part) for part in zip(*parts, strict=True))
    variance = covariances.diagonal(dim1=-2, dim2=-1)
    return Marginal(means, variance, torch.zeros_like(variance), cross=covariances), jitters


def _group(
    kernel: Kernel, mean: Mean, mixing: Tensor, x: Tensor, near: Tensor, look_up: Callable, jitter: float
) -> tuple[Tensor, Tensor, Tensor]:
    row = x.unsqueeze(-2)
    own = kernel.diagonal(row.unsqueeze(-3)).squeeze(-1)
    if not near.shape[-1]:
        return mean(x), torch.diag_embed(own), torch.zeros_like(own[:, 0])
    neighbours, targets, noise = look_up(near.clamp_min(0))
    targets = targets.masked_fill((near < 0).unsqueeze(-1), math.nan)
    covariance, cross, residual = MixedRows(neighbours, targets, noise).system(kernel, mean, mixing, row)
    latent, explained, factor = condition_together(covariance, cross, residual, jitter)
    # V = diag(k_w(x, x)) − explained, whose diagonal rounding may leave below zero
    short = (explained.diagonal(dim1=-2, dim2=-1) - own).clamp_min(0.0)
    return mean(x) + latent, torch.diag_embed(own + short) - explained, factor.jitter
