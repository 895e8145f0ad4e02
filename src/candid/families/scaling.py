"""From sums over features of unit amplitude to moments, with one gradient for all of it.

With the amplitude s, prior variances k(x, x) of the unit kernel, and gradients h, e, t of the results,

    mean = √s μ                      residual = s max(k(x, x) − explained, 0)             spread = s ν

    μ̄ = √s h        k̄ = s e where the residual is not cut off, explained̄ = −k̄             ν̄ = s t

    s̄ = ½ Σ μh/√s + Σ residual e/s + Σ ν t,   over rows.
"""

from __future__ import annotations

import torch
from torch import Tensor

from candid.kernels import Kernel, Stationary
from candid.linalg import first_order

__all__ = ["prior_variance", "scaled_moments"]


def prior_variance(unit: Kernel, rows: Tensor) -> Tensor | float:
    """k(x, x) of a kernel of unit amplitude."""
    return 1.0 if isinstance(unit, Stationary) else unit.diagonal(rows)


def scaled_moments(
    latent: Tensor, explained: Tensor, spread: Tensor, prior: Tensor | float, amplitude: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Mean, residual and spread (…, n) for μ, what is explained and ν, and an amplitude (…); None is one."""
    if amplitude is None:
        return latent, (prior - explained).relu(), spread
    return _ScaledMoments.apply(latent, explained, spread, prior, amplitude)  # pyright: ignore[reportReturnType]


class _ScaledMoments(torch.autograd.Function):
    @staticmethod
    def forward(ctx, latent: Tensor, explained: Tensor, spread: Tensor, prior: Tensor | float, amplitude: Tensor):
        left, scale = (prior - explained).clamp_min_(0.0), amplitude.unsqueeze(-1)
        root = scale.sqrt()
        ctx.save_for_backward(latent, left, spread, scale, root)
        ctx.prior_shape = prior.shape if isinstance(prior, Tensor) else None
        return root * latent, scale * left, scale * spread

    @staticmethod
    @first_order
    def backward(ctx, of_mean: Tensor, of_residual: Tensor, of_spread: Tensor):  # pyright: ignore[reportIncompatibleMethodOverride]
        latent, left, spread, scale, root = ctx.saved_tensors
        needs_explained, needs_prior, needs_amplitude = (ctx.needs_input_grad[place] for place in (1, 3, 4))
        prior_bar = amplitude_bar = None
        if needs_amplitude:
            along = torch.addcmul(left * of_residual, spread, of_spread)
            amplitude_bar = along.addcdiv_(latent * of_mean, root, value=0.5).sum(-1).sum_to_size(scale.shape[:-1])
        left_bar = torch.where(left > 0, scale * of_residual, 0.0) if needs_explained or needs_prior else None
        if needs_prior and left_bar is not None:
            prior_bar = left_bar.sum_to_size(ctx.prior_shape)
        return (
            root * of_mean, None if left_bar is None else -left_bar, scale * of_spread, prior_bar, amplitude_bar,
        )  # fmt: skip
