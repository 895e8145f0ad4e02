"""Classes, of which there are two or several."""

from __future__ import annotations

import numpy as np
import torch
from scipy.special import logsumexp
from torch import Tensor

from candid.estimators.observations.base import Latent, Observation
from candid.likelihoods import Bernoulli, OneAgainstAll, Softmax
from candid.likelihoods.softmax import N_NODES
from candid.predictive import PredictiveBernoulli, PredictiveCategorical

__all__ = ["BernoulliObservation", "OneAgainstAllObservation", "SoftmaxObservation"]


class BernoulliObservation(Observation):
    """Two classes: y = 1 with probability σ(f) or Φ(f), and y = 0 otherwise.

    Parameters
    ----------
    link : {"logit", "probit"}
    """

    def __init__(self, link: str) -> None:
        super().__init__()
        self.kind = link
        self.rows = Bernoulli(link).at()  # pyright: ignore[reportArgumentType]

    @classmethod
    def of(cls, likelihood: Bernoulli, scale: Tensor) -> BernoulliObservation:
        return cls(likelihood.link)

    def likelihood(self, scale: Tensor) -> Bernoulli:
        return Bernoulli(self.kind)  # pyright: ignore[reportArgumentType]

    def distribution(
        self, latent: Latent, known: np.ndarray | None = None, vector: bool = False
    ) -> PredictiveBernoulli:
        latent = latent.sites
        logs = np.empty((*latent.mean.shape[:-1], 2))
        for mean, variance, rows in latent.chunks(N_NODES):
            for label in (0, 1):
                y = torch.full(mean.shape[-2:], float(label), dtype=mean.dtype)
                logs[..., rows, label] = self.rows.log_expected_density(y, mean, variance).squeeze(-1).numpy()
        return PredictiveBernoulli.from_log(_mixed(logs, latent))


class SoftmaxObservation(Observation):
    """Several classes: the probability of each is proportional to exp(f) of its own latent value."""

    kind = "softmax"

    @classmethod
    def of(cls, likelihood: Softmax, scale: Tensor) -> SoftmaxObservation:
        return cls()

    def distribution(
        self, latent: Latent, known: np.ndarray | None = None, vector: bool = False
    ) -> PredictiveCategorical:
        latent, likelihood = latent.sites, Softmax().at()
        logs = np.empty(latent.mean.shape)
        for mean, variance, rows in latent.chunks(likelihood.n_nodes):
            logs[..., rows, :] = likelihood.log_class_probabilities(mean, variance).numpy()
        return PredictiveCategorical.from_log(_mixed(logs, latent))


class OneAgainstAllObservation(Observation):
    """Several classes, each with a logistic model of itself against all others; their probabilities are normalised."""

    kind = "one-against-all"

    @classmethod
    def of(cls, likelihood: OneAgainstAll, scale: Tensor) -> OneAgainstAllObservation:
        return cls()

    def likelihood(self, scale: Tensor) -> OneAgainstAll:
        return OneAgainstAll(len(scale))

    def distribution(
        self, latent: Latent, known: np.ndarray | None = None, vector: bool = False
    ) -> PredictiveCategorical:
        latent, likelihood = latent.sites, OneAgainstAll(latent.mean.shape[-1]).at()
        logs = np.empty(latent.mean.shape)
        for mean, variance, rows in latent.chunks(N_NODES):
            logs[..., rows, :] = likelihood.log_class_probabilities(mean, variance).numpy()
        return PredictiveCategorical.from_log(_mixed(logs, latent))


def _mixed(logs: np.ndarray, latent: Latent) -> np.ndarray:
    # log Σ_j ω_j p_j over sites
    assert latent.weight is not None
    return np.asarray(logsumexp(logs, axis=0, b=latent.weight[:, None, None]))
