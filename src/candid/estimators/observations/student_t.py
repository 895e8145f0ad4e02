"""Real numbers with outliers."""

from __future__ import annotations

import numpy as np
from torch import Tensor

from candid.estimators.observations.base import Latent, Observation, by_site, of_draws, of_sites
from candid.likelihoods import StudentT
from candid.predictive import PredictiveStudentT

__all__ = ["StudentTObservation"]


class StudentTObservation(Observation):
    """y = f + ε, where ε has Student's t distribution.

    Parameters
    ----------
    scale, freedom : Tensor of shape (output,) or (site, 1, output)
        In units of y, and degrees of freedom; of each site, where the model is a mixture of models.
    """

    kind = "student-t"
    scale: Tensor
    freedom: Tensor

    def __init__(self, scale: Tensor, freedom: Tensor) -> None:
        super().__init__()
        self.register_buffer("scale", scale)
        self.register_buffer("freedom", freedom)

    @classmethod
    def of(cls, likelihood: StudentT, scale: Tensor) -> StudentTObservation:
        both = (part.value.double().cpu() for part in (likelihood.scale, likelihood.freedom))
        own_scale, freedom = (part.flatten() if part.dim() <= 2 else part for part in both)
        return cls(own_scale * scale, freedom)

    def likelihood(self, scale: Tensor) -> StudentT:
        likelihood = StudentT(n_outputs=len(scale)).double()
        likelihood.scale.set(self.scale / scale)
        likelihood.freedom.set(self.freedom)
        return likelihood

    @property
    def noise_variance(self) -> Tensor:
        # s²ν/(ν − 2)
        return self.scale.square() * self.freedom / (self.freedom - 2)

    def distribution(self, latent: Latent, known: np.ndarray | None = None, vector: bool = False) -> PredictiveStudentT:
        if known is not None:
            raise ValueError("alpha is a variance of normal noise; a model with Student's t noise has learned its own")
        mean, deviation, weight = by_site(latent, vector)
        scale, freedom = (of_sites(part, latent, vector) for part in (self.scale, self.freedom))
        return PredictiveStudentT(mean, deviation, scale, freedom, weight)

    def draw(self, f: np.ndarray, rng: np.random.RandomState, site: np.ndarray | None = None) -> np.ndarray:
        scale, freedom = (of_draws(part, site) for part in (self.scale, self.freedom))
        return f + scale * rng.standard_t(np.broadcast_to(freedom, f.shape))
