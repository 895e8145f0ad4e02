"""Objectives of sparse GPs against GPyTorch: values and all gradients, in float64 and at random parameters.

Both sides are averaged over the batch, with penalties divided by the number of rows. GPyTorch's point estimate is
penalised by −log N(m; 0, I) with its constant, as ours is. With zero jitter on both sides the two compute the same
function; with GPyTorch's own jitter ε they do once ε is added to k(x, x) as well.
"""

from __future__ import annotations

import dataclasses

import gpytorch
import pytest
import torch
from gpytorch.kernels import MaternKernel, RBFKernel, ScaleKernel
from gpytorch.variational import (
    CholeskyVariationalDistribution,
    DeltaVariationalDistribution,
    MeanFieldVariationalDistribution,
    VariationalStrategy,
)

from candid.engines import Problem
from small_models import random_rows, sparse_problem

TOLERANCE = {"rtol": 1e-8, "atol": 1e-8}
METHODS = {
    "svgp": ("full", "elbo"),
    "map": ("delta", "elbo"),
    "ppgpr-delta": ("delta", "predictive"),
    "ppgpr-mf": ("diagonal", "predictive"),
    "ppgpr-chol": ("full", "predictive"),
}
Q = {
    "full": CholeskyVariationalDistribution,
    "delta": DeltaVariationalDistribution,
    "diagonal": MeanFieldVariationalDistribution,
}
BASES = {
    "rbf": RBFKernel,
    "matern32": lambda **options: MaternKernel(nu=1.5, **options),
    "matern52": lambda **options: MaternKernel(nu=2.5, **options),
}


class Reference(gpytorch.models.ApproximateGP):
    """P independent sparse GPs in GPyTorch with the parameters of one of ours."""

    def __init__(self, problem: Problem, weights: str, kernel: str, jitter: float) -> None:
        points = problem.family.points.detach().clone()
        batch = points.shape[:1]
        q = Q[weights](points.shape[-2], batch_shape=batch, mean_init_std=0.0)
        super().__init__(VariationalStrategy(self, points, q, learn_inducing_locations=True, jitter_val=jitter))
        self.variational_strategy.variational_params_initialized.fill_(1)
        self.mean_module = gpytorch.means.ConstantMean(batch_shape=batch)
        base = BASES[kernel](ard_num_dims=points.shape[-1], batch_shape=batch)
        self.covar_module = ScaleKernel(base, batch_shape=batch)
        self.likelihood = gpytorch.likelihoods.GaussianLikelihood(batch_shape=batch)
        self.q = q
        self.double()
        ours = problem.family
        with torch.no_grad():
            self.covar_module.outputscale = ours.kernel.amplitude.value
            base.lengthscale = ours.kernel.base.lengthscale.value
            self.likelihood.noise = problem.likelihood.noise.value.mT
            self.mean_module.constant.copy_(ours.mean.constant.value)
            q.variational_mean.copy_(ours.weights.mean)
            if weights == "full":
                q.chol_variational_covar.copy_(ours.weights.lower)
            elif weights == "diagonal":
                q._variational_stddev.copy_(ours.weights.log_scale.exp())

    def forward(self, x):
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))

    def loss(self, objective: str, x, y, n_rows: int, beta: float):
        kinds = {"elbo": gpytorch.mlls.VariationalELBO, "predictive": gpytorch.mlls.PredictiveLogLikelihood}
        mll = kinds[objective](self.likelihood, self, num_data=n_rows, beta=beta)
        # One number for each output.
        return -mll(self(x), y.mT).sum()


def slope_of_softplus(raw, constraint):
    """d value / d raw of GPyTorch's positive parameters."""
    return torch.sigmoid(raw).detach() if constraint is not None else 1.0


def their_gradients(model: Reference, weights: str) -> dict[str, torch.Tensor]:
    """Gradients with respect to values, not to GPyTorch's raw parameters."""
    scale, likelihood, q = model.covar_module, model.likelihood, model.q

    def by_value(raw, module, name):
        return raw.grad / slope_of_softplus(raw, module.constraint_for_parameter_name(name))

    found = {
        "points": model.variational_strategy.inducing_points.grad,
        "lengthscale": by_value(scale.base_kernel.raw_lengthscale, scale.base_kernel, "raw_lengthscale"),
        "amplitude": by_value(scale.raw_outputscale, scale, "raw_outputscale"),
        "noise": by_value(likelihood.noise_covar.raw_noise, likelihood.noise_covar, "raw_noise").mT,
        "constant": model.mean_module.constant.grad,
        "m": q.variational_mean.grad,
    }
    if weights == "full":
        found["L_S"] = q.chol_variational_covar.grad
    elif weights == "diagonal":
        found["s"] = q._variational_stddev.grad
    return found


def our_gradients(problem: Problem, weights: str) -> dict[str, torch.Tensor]:
    """The same of ours, where value = lower + exp(raw)."""
    family, noise = problem.family, problem.likelihood.noise
    lengthscale, amplitude = family.kernel.base.lengthscale, family.kernel.amplitude
    found = {
        "points": family.points.grad,
        "lengthscale": lengthscale.raw.grad / lengthscale.raw.exp(),
        "amplitude": amplitude.raw.grad / amplitude.raw.exp(),
        "noise": noise.raw.grad / noise.raw.exp(),
        "constant": family.mean.constant.raw.grad,
        "m": family.weights.mean.grad,
    }
    if weights == "full":
        found["L_S"] = family.weights.lower.grad
    elif weights == "diagonal":
        found["s"] = family.weights.log_scale.grad / family.weights.log_scale.exp()
    return found


def compare(problem: Problem, reference: Reference, rows, batch, method: str, beta: float, skip: str = "") -> None:
    weights, objective = METHODS[method]
    ours = problem.loss(batch)
    theirs = reference.loss(objective, batch.x, batch.y, len(rows), beta)
    torch.testing.assert_close(ours, theirs, **TOLERANCE)
    ours.backward()
    theirs.backward()
    expected, found = their_gradients(reference, weights), our_gradients(problem, weights)
    assert found.keys() == expected.keys()
    for name in expected.keys() - {skip}:
        assert expected[name].abs().max() > 1e-6, f"the comparison of {name} says nothing: its gradient vanishes"
        torch.testing.assert_close(found[name], expected[name], **TOLERANCE, msg=lambda m, name=name: f"{name}: {m}")


@pytest.mark.parametrize("kernel", BASES)
@pytest.mark.parametrize("method", METHODS)
def test_values_and_gradients(method, kernel):
    """A mini-batch of 12 of 40 rows, two outputs with their own parameters, β ≠ 1."""
    rows = random_rows(40, n_features=3, n_outputs=2, seed=1)
    batch = rows.batch(torch.arange(7, 19))
    weights, objective = METHODS[method]
    problem = sparse_problem(rows, weights, objective, kernel, n_points=8, beta=0.3, seed=2)
    compare(problem, Reference(problem, weights, kernel, jitter=0.0), rows, batch, method, beta=0.3)


@pytest.mark.parametrize(("n_points", "n_batch"), [(1, 10), (9, 1), (9, 5), (6, 30)])
@pytest.mark.parametrize("method", METHODS)
def test_more_or_fewer_rows_than_points(method, n_points, n_batch):
    """GPyTorch computes batches with more rows than inducing points by another code path."""
    rows = random_rows(30, n_features=2, seed=3)
    weights, objective = METHODS[method]
    problem = sparse_problem(rows, weights, objective, "matern52", n_points=n_points, beta=1.0, seed=4)
    reference = Reference(problem, weights, "matern52", jitter=0.0)
    compare(problem, reference, rows, rows.batch(torch.arange(n_batch)), method, beta=1.0)


@pytest.mark.parametrize("method", METHODS)
def test_with_gpytorchs_jitter(method, monkeypatch):
    """Theirs is absolute and added to k(x, x) too; ours is relative to the amplitude and added to K_zz only.

    So it changes with the amplitude on one side only, and that gradient must differ.
    """
    jitter = 1e-6
    rows = random_rows(25, n_features=2, seed=5)
    weights, objective = METHODS[method]
    problem = sparse_problem(rows, weights, objective, "rbf", n_points=6, beta=0.5, seed=6)
    family = problem.family
    with torch.no_grad():
        family.jitter.copy_(jitter / family.kernel.amplitude.value)
    evaluate = family.evaluate

    def jittered(batch):
        evaluation = evaluate(batch)
        marginal = dataclasses.replace(evaluation.marginal, residual=evaluation.marginal.residual + jitter)
        return dataclasses.replace(evaluation, marginal=marginal)

    monkeypatch.setattr(family, "evaluate", jittered)
    reference = Reference(problem, weights, "rbf", jitter=jitter)
    compare(problem, reference, rows, rows.batch(torch.arange(10)), method, beta=0.5, skip="amplitude")


@pytest.mark.parametrize("weights", Q)
def test_penalty_with_its_constants(weights):
    """KL(q‖p), and for a point estimate −log N(m; 0, I) including (M/2) log 2π."""
    rows = random_rows(20, n_outputs=2, seed=7)
    problem = sparse_problem(rows, weights, n_points=5, seed=8)
    reference = Reference(problem, weights, "matern52", jitter=0.0)
    reference(rows.x)
    expected = reference.variational_strategy.kl_divergence()
    torch.testing.assert_close(problem.family.weights.penalty(), expected.sum(), **TOLERANCE)


@pytest.mark.parametrize("weights", Q)
def test_predictions(weights):
    """Mean and variance of the latent function, and their joint covariance, at rows that were not trained on."""
    rows, new = random_rows(20, n_outputs=2, seed=9), random_rows(11, seed=10).x
    problem = sparse_problem(rows, weights, n_points=7, seed=11)
    reference = Reference(problem, weights, "matern52", jitter=0.0).eval()
    with torch.no_grad():
        expected = reference(new.expand(2, *new.shape))
    predictor = problem.family.predictor()
    marginal, joint = predictor.marginal(new), predictor.joint(new)
    torch.testing.assert_close(marginal.mean, expected.mean.mT, **TOLERANCE)
    torch.testing.assert_close(marginal.variance, expected.variance.mT, **TOLERANCE)
    torch.testing.assert_close(joint.mean, expected.mean.mT, **TOLERANCE)
    torch.testing.assert_close(joint.covariance, expected.covariance_matrix, **TOLERANCE)
