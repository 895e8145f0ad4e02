"""Joint draws of new observations."""

from __future__ import annotations

import numpy as np

from candid.estimators.observations import GaussianObservation, Observation
from candid.families import Joint
from candid.predictive import JointNormal

__all__ = ["joint_draws"]


def joint_draws(joint: Joint, observation: Observation, n_samples: int, random: np.random.RandomState) -> np.ndarray:
    """Observations of all rows together, (row, output, sample), from their latent distribution and their noise.

    In a mixture, each draw is one site's, at all rows and for all outputs.
    """
    # Normal noise joins the covariance; anything else is drawn for given latent values.
    normal = isinstance(observation, GaussianObservation)
    noise = observation.noise_variance.double().numpy() if normal else np.zeros(joint.mean.shape[-1])
    draws = _latent_draws(joint, noise, n_samples, random)
    return draws if normal else observation.draw(draws, random)


def _latent_draws(joint: Joint, noise: np.ndarray, n_samples: int, random: np.random.RandomState) -> np.ndarray:
    mean, covariance = joint.mean.double().numpy(), joint.covariance.double().numpy()
    if joint.log_weight is None:
        return _draws(mean, covariance, noise, n_samples, random)
    weight = joint.log_weight.double().exp().flatten().numpy()
    covariance = np.broadcast_to(covariance, (len(weight), *covariance.shape[1:]))
    chosen = random.choice(len(weight), n_samples, p=weight / weight.sum())
    draws = np.empty((*mean.shape[1:], n_samples))
    # Sites may share their noise, or have each its own.
    noise = np.broadcast_to(noise.reshape(-1, mean.shape[-1]), (len(weight), mean.shape[-1]))
    for site in np.unique(chosen):
        of_site = np.flatnonzero(chosen == site)
        draws[..., of_site] = _draws(mean[site], covariance[site], noise[site], len(of_site), random)
    return draws


def _draws(
    mean: np.ndarray, covariance: np.ndarray, noise: np.ndarray, n_samples: int, random: np.random.RandomState
) -> np.ndarray:
    """Of one normal distribution: mean (row, output), covariance (output, row, row), noise (output)."""
    diagonal = np.eye(len(mean))
    draws = [
        JointNormal(mean[:, output], covariance[output] + noise[output] * diagonal).sample(n_samples, random).T
        for output in range(mean.shape[1])
    ]
    return np.stack(draws, axis=1)
