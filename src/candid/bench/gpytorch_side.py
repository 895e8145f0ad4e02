"""The methods that GPyTorch has too, as its documentation builds them. Import this only where GPyTorch is installed."""

from __future__ import annotations

import gpytorch
import torch
from torch import Tensor

from candid.methods import METHODS, Method

__all__ = ["GPyTorchModel", "gpytorch_methods", "make_likelihood", "make_objective"]

DISTRIBUTIONS = {
    "full": gpytorch.variational.CholeskyVariationalDistribution,
    "diagonal": gpytorch.variational.MeanFieldVariationalDistribution,
    "delta": gpytorch.variational.DeltaVariationalDistribution,
}
STRATEGIES = {
    "inducing": gpytorch.variational.VariationalStrategy,
    # Both sets of inducing points start at the same place.
    "decoupled": gpytorch.variational.BatchDecoupledVariationalStrategy,
}
OBJECTIVES = {"elbo": gpytorch.mlls.VariationalELBO, "predictive": gpytorch.mlls.PredictiveLogLikelihood}


def gpytorch_methods() -> list[str]:
    """Names of the methods that can be built."""
    return [
        row.name
        for row in METHODS.values()
        if row.made_of.family in STRATEGIES
        and row.made_of.weights in DISTRIBUTIONS
        and row.made_of.objective in OBJECTIVES
    ]


class GPyTorchModel(gpytorch.models.ApproximateGP):
    """Matérn-5/2 kernel with a lengthscale for each feature, zero mean, inducing points (M×D) that are learned."""

    def __init__(self, row: Method, points: Tensor) -> None:
        made_of, n_features = row.made_of, points.shape[-1]
        distribution = DISTRIBUTIONS[str(made_of.weights)](points.shape[-2])
        super().__init__(STRATEGIES[made_of.family](self, points.clone(), distribution))
        # One kernel for the inducing points of the mean and those of the variance.
        batch = torch.Size([1] if made_of.family == "decoupled" else [])
        self.mean_module = gpytorch.means.ZeroMean(batch_shape=batch)
        self.covar_module = gpytorch.kernels.ScaleKernel(
            gpytorch.kernels.MaternKernel(nu=2.5, ard_num_dims=n_features, batch_shape=batch), batch_shape=batch
        )

    def forward(self, x: Tensor) -> gpytorch.distributions.MultivariateNormal:
        mean, covariance = self.mean_module(x), self.covar_module(x)
        return gpytorch.distributions.MultivariateNormal(mean, covariance)  # pyright: ignore[reportArgumentType]

    @torch.no_grad()
    def moments(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Latent mean and variance."""
        latent = self(x)
        return latent.mean, latent.variance


def make_likelihood() -> gpytorch.likelihoods.GaussianLikelihood:
    return gpytorch.likelihoods.GaussianLikelihood()


def make_objective(
    row: Method, model: GPyTorchModel, likelihood: gpytorch.likelihoods.GaussianLikelihood, n_rows: int, beta: float
) -> gpytorch.mlls.MarginalLogLikelihood:
    """What is maximised; a module that takes the model's output and the targets."""
    return OBJECTIVES[row.made_of.objective](likelihood, model, num_data=n_rows, beta=beta)
