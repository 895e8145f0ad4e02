"""Latent functions that have nothing to say at the start, as principal components of several targets that are noise."""

from __future__ import annotations

import torch
from torch import Tensor

from candid.kernels import Kernel, Scale
from candid.parameters import hyperparameters

__all__ = ["wake_silent"]

# A latent function is silent if its amplitude is so small beside its noise; it then gets so much, if it has less.
SILENT, LEAST_SIGNAL = 0.3, 0.02


@torch.no_grad()
def wake_silent(kernel: Kernel, noise: Tensor) -> None:
    """Give silent GPs of a batch the (geometric) average hyper-parameters of the others, but not their amplitude.

    The lengthscales of noise say nothing; but the shortest ones decide where inducing points are, and who is whose
    neighbour.

    Parameters
    ----------
    kernel : Kernel
        With batch shape (W,); only amplitudes tell who is silent.
    noise : Tensor
        Noise variances beside which the GPs were fitted, W entries.
    """
    if not isinstance(kernel, Scale):
        return
    amplitude, noise = kernel.amplitude.value.flatten(), noise.flatten()
    silent = amplitude < SILENT * noise
    if bool(silent.all()) or not bool(silent.any()):
        return
    for _, parameter in hyperparameters(kernel.base):
        if not parameter.fixed and len(parameter.raw) == len(silent):
            parameter.raw[silent] = parameter.raw[~silent].mean(0)
    if not kernel.amplitude.fixed:
        audible = torch.maximum(amplitude, LEAST_SIGNAL * noise).reshape(kernel.amplitude.raw.shape)
        kernel.amplitude.set(audible.clamp(1.001 * kernel.amplitude.lower, 0.999 * kernel.amplitude.upper))
