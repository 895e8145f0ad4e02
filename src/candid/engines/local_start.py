"""Where a model starts that is not trained: typical values of small groups of rows."""

from __future__ import annotations

import copy

import torch
from torch import Tensor

from candid.engines.rows import Rows
from candid.families import Mean, metric_of, profiled_values
from candid.kernels import Kernel, Scale
from candid.likelihoods import Gaussian
from candid.linalg import nearest
from candid.parameters import Hyperparameter, hyperparameters

__all__ = ["fit_locally"]

# So many groups, of so many rows.
N_GROUPS, GROUP_ROWS = 200, 32
# How far inside its bounds, relative to them, a value stays.
INSIDE = 1e-3


@torch.no_grad()
def fit_locally(kernel: Kernel, mean: Mean, likelihood: Gaussian, rows: Rows, seed: int) -> None:
    """Set lengthscale (one factor for all features), amplitude and noise, in place.

    The likelihood of each of some small groups of neighbouring rows has values of its own; their medians are taken.
    What is fixed or known stays as it is.
    """
    rows, own = rows.to(torch.float64), copy.deepcopy(kernel).double()
    generator = torch.Generator().manual_seed(seed)
    centres = torch.randperm(len(rows), generator=generator)[:N_GROUPS].to(rows.x.device)
    scaled = rows.x / metric_of(own, rows.x.shape[1]).to(rows.x)
    near = nearest(scaled, scaled[centres], GROUP_ROWS)
    # One GP for each group and output: (group, output, …)
    residual = (rows.y - copy.deepcopy(mean).double()(rows.x))[near].mT
    places, share = rows.x[near].unsqueeze(1), (1 / rows.weight)[near].unsqueeze(1).expand_as(residual)
    values = profiled_values(own.unit, places.expand(-1, rows.y.shape[1], -1, -1), residual, share)
    theta, amplitude, noise = (value.median(0).values for value in values)
    for name, parameter in hyperparameters(kernel):
        if name.endswith("lengthscale"):
            _set(parameter, parameter.value * theta[:, None, None])
    if isinstance(kernel, Scale):
        _set(kernel.amplitude, amplitude)
    if likelihood.noise is not None:
        _set(likelihood.noise, noise)


def _set(parameter: Hyperparameter, value: Tensor) -> None:
    """Unless it is fixed; a value outside the bounds goes to the nearer one."""
    if not parameter.fixed:
        parameter.set(value.clamp(parameter.lower * (1 + INSIDE), parameter.upper * (1 - INSIDE)))
