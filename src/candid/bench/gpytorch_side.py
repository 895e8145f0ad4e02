"""The measured models in GPyTorch, as its documentation builds them. Import this only where GPyTorch is installed."""

from __future__ import annotations

from collections.abc import Callable

import gpytorch
import torch
from torch import Tensor, nn

from candid.bench.case import Case, Sample

__all__ = ["build"]

DISTRIBUTIONS = {
    "full": gpytorch.variational.CholeskyVariationalDistribution,
    "diagonal": gpytorch.variational.MeanFieldVariationalDistribution,
    "delta": gpytorch.variational.DeltaVariationalDistribution,
}
OBJECTIVES = {"elbo": gpytorch.mlls.VariationalELBO, "predictive": gpytorch.mlls.PredictiveLogLikelihood}


class _Model(gpytorch.models.ApproximateGP):
    def __init__(self, case: Case, points: Tensor) -> None:
        distribution = DISTRIBUTIONS[case.row.made_of.weights or "full"](case.n_inducing)
        super().__init__(gpytorch.variational.VariationalStrategy(self, points, distribution))
        self.mean_module = gpytorch.means.ZeroMean()
        self.covar_module = gpytorch.kernels.ScaleKernel(
            gpytorch.kernels.MaternKernel(nu=2.5, ard_num_dims=case.n_features)
        )
        self.covar_module.initialize(outputscale=case.amplitude)
        self.covar_module.base_kernel.initialize(lengthscale=case.lengthscale)

    def forward(self, x: Tensor) -> gpytorch.distributions.MultivariateNormal:
        mean, covariance = self.mean_module(x), self.covar_module(x)
        return gpytorch.distributions.MultivariateNormal(mean, covariance)  # pyright: ignore[reportArgumentType]


def build(
    case: Case, sample: Sample
) -> tuple[Callable[[], Tensor], list[nn.Parameter], Callable[[], tuple[Tensor, Tensor]]]:
    """The loss of the batch, the parameters it depends on, and the prediction of the new rows."""
    model = _Model(case, sample.points.clone())
    likelihood = gpytorch.likelihoods.GaussianLikelihood()
    likelihood.initialize(noise=case.noise)
    objective = OBJECTIVES[case.row.made_of.objective](likelihood, model, num_data=sample.total, beta=case.beta)
    frozen = _Model(case, sample.points.clone()).eval()

    def loss() -> Tensor:
        return -objective(model(sample.x), sample.y)  # pyright: ignore[reportOperatorIssue]

    @torch.no_grad()
    def predict() -> tuple[Tensor, Tensor]:
        latent = frozen(sample.new_x)
        return latent.mean, latent.variance

    return loss, [*model.parameters(), *likelihood.parameters()], predict
