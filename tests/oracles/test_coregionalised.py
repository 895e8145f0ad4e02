"""Outputs that share latent functions: GPyTorch's ELBO, and what must be equal without mixing."""

from __future__ import annotations

import copy

import gpytorch
import pytest
import torch
from gpytorch.variational import CholeskyVariationalDistribution, LMCVariationalStrategy, VariationalStrategy

from candid.likelihoods import Coregionalised, Gaussian
from small_models import random_rows, sparse_problem

N_OUTPUTS, N_LATENTS = 3, 2


def mixed(plain, rows):
    """The same latent functions behind other outputs."""
    problem = copy.deepcopy(plain)
    problem.likelihood = Coregionalised(rows.y, len(plain.family.points), Gaussian(n_outputs=rows.y.shape[1])).double()
    return problem


class Reference(gpytorch.models.ApproximateGP):
    """The linear model of coregionalisation in GPyTorch with the parameters of ours."""

    def __init__(self, problem) -> None:
        ours = problem.family
        points = ours.points.detach().clone()
        batch = points.shape[:1]
        q = CholeskyVariationalDistribution(points.shape[-2], batch_shape=batch, mean_init_std=0.0)
        base = VariationalStrategy(self, points, q, learn_inducing_locations=True, jitter_val=0.0)
        strategy = LMCVariationalStrategy(
            base, num_tasks=N_OUTPUTS, num_latents=N_LATENTS, latent_dim=-1, jitter_val=0.0
        )
        super().__init__(strategy)
        base.variational_params_initialized.fill_(1)
        self.mean_module = gpytorch.means.ConstantMean(batch_shape=batch)
        matern = gpytorch.kernels.MaternKernel(nu=2.5, ard_num_dims=points.shape[-1], batch_shape=batch)
        self.covar_module = gpytorch.kernels.ScaleKernel(matern, batch_shape=batch)
        self.likelihood = gpytorch.likelihoods.MultitaskGaussianLikelihood(num_tasks=N_OUTPUTS, has_global_noise=False)
        self.double()
        with torch.no_grad():
            self.covar_module.outputscale = ours.kernel.amplitude.value
            matern.lengthscale = ours.kernel.base.lengthscale.value
            self.mean_module.constant.copy_(ours.mean.constant.value)
            q.variational_mean.copy_(ours.weights.mean)
            q.chol_variational_covar.copy_(ours.weights.lower)
            strategy.lmc_coefficients.copy_(problem.likelihood.mixing.value)
            self.likelihood.task_noises = problem.likelihood.noise.noise.value.flatten()

    def forward(self, x):
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


def test_the_bound_is_gpytorchs():
    rows = random_rows(20, n_outputs=N_OUTPUTS, seed=4)
    ours = mixed(sparse_problem(random_rows(20, n_outputs=N_LATENTS, seed=4)), rows)
    theirs = Reference(ours)
    bound = gpytorch.mlls.VariationalELBO(theirs.likelihood, theirs, num_data=20)
    with gpytorch.settings.cholesky_jitter(double_value=0.0):
        expected = -bound(theirs(rows.x), rows.y)
    found = ours.loss(rows.whole())
    torch.testing.assert_close(found, expected, rtol=1e-7, atol=1e-7)
    pairs = (
        (ours.likelihood.mixing.raw, theirs.variational_strategy.lmc_coefficients),
        (ours.family.points, theirs.variational_strategy.base_variational_strategy.inducing_points),
    )
    for own, other in pairs:
        (mine,) = torch.autograd.grad(found, own, retain_graph=True)
        (foreign,) = torch.autograd.grad(expected, other, retain_graph=True)
        torch.testing.assert_close(mine, foreign, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("weights", ["delta", "diagonal", "full"])
@pytest.mark.parametrize("objective", ["elbo", "predictive"])
def test_without_mixing_outputs_are_independent(objective, weights):
    rows = random_rows(20, n_outputs=2, seed=5, weighted=True)
    plain = sparse_problem(rows, weights, objective, beta=0.3)
    together = mixed(plain, rows)
    together.likelihood.mixing.set(torch.eye(2))
    together.likelihood.noise.load_state_dict(plain.likelihood.state_dict())
    torch.testing.assert_close(together.loss(rows.whole()), plain.loss(rows.whole()))
    torch.testing.assert_close(
        torch.tensor(together.held_out_nll(rows)), torch.tensor(plain.held_out_nll(rows)), rtol=1e-7, atol=1e-7
    )
