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
    chosen = _chosen_sites(joint, n_samples, random)
    draws = _latent_draws(joint, noise, n_samples, random, chosen)
    return draws if normal else observation.draw(draws, random, chosen)


def _chosen_sites(joint: Joint, n_samples: int, random: np.random.RandomState) -> np.ndarray | None:
    """The site of each draw, where there are sites."""
    if joint.log_weight is None:
        return None
    weight = joint.log_weight.double().exp().flatten().numpy()
    return random.choice(len(weight), n_samples, p=weight / weight.sum())


def _latent_draws(
    joint: Joint, noise: np.ndarray, n_samples: int, random: np.random.RandomState, chosen: np.ndarray | None
) -> np.ndarray:
    mean, covariance = joint.mean.double().numpy(), joint.covariance.double().numpy()
    if joint.cross is not None:
        n_rows, n_outputs = mean.shape
        covariance = joint.cross.double().flatten(2).flatten(0, 1).numpy() + np.diag(noise.repeat(n_rows))
        draws = JointNormal(mean.T.ravel(), covariance).sample(n_samples, random)
        return draws.reshape(n_samples, n_outputs, n_rows).transpose(2, 1, 0)
    if chosen is None:
        return _draws(mean, covariance, noise, n_samples, random)
    covariance = np.broadcast_to(covariance, (len(mean), *covariance.shape[1:]))
    draws = np.empty((*mean.shape[1:], n_samples))
    # Sites may share their noise, or have each its own.
    noise = np.broadcast_to(noise.reshape(-1, mean.shape[-1]), (len(mean), mean.shape[-1]))
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
