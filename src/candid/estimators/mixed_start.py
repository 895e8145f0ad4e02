"""Where outputs that share latent functions start: with the mixing under which rows are the most likely."""

from __future__ import annotations

import copy
from collections.abc import Callable

import torch

from candid.engines import Problem, Rows
from candid.estimators.silent import wake_silent
from candid.families import Mean, Neighbours
from candid.kernels import Kernel
from candid.likelihoods import Coregionalised, Gaussian

__all__ = ["fit_mixed"]

# Of whom a row is told something, when mixing matrices are compared.
N_NEIGHBOURS = 32


def fit_mixed(
    kernel: Kernel, mean: Mean, likelihood: Coregionalised, rows: Rows, fit: Callable[[Gaussian, Rows], None]
) -> None:
    """Move kernel, mean, mixing and noise, in place.

    For each candidate the latent functions are fitted as if they had been observed, by ``fit``, which moves kernel and
    mean. Candidates are compared by the leave-one-out density of the targets, which is that of the latent functions
    divided by the determinant of A.
    """
    candidates = likelihood.candidates if not likelihood.mixing.fixed else [likelihood.mixing.value.detach()]
    parts, best, kept = (kernel, mean), float("inf"), None
    start = [copy.deepcopy(part.state_dict()) for part in parts]
    for mixing in candidates:
        for part, state in zip(parts, start, strict=True):
            part.load_state_dict(state)
        _set(likelihood, mixing)
        noise = Gaussian(n_outputs=len(mixing)).to(rows.x)
        latent = Rows(rows.x, likelihood.surrogate(rows.y).targets, rows.weight)
        fit(noise, latent)
        assert noise.noise is not None
        wake_silent(kernel, noise.noise.value)
        reached = _loss(kernel, mean, noise, latent) + _volume(mixing) if len(candidates) > 1 else 0.0
        if kept is None or reached < best:
            best, kept = reached, (mixing, noise.noise.value.detach(), [copy.deepcopy(p.state_dict()) for p in parts])
    assert kept is not None
    mixing, noise_variance, states = kept
    for part, state in zip(parts, states, strict=True):
        part.load_state_dict(state)
    _set(likelihood, mixing)
    likelihood.adopt(noise_variance, rows.y)


def _set(likelihood: Coregionalised, mixing: torch.Tensor) -> None:
    if not likelihood.mixing.fixed:
        likelihood.mixing.set(mixing)


def _loss(kernel: Kernel, mean: Mean, noise: Gaussian, latent: Rows) -> float:
    every = latent.to(torch.float64)
    kernel, mean, noise = (copy.deepcopy(part).double() for part in (kernel, mean, noise))  # pyright: ignore
    family = Neighbours(kernel, mean, every.x, noise.sites(every.y), every.weight, N_NEIGHBOURS)
    return Problem(family, noise, "predictive").standing(every)


def _volume(mixing: torch.Tensor) -> float:
    # log |det A|
    return float(torch.linalg.slogdet(mixing.double()).logabsdet)
