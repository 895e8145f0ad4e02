"""Checks of what predictive distributions are built from."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

__all__ = ["broadcast", "generator", "own", "site_weights", "spread"]


def generator(random_state: Any) -> np.random.Generator:
    if isinstance(random_state, np.random.RandomState):
        random_state = random_state.randint(2**31 - 1, size=4)
    return np.random.default_rng(random_state)


def own(values: ArrayLike, name: str) -> np.ndarray:
    """A finite float64 array that nobody else can change; read-only input is taken without a copy."""
    array = np.asarray(values, dtype=np.float64)
    if not np.isfinite(array).all():
        raise ValueError(f"{name} contains NaN or infinity: the model's prediction has diverged")
    return array.copy() if array.flags.writeable else array


def spread(values: ArrayLike, name: str, shape: tuple[int, ...]) -> np.ndarray:
    array = own(values, name)
    if (array < 0).any():
        raise ValueError(f"{name} is a standard deviation and cannot be negative, got {array.min():.3g}")
    return broadcast(array, name, shape)


def broadcast(array: np.ndarray, name: str, shape: tuple[int, ...]) -> np.ndarray:
    if array.shape == shape:
        return array
    try:
        return np.broadcast_to(array, shape)
    except ValueError:
        raise ValueError(f"{name} has shape {array.shape}, which does not broadcast to {shape}") from None


def site_weights(weights: ArrayLike | None, shape: tuple[int, ...]) -> np.ndarray:
    n_sites = shape[-1]
    array = np.full(n_sites, 1 / n_sites) if weights is None else own(weights, "weights")
    if array.shape[-1:] != (n_sites,):
        raise ValueError(f"weights have shape {array.shape}, but their last axis must hold the {n_sites} sites")
    total = array.sum(axis=-1, keepdims=True)
    if (array < 0).any() or not np.allclose(total, 1, rtol=0, atol=1e-5):
        raise ValueError("weights must be non-negative and sum to one over the sites (the last axis)")
    exact = np.allclose(total, 1, rtol=0, atol=1e-14)
    return broadcast(array if exact else array / total, "weights", shape)
