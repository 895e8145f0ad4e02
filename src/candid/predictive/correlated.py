"""A normal distribution, or a mixture of them, over the outputs of every row together."""

from __future__ import annotations

import math
from typing import Any, Self, final

import numpy as np
from numpy.typing import ArrayLike

from candid.predictive._checks import own, site_weights, spread
from candid.predictive._mixture_functions import log_mean_exp
from candid.predictive.base import Predictive
from candid.predictive.mixture import PredictiveMixture
from candid.predictive.normal import PredictiveNormal

__all__ = ["PredictiveCorrelated"]


@final
class PredictiveCorrelated(Predictive):
    """Outputs of a row depend on each other; those of different rows are described one by one.

    ``log_prob`` is that of all outputs of a row together, of shape ``(N,)``, and takes NaN for an output that was not
    observed; everything else is of each output for itself.

    Parameters
    ----------
    means : array of shape (N, P) or (N, P, J)
        With J sites, the components of a mixture, on the last axis.
    latent_covariances : array of shape (N, P, P) or (N, P, P, J)
    noise_std : array that broadcasts to (N, P)
        Of noise that is independent from output to output.
    weights : array of shape (J,), optional
        Of the sites; equal by default.

    Attributes
    ----------
    covariance : ndarray of shape (N, P, P)
        Of new observations.
    """

    means: np.ndarray
    latent_covariances: np.ndarray
    weights: np.ndarray
    covariance: np.ndarray
    _of_each: PredictiveNormal | PredictiveMixture  # the marginals

    def __init__(
        self,
        means: ArrayLike,
        latent_covariances: ArrayLike,
        noise_std: ArrayLike = 0.0,
        weights: ArrayLike | None = None,
    ) -> None:
        means, covariances = own(means, "means"), own(latent_covariances, "latent_covariances")
        if means.ndim == 2 and covariances.ndim == 3:
            means, covariances = means[..., None], covariances[..., None]
        if means.ndim != 3 or covariances.shape != (*means.shape[:2], *means.shape[1:]):
            raise ValueError(
                "correlated outputs need means of shape (N, P) or (N, P, J) and covariances of shape (N, P, P) or "
                f"(N, P, P, J), got {np.shape(means)} and {np.shape(latent_covariances)}"
            )
        noise_std = spread(noise_std, "noise_std", means.shape[:2])
        weights = site_weights(weights, means.shape[-1:])
        self._set(means=means, latent_covariances=covariances, weights=weights, noise_std=noise_std)
        latent_stds = np.sqrt(np.clip(np.einsum("nppj->npj", covariances), 0, None))
        if len(weights) == 1:
            marginals = PredictiveNormal(means[..., 0], latent_stds[..., 0], noise_std)
        else:
            marginals = PredictiveMixture(means, latent_stds, noise_std, weights)
        object.__setattr__(self, "_of_each", marginals)
        apart = means - marginals.mean[..., None]
        # Σ ω (C + (μ − Σωμ)(μ − Σωμ)ᵀ) + diag(σ²)
        covariance = covariances @ weights + np.einsum("j,npj,nqj->npq", weights, apart, apart)
        covariance = covariance + _diagonal(noise_std**2)
        self._set(mean=marginals.mean, std=marginals.std, latent_std=marginals.latent_std, covariance=covariance)

    def log_prob(self, y: ArrayLike) -> np.ndarray:
        """Log density of the outputs of each row together, ``(N,)``; NaN in ``y`` is an output that is not known."""
        values = np.asarray(y, dtype=np.float64)
        if not values.ndim:
            values = np.full(self.shape, values)
        if values.shape != self.shape:
            raise ValueError(f"y has shape {values.shape}, but the predictions have shape {self.shape}")
        return self._log_prob(values)

    def _log_prob(self, y: np.ndarray) -> np.ndarray:
        known = ~np.isnan(y)
        # A missing output is made an independent one of variance 1 at its mean, which adds −½ log 2π.
        residual = np.where(known[..., None], np.nan_to_num(y)[..., None] - self.means, 0.0)
        total = np.moveaxis(self.latent_covariances, -1, 1) + _diagonal(self.noise_std**2)[:, None]
        both = (known[:, :, None] & known[:, None, :])[:, None]
        factor = np.linalg.cholesky(np.where(both, total, np.eye(y.shape[1])))
        white = np.linalg.solve(factor, np.moveaxis(residual, -1, 1)[..., None])[..., 0]
        half_log_det = np.log(np.einsum("njpp->njp", factor)).sum(-1)
        log_density = -0.5 * (white**2).sum(-1) - half_log_det - 0.5 * math.log(2 * math.pi) * known.sum(-1)[:, None]
        return log_mean_exp(log_density, self.weights)

    def _select(self, rows: Any) -> Self:
        return type(self)(self.means[rows], self.latent_covariances[rows], self.noise_std[rows], self.weights)

    def _details(self) -> str:
        return f", {len(self.weights)} sites" if len(self.weights) > 1 else ""

    def _cdf(self, y: np.ndarray) -> np.ndarray:
        return self._of_each.cdf(y)

    def _crps(self, y: np.ndarray) -> np.ndarray:
        return self._of_each.crps(y)

    def _z_score(self, y: np.ndarray) -> np.ndarray:
        return self._of_each.z_score(y)

    def _quantile(self, level: float) -> np.ndarray:
        return self._of_each.quantile(level)

    def _sample(self, n: int, rng: np.random.Generator) -> np.ndarray:
        # One site for each row, whose outputs are drawn together.
        site = rng.choice(len(self.weights), size=(n, len(self)), p=self.weights)
        rows = np.arange(len(self))
        values, vectors = np.linalg.eigh(np.moveaxis(self.latent_covariances, -1, 1))
        roots = vectors * np.sqrt(np.clip(values, 0, None))[..., None, :]
        latent = (roots[rows, site] @ rng.standard_normal((n, *self.shape, 1)))[..., 0]
        return self.means[rows, :, site] + latent + self.noise_std * rng.standard_normal((n, *self.shape))


def _diagonal(values: np.ndarray) -> np.ndarray:
    return values[..., None] * np.eye(values.shape[-1])
