"""Objectives of deep GPs against GPyTorch: values and gradients, in float64 and at equal random parameters.

Its deep sigma point processes line up their sites as qr3 does. Its doubly stochastic deep GPs draw their own random
numbers; here they are given ours.
"""

from __future__ import annotations

import gpytorch
import pytest
import torch
from gpytorch.kernels import MaternKernel, ScaleKernel
from gpytorch.models.deep_gps import DeepGP, DeepGPLayer
from gpytorch.models.deep_gps.dspp import DSPP, DSPPLayer
from gpytorch.variational import CholeskyVariationalDistribution, MeanFieldVariationalDistribution, VariationalStrategy

from small_models import layers_problem, random_rows

TOLERANCE = {"rtol": 1e-7, "atol": 1e-8}
Q = {"full": CholeskyVariationalDistribution, "diagonal": MeanFieldVariationalDistribution}


def reference_layer(kind, ours, n_gps, n_sites, weights):
    """A layer of GPyTorch's with the parameters of one of ours."""
    batch = torch.Size([n_gps] if n_gps else [])
    n_features = ours.points.shape[-1]

    class Layer(kind):
        def __init__(self):
            q = Q[weights](ours.points.shape[-2], batch_shape=batch, mean_init_std=0.0)
            points = ours.points.detach().clone().reshape(*batch, *ours.points.shape[-2:])
            strategy = VariationalStrategy(self, points, q, learn_inducing_locations=True, jitter_val=0.0)
            sites = {"num_quad_sites": n_sites} if kind is DSPPLayer else {}
            super().__init__(strategy, n_features, n_gps, **sites)
            strategy.variational_params_initialized.fill_(1)
            linear = gpytorch.means.LinearMean(n_features, batch_shape=batch)
            self.mean_module = linear if n_gps else gpytorch.means.ConstantMean()
            base = MaternKernel(nu=2.5, ard_num_dims=n_features, batch_shape=batch)
            self.covar_module = ScaleKernel(base, batch_shape=batch)
            self.double()
            with torch.no_grad():
                self.covar_module.outputscale = ours.kernel.amplitude.value.reshape(batch)
                base.lengthscale = ours.kernel.base.lengthscale.value.reshape(*batch, 1, n_features)
                if n_gps:
                    linear.weights.copy_(ours.mean.slope.value.T.unsqueeze(-1))
                    linear.bias.copy_(ours.mean.constant.value.unsqueeze(-1))
                else:
                    self.mean_module.constant.copy_(ours.mean.constant.value[0])
                q.variational_mean.copy_(ours.weights.mean.reshape(q.variational_mean.shape))
                if weights == "full":
                    q.chol_variational_covar.copy_(ours.weights.lower.reshape(q.chol_variational_covar.shape))
                else:
                    q._variational_stddev.copy_(ours.weights.root().reshape(q._variational_stddev.shape))

        def forward(self, x):
            return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))

    return Layer()


def reference_model(problem, weights):
    """The whole stack, and its likelihood."""
    family = problem.family
    *hidden, last = family.layers
    sigma_points = hasattr(family.rule, "sites")
    kind, n_sites = (DSPPLayer if sigma_points else DeepGPLayer), len(family.rule.log_weight())

    class Model(DSPP if sigma_points else DeepGP):
        def __init__(self):
            super().__init__(*([n_sites] if sigma_points else []))
            layers = [reference_layer(kind, layer, len(layer.points), n_sites, weights) for layer in hidden]
            self.stack = torch.nn.ModuleList([*layers, reference_layer(kind, last, None, n_sites, weights)])
            if sigma_points:
                with torch.no_grad():
                    self.raw_quad_weights.data = family.rule.logits.detach().clone()
                    # Theirs belong to the layer that they lead to.
                    for layer, sites in zip(self.stack[1:], family.rule.sites, strict=True):
                        layer.quad_sites.data = sites.detach().clone()

        def forward(self, x):
            for layer in self.stack:
                x = layer(x)
            return x

    likelihood = gpytorch.likelihoods.GaussianLikelihood().double()
    with torch.no_grad():
        likelihood.noise = problem.likelihood.noise.value.flatten()
    return Model(), likelihood


@pytest.mark.parametrize("widths", [(2,), (3, 2)])
@pytest.mark.parametrize("weights", ["diagonal", "full"])
def test_deep_sigma_point_processes(widths, weights):
    rows, beta = random_rows(12, n_features=3), 0.3
    problem = layers_problem(rows, widths, weights=weights, beta=beta)
    with torch.no_grad():
        problem.family.rule.logits.copy_(torch.tensor([0.5, -0.2, 0.1, -1.0]))
    model, likelihood = reference_model(problem, weights)
    objective = gpytorch.mlls.DeepPredictiveLogLikelihood(likelihood, model, num_data=len(rows), beta=beta)
    with gpytorch.settings.cholesky_jitter(double_value=0.0):
        theirs = -objective(model(rows.x), rows.y[:, 0])
        theirs.backward()
    ours = problem.loss(rows.whole())
    ours.backward()
    torch.testing.assert_close(ours, theirs, **TOLERANCE)
    rule = problem.family.rule
    torch.testing.assert_close(rule.logits.grad, model.raw_quad_weights.grad, **TOLERANCE)
    for number, layer in enumerate(problem.family.layers):
        twin = model.stack[number]
        points = twin.variational_strategy.inducing_points.grad.reshape(layer.points.shape)
        torch.testing.assert_close(layer.points.grad, points, **TOLERANCE)
        m = twin.variational_strategy._variational_distribution.variational_mean.grad
        torch.testing.assert_close(layer.weights.mean.grad, m.reshape(layer.weights.mean.shape), **TOLERANCE)
        if number < len(widths):
            torch.testing.assert_close(rule.sites[number].grad, model.stack[number + 1].quad_sites.grad, **TOLERANCE)
            torch.testing.assert_close(layer.mean.slope.raw.grad, twin.mean_module.weights.grad[..., 0].T, **TOLERANCE)


def test_doubly_stochastic_deep_gps(monkeypatch):
    rows, beta, n_sites = random_rows(10, n_features=2), 0.7, 3
    problem = layers_problem(rows, (2,), weights="full", objective="elbo", beta=beta, n_draws=n_sites)
    model, likelihood = reference_model(problem, "full")
    draws = problem.family.rule.points(0, len(rows))
    # Their samples with our random numbers.
    monkeypatch.setattr(torch.distributions.Normal, "rsample", lambda normal: normal.loc + draws * normal.scale)
    elbo = gpytorch.mlls.VariationalELBO(likelihood, model, num_data=len(rows), beta=beta)
    objective = gpytorch.mlls.DeepApproximateMLL(elbo)
    with (
        gpytorch.settings.cholesky_jitter(double_value=0.0),
        gpytorch.settings.num_likelihood_samples(n_sites),
    ):
        theirs = -objective(model(rows.x), rows.y[:, 0])
        theirs.backward()
    ours = problem.loss(rows.whole())
    ours.backward()
    torch.testing.assert_close(ours, theirs, **TOLERANCE)
    for layer, twin in zip(problem.family.layers, model.stack, strict=True):
        root = twin.variational_strategy._variational_distribution.chol_variational_covar.grad
        torch.testing.assert_close(
            layer.weights.lower.grad.tril(), root.reshape(layer.weights.lower.shape).tril(), **TOLERANCE
        )
