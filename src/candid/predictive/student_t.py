"""Student's t noise around a normal latent value, for every entry."""

from __future__ import annotations

from functools import cached_property
from typing import Any, Self, final

import numpy as np
import torch
from numpy.typing import ArrayLike

from candid.likelihoods.student_t import StudentTRows
from candid.predictive._checks import own, site_weights, spread
from candid.predictive._mixture_functions import log_mean_exp, pick_sites, total
from candid.predictive.base import Predictive
from candid.predictive.mixture import PredictiveMixture

__all__ = ["PredictiveStudentT"]

# Precisions λ of the normal distributions that Student's t is a mixture of: so many, evenly spaced on the logarithmic
# scale, and left out where their density is below exp(−DEPTH) of its height.
N_PRECISIONS, DEPTH = 96, 22.0


@final
class PredictiveStudentT(Predictive):
    """A sum of a normal latent value and Student's t noise; with several sites, a mixture of such.

    Parameters
    ----------
    means, latent_stds : arrays of shape (N, J) or (N, P, J)
        Of the latent value, of each site.
    scale, freedom : arrays
        Of the noise; they broadcast to ``(N,)`` or ``(N, P)``, or to ``means`` if they have as many axes. There are
        more than two degrees of freedom.
    weights : array that broadcasts to the shape of ``means``, optional
        Sum to one over the sites; equal by default.
    """

    means: np.ndarray
    latent_stds: np.ndarray
    scale: np.ndarray
    freedom: np.ndarray
    weights: np.ndarray

    def __init__(
        self,
        means: ArrayLike,
        latent_stds: ArrayLike,
        scale: ArrayLike,
        freedom: ArrayLike,
        weights: ArrayLike | None = None,
    ) -> None:
        means = own(means, "means")
        if means.ndim not in (2, 3) or means.shape[-1] == 0:
            raise ValueError(f"means must have shape (N, J) or (N, P, J) with at least one site, got {means.shape}")
        latent_stds, weights = spread(latent_stds, "latent_stds", means.shape), site_weights(weights, means.shape)
        scale, freedom = (
            _at_sites(values, name, means.shape) for values, name in ((scale, "scale"), (freedom, "freedom"))
        )
        if (freedom <= 2).any():
            raise ValueError("there must be more than two degrees of freedom: otherwise there is no variance")
        self._set(means=means, latent_stds=latent_stds, scale=scale, freedom=freedom, weights=weights)
        mean = total(weights, means)
        latent = np.sqrt(total(weights, latent_stds**2 + (means - mean[..., None]) ** 2))
        # s²ν/(ν − 2)
        noise = np.sqrt(total(weights, scale**2 * freedom / (freedom - 2)))
        self._set(mean=mean, latent_std=latent, noise_std=noise, std=np.hypot(latent, noise))

    @cached_property
    def _mixture(self) -> PredictiveMixture:
        """The same as a mixture of normals: precisions × sites."""
        shape = (*self.means.shape, N_PRECISIONS)
        precisions, shares = _precisions(self.freedom)
        parts = (
            self.means[..., None],
            self.latent_stds[..., None],
            self.scale[..., None] / np.sqrt(precisions),
            self.weights[..., None] * shares,
        )
        flat = (*self.means.shape[:-1], self.means.shape[-1] * N_PRECISIONS)
        return PredictiveMixture(*(np.broadcast_to(part, shape).reshape(flat) for part in parts))

    def _select(self, rows: Any) -> Self:
        return type(self)(
            *(part[rows] for part in (self.means, self.latent_stds, self.scale, self.freedom, self.weights))
        )

    def _details(self) -> str:
        sites = self.means.shape[-1]
        return f", {sites} sites" if sites > 1 else ""

    def _log_prob(self, y: np.ndarray) -> np.ndarray:
        rows = StudentTRows(*(torch.from_numpy(np.array(part)) for part in (self.scale, self.freedom)))
        moments = (torch.from_numpy(np.array(part)) for part in (y[..., None], self.means, self.latent_stds**2))
        return log_mean_exp(rows.log_expected_density(*moments).numpy(), self.weights)

    def _cdf(self, y: np.ndarray) -> np.ndarray:
        return self._mixture.cdf(y)

    def _crps(self, y: np.ndarray) -> np.ndarray:
        return self._mixture.crps(y)

    def _z_score(self, y: np.ndarray) -> np.ndarray:
        return self._mixture.z_score(y)

    def _quantile(self, level: float) -> np.ndarray:
        return self._mixture.quantile(level)

    def _sample(self, n: int, rng: np.random.Generator) -> np.ndarray:
        mean, std, scale, freedom = pick_sites(self.weights, n, rng, *self._parts())
        return mean + std * rng.standard_normal(mean.shape) + scale * rng.standard_t(freedom)

    def _parts(self) -> tuple[np.ndarray, ...]:
        return self.means, self.latent_stds, self.scale, self.freedom


def _at_sites(values: ArrayLike, name: str, shape: tuple[int, ...]) -> np.ndarray:
    if np.ndim(values) == len(shape):
        return spread(values, name, shape)
    return np.broadcast_to(spread(values, name, shape[:-1])[..., None], shape)


def _precisions(freedom: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Nodes λ on a new last axis and their shares, for λ ~ Gamma(ν/2, ν/2)."""
    half = 0.5 * freedom[..., None]
    # The density of u = log λ is exp(−DEPTH) of its height where exp(u) − 1 − u = DEPTH/half =: c, which is inside of
    # −(c + √2c) and log(1 + c + √2c).
    c = DEPTH / half
    reach = c + np.sqrt(2 * c)
    u = -reach + (np.log1p(reach) + reach) * (np.arange(N_PRECISIONS) + 0.5) / N_PRECISIONS
    share = np.exp(half * (u - np.expm1(u)))
    return np.exp(u), share / share.sum(axis=-1, keepdims=True)
