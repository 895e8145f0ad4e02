"""Counts: binomial and negative binomial."""

from __future__ import annotations

import numpy as np
from scipy.special import expit
from torch import Tensor

from candid.estimators.observations.base import Latent, Observation, by_site, of_draws, of_sites, shaped
from candid.likelihoods import Binomial, NegativeBinomial
from candid.predictive import PredictiveBinomial, PredictiveNegativeBinomial

__all__ = ["BinomialObservation", "NegativeBinomialObservation"]


class BinomialObservation(Observation):
    """Successes out of a number of trials, each with probability σ(f).

    Parameters
    ----------
    trials : Tensor of shape (output,), optional
        Where all rows have the same; otherwise new rows have to say theirs.
    """

    kind = "binomial"
    trials: Tensor | None

    def __init__(self, trials: Tensor | None = None) -> None:
        super().__init__()
        self.register_buffer("trials", trials)

    @classmethod
    def of(cls, likelihood: Binomial, scale: Tensor) -> BinomialObservation:
        return cls(likelihood.trials.double().cpu().flatten() if likelihood.constant else None)

    def likelihood(self, scale: Tensor) -> Binomial:
        # Where rows have numbers of their own, those of training rows are not known any more.
        return Binomial(scale.new_empty(0, len(scale)) if self.trials is None else self.trials.unsqueeze(0))

    def distribution(self, latent: Latent, known: np.ndarray | None = None, vector: bool = False) -> PredictiveBinomial:
        trials = known if known is not None or self.trials is None else self.trials.double().numpy()
        if trials is None:
            raise ValueError(
                "the model was fitted to rows that each have a number of trials, and new rows have to say theirs: "
                "predict_distribution(X, n_trials=...) has the mean, and everything else"
            )
        location, deviation, weight = by_site(latent, vector)
        trials = shaped(np.broadcast_to(trials, latent.mean.shape[-2:]), vector)
        return PredictiveBinomial(location, deviation, trials, weight)

    def draw(self, f: np.ndarray, rng: np.random.RandomState, site: np.ndarray | None = None) -> np.ndarray:
        if self.trials is None:
            raise ValueError("draws need numbers of trials, which each row has for itself; use predict_distribution")
        trials = self.trials.numpy().astype(np.int64)
        return rng.binomial(trials.reshape(-1, *[1] * (f.ndim - 2)), expit(f)).astype(np.float64)


class NegativeBinomialObservation(Observation):
    """Counts with mean r·exp(f) and variance mean + mean²/r.

    Parameters
    ----------
    concentration : Tensor of shape (output,) or (site, 1, output)
        r; of each site, where the model is a mixture of models.
    """

    kind = "negative-binomial"
    concentration: Tensor

    def __init__(self, concentration: Tensor) -> None:
        super().__init__()
        self.register_buffer("concentration", concentration)

    @classmethod
    def of(cls, likelihood: NegativeBinomial, scale: Tensor) -> NegativeBinomialObservation:
        value = likelihood.concentration.value.double().cpu()
        return cls(value.flatten() if value.dim() <= 2 else value)

    def likelihood(self, scale: Tensor) -> NegativeBinomial:
        likelihood = NegativeBinomial(n_outputs=len(scale)).double()
        likelihood.concentration.set(self.concentration)
        return likelihood

    def distribution(
        self, latent: Latent, known: np.ndarray | None = None, vector: bool = False
    ) -> PredictiveNegativeBinomial:
        location, deviation, weight = by_site(latent, vector)
        return PredictiveNegativeBinomial(location, deviation, of_sites(self.concentration, latent, vector), weight)

    def draw(self, f: np.ndarray, rng: np.random.RandomState, site: np.ndarray | None = None) -> np.ndarray:
        concentration = of_draws(self.concentration, site)
        return rng.negative_binomial(np.broadcast_to(concentration, f.shape), expit(-f)).astype(np.float64)
