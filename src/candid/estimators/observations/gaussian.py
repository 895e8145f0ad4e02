"""Real numbers with normal noise."""

from __future__ import annotations

import numpy as np
from torch import Tensor

from candid.estimators.observations.base import Latent, Observation, by_site, of_sites, shaped
from candid.likelihoods import Gaussian, PartlyObserved
from candid.predictive import PredictiveMixture, PredictiveNormal

__all__ = ["GaussianObservation"]


class GaussianObservation(Observation):
    """y = f + ε with normal ε.

    Parameters
    ----------
    noise_variance : Tensor of shape (output,) or (site, 1, output)
        In squared units of y; of each site, where the model is a mixture of models.
    """

    kind = "gaussian"
    noise_variance: Tensor

    def __init__(self, noise_variance: Tensor) -> None:
        super().__init__()
        self.register_buffer("noise_variance", noise_variance)

    @classmethod
    def of(cls, likelihood: Gaussian | PartlyObserved, scale: Tensor) -> GaussianObservation:
        variance = likelihood.at(None).variance.double().cpu()
        # One row of variances, unless there are several chains of it.
        return cls((variance.flatten() if variance.dim() <= 2 else variance) * scale.square())

    def likelihood(self, scale: Tensor) -> Gaussian:
        return Gaussian(n_outputs=len(scale), known=(self.noise_variance / scale.square()).unsqueeze(0))

    def distribution(
        self, latent: Latent, known: np.ndarray | None = None, vector: bool = False
    ) -> PredictiveNormal | PredictiveMixture:
        if latent.weight is None and self.noise_variance.dim() < 3:
            noise = self.noise_variance.double().numpy() if known is None else known
            parts = (latent.mean, np.sqrt(latent.variance), np.broadcast_to(np.sqrt(noise), latent.mean.shape))
            return PredictiveNormal(*(shaped(part, vector) for part in parts))
        noise = of_sites(self.noise_variance, latent, vector) if known is None else shaped(known, vector)
        mean, deviation, weight = by_site(latent, vector)
        return PredictiveMixture(mean, deviation, np.sqrt(noise), weight)
