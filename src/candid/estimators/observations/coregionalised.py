"""Real numbers that are mixtures of latent functions, with normal noise."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from candid.estimators.observations.base import Latent, Observation
from candid.estimators.scaling import Standardizer
from candid.families import Joint
from candid.likelihoods import Coregionalised, Gaussian
from candid.marginal import Marginal
from candid.predictive import PredictiveCorrelated

__all__ = ["CoregionalisedObservation"]


class CoregionalisedObservation(Observation):
    """y = shift + Aᵀf + ε with normal ε that is independent from output to output; f has no units.

    Parameters
    ----------
    mixing : Tensor of shape (latent function, output)
        A, in units of y.
    shift, scale : Tensor of shape (output,)
        With which y was standardised.
    noise_variance : Tensor of shape (output,)
        In squared units of y.
    """

    kind = "coregionalised"
    mixing: Tensor
    shift: Tensor
    scale: Tensor
    noise_variance: Tensor

    def __init__(self, mixing: Tensor, shift: Tensor, scale: Tensor, noise_variance: Tensor) -> None:
        super().__init__()
        self.register_buffer("mixing", mixing)
        self.register_buffer("shift", shift)
        self.register_buffer("scale", scale)
        self.register_buffer("noise_variance", noise_variance)

    @classmethod
    def of(cls, likelihood: Coregionalised, targets: Standardizer) -> CoregionalisedObservation:
        shift, scale = torch.as_tensor(targets.shift), torch.as_tensor(targets.scale)
        rows = likelihood.at(None)
        mixing, variance = rows.mixing.double().cpu(), rows.variance.double().cpu().flatten()
        return cls(mixing * scale, shift.clone(), scale.clone(), variance * scale.square())

    def likelihood(self, scale: Tensor) -> Gaussian:
        """The noise alone: what mixes latent functions is part of the predictor."""
        return Gaussian(n_outputs=len(self.scale), known=(self.noise_variance / self.scale.square()).unsqueeze(0))

    def target_scaling(self, n_targets: int) -> Standardizer:
        return Standardizer(self.shift.double().numpy(), self.scale.double().numpy())

    def n_targets(self, n_latents: int) -> int:
        return len(self.shift)

    def of_targets(self, latent: Marginal) -> Marginal:
        mixing = self.mixing.to(latent.mean)
        mean, square = self.shift.to(mixing) + latent.mean @ mixing, mixing.square()
        if latent.cross is None:
            return Marginal(mean, latent.residual @ square, latent.spread @ square, latent.log_weight)
        # The diagonal of AᵀVA
        variance = ((latent.cross @ mixing) * mixing).sum(-2)
        return Marginal(mean, variance, torch.zeros_like(variance), latent.log_weight)

    def distribution(
        self, latent: Latent, known: np.ndarray | None = None, vector: bool = False
    ) -> PredictiveCorrelated:
        mixing, sites = self.mixing.double().numpy(), latent.sites
        means = self.shift.double().numpy() + sites.mean @ mixing
        if latent.cross is None:
            # Aᵀ diag(variance) A
            covariances = (mixing.T * sites.variance[..., None, :]) @ mixing
        else:
            covariances = (mixing.T @ latent.cross @ mixing)[None]
        noise = self.noise_variance.double().numpy() if known is None else known
        means, covariances = (np.moveaxis(part, 0, -1) for part in (means, covariances))
        return PredictiveCorrelated(means, covariances, np.sqrt(noise), sites.weight)

    def together(self, joint: Joint) -> tuple[np.ndarray, np.ndarray]:
        """Mean (row, output) and covariance (row, row, output, output) of new observations of all rows together."""
        mixing = self.mixing.to(joint.mean)
        means = self.shift.to(mixing) + joint.mean @ mixing
        if joint.cross is not None:
            covariance = torch.einsum("wp,wnvm,vq->nmpq", mixing, joint.cross, mixing)
        else:
            covariance = torch.einsum("...wnm,wp,wq->...nmpq", joint.covariance, mixing, mixing)
        mean = means
        if joint.log_weight is not None:
            weight = joint.log_weight.exp().flatten()
            mean = torch.einsum("j,jnp->np", weight, means)
            # Σ ω C + Σ ω (μ − Σωμ)(μ − Σωμ)ᵀ
            apart = means - mean
            covariance = torch.einsum("j,jnmpq->nmpq", weight, covariance.expand(len(weight), *covariance.shape[1:]))
            covariance = covariance + torch.einsum("j,jnp,jmq->nmpq", weight, apart, apart)
        every = torch.arange(len(mean))
        covariance[every, every] += torch.diag(self.noise_variance.to(mixing))
        return mean.double().numpy(), covariance.double().numpy()

    def draw(self, f: np.ndarray, rng: np.random.RandomState, site: np.ndarray | None = None) -> np.ndarray:
        mixing, shift, noise = (part.double().numpy() for part in (self.mixing, self.shift, self.noise_variance))
        # Aᵀf + shift + ε
        mean = mixing.T @ f + shift[:, None]
        return mean + np.sqrt(noise)[:, None] * rng.standard_normal(mean.shape)
