"""Evidences on a low-rank prior against dense N×N formulas: values, and gradients by autograd through the dense ones.

With Q = K_xz K_zz⁻¹ K_zx:

    sgpr = log N(y; mu, Q + σ²I) − tr(K − Q)/(2σ²)        fitc = log N(y; mu, Q + diag(K − Q) + σ²I)
"""

from __future__ import annotations

import dataclasses

import pytest
import torch
from gpytorch.kernels import MaternKernel, ScaleKernel

from candid.engines import Plan, Problem, Rows, solve_weights, train
from candid.likelihoods import GaussianRows
from candid.objectives import EVIDENCES
from small_models import random_rows, sparse_problem

CLOSE = {"rtol": 1e-8, "atol": 1e-8}
KNOWN = torch.linspace(0.05, 0.4, 28, dtype=torch.float64).reshape(14, 2)


class Dense:
    """The same model by dense matrices: GPyTorch's kernel with our parameters, torch's normal density."""

    def __init__(self, problem: Problem, n_outputs: int) -> None:
        batch = torch.Size([n_outputs])
        ours = problem.family
        base = MaternKernel(nu=2.5, ard_num_dims=ours.points.shape[-1], batch_shape=batch)
        self.kernel = ScaleKernel(base, batch_shape=batch).double()
        with torch.no_grad():
            self.kernel.outputscale = ours.kernel.amplitude.value
            base.lengthscale = ours.kernel.base.lengthscale.value
        self.points = ours.points.detach().clone().requires_grad_()
        self.constant = ours.mean.constant.value.detach().clone().requires_grad_()
        noise = problem.likelihood.noise
        self.noise = KNOWN if noise is None else noise.value.detach().clone().requires_grad_()

    def evidence(self, name: str, x, y):
        x = x.expand(len(self.points), *x.shape)
        cross = self.kernel(self.points, x).to_dense()
        explained = cross.mT @ torch.linalg.solve(self.kernel(self.points, self.points).to_dense(), cross)
        residual = self.kernel(x, x, diag=True) - explained.diagonal(dim1=-2, dim2=-1)
        noise = self.noise.expand_as(y).mT
        diagonal = noise + residual if name == "fitc" else noise
        normal = torch.distributions.MultivariateNormal(
            self.constant.reshape(-1, 1).expand_as(noise), explained + torch.diag_embed(diagonal)
        )
        value = normal.log_prob(y.mT).sum()
        return value if name == "fitc" else value - (residual / (2 * noise)).sum()

    def gradients(self) -> dict[str, torch.Tensor]:
        """With respect to values."""
        base = self.kernel.base_kernel
        found = {
            "points": self.points.grad,
            "lengthscale": base.raw_lengthscale.grad / torch.sigmoid(base.raw_lengthscale),
            "amplitude": self.kernel.raw_outputscale.grad / torch.sigmoid(self.kernel.raw_outputscale),
            "constant": self.constant.grad,
        }
        return found if self.noise is KNOWN else {**found, "noise": self.noise.grad}


def our_gradients(problem: Problem) -> dict[str, torch.Tensor]:
    family, noise = problem.family, problem.likelihood.noise
    lengthscale, amplitude = family.kernel.base.lengthscale, family.kernel.amplitude
    found = {
        "points": family.points.grad,
        "lengthscale": lengthscale.raw.grad / lengthscale.raw.exp(),
        "amplitude": amplitude.raw.grad / amplitude.raw.exp(),
        "constant": family.mean.constant.raw.grad,
    }
    return found if noise is None else {**found, "noise": noise.raw.grad / noise.raw.exp()}


@pytest.mark.parametrize("known", [None, KNOWN], ids=["learned noise", "known noise"])
@pytest.mark.parametrize("name", ["sgpr", "fitc"])
def test_values_and_gradients(name, known):
    """Two outputs with their own parameters."""
    rows = random_rows(14, n_features=3, n_outputs=2, seed=1)
    problem = sparse_problem(rows, "solved", name, n_points=5, known=known, seed=2)
    dense = Dense(problem, 2)
    ours, theirs = -14 * problem.loss(rows.whole()), dense.evidence(name, rows.x, rows.y)
    torch.testing.assert_close(ours, theirs, **CLOSE)
    ours.backward()
    theirs.backward()
    expected, found = dense.gradients(), our_gradients(problem)
    assert expected.keys() == found.keys()
    for key in expected:
        assert expected[key].abs().max() > 1e-6, f"the comparison of {key} says nothing: its gradient vanishes"
        torch.testing.assert_close(found[key].reshape(expected[key].shape), expected[key], **CLOSE)


@pytest.mark.parametrize("shape", [(1, 6), (6, 1), (9, 4)], ids=["one point", "one row", "more points than rows"])
@pytest.mark.parametrize("name", ["sgpr", "fitc"])
def test_few_points_or_rows(name, shape):
    n_points, n_rows = shape
    rows = random_rows(n_rows, seed=3)
    problem = sparse_problem(rows, "solved", name, n_points=n_points, seed=4)
    expected = Dense(problem, 1).evidence(name, rows.x, rows.y)
    torch.testing.assert_close(-n_rows * problem.loss(rows.whole()), expected, **CLOSE)


@pytest.mark.parametrize("name", ["sgpr", "fitc"])
def test_weights_of_rows_are_repetitions(name):
    """Values and gradients, with known noise too: against the table in which a row occurs as often as it weighs."""
    rows = random_rows(14, n_outputs=2, seed=5, weighted=True)
    index = torch.repeat_interleave(torch.arange(14), rows.weight.long())
    for known in (None, KNOWN):
        copies = Rows(rows.x[index], rows.y[index], torch.ones(len(index), dtype=torch.float64))
        values, gradients = [], []
        for table, noise in ((rows, known), (copies, None if known is None else known[index])):
            problem = sparse_problem(table, "solved", name, n_points=5, known=noise, seed=6)
            loss = problem.loss(table.whole())
            loss.backward()
            values.append(loss.detach())
            gradients.append(torch.cat([p.grad.flatten() for p in problem.groups()["all"]]))
        torch.testing.assert_close(values[0], values[1], **CLOSE)
        torch.testing.assert_close(gradients[0], gradients[1], **CLOSE)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(("evidence", "objective"), [("sgpr", "elbo"), ("fitc", "vfitc")])
def test_row_objectives_reach_it_with_the_best_weights(evidence, objective, weighted):
    """At β = 1 and the closed-form q(v): the same value, the same slope in everything else, and nothing is higher."""
    rows = random_rows(14, n_outputs=2, seed=7, weighted=weighted)
    problems = [sparse_problem(rows, "full", name, n_points=5, seed=8) for name in (evidence, objective)]
    by_rows = problems[1]
    random_q = by_rows.loss(rows.whole()).item()
    for problem in problems:
        solve_weights(problem.family, problem.likelihood, rows, residual_is_noise=evidence == "fitc")
    losses = [problem.loss(rows.whole()) for problem in problems]
    torch.testing.assert_close(losses[0], losses[1], **CLOSE)
    assert random_q > losses[0].item() + 1e-3
    for loss in losses:
        loss.backward()
    weights = by_rows.family.weight_parameters()
    assert all(parameter.grad.abs().max() < 1e-10 for parameter in weights)
    for ours, theirs in zip(*(problem.groups()["rest"] for problem in problems), strict=True):
        torch.testing.assert_close(ours.grad, theirs.grad, **CLOSE)


def test_bounds_of_the_exact_evidence():
    """Titsias' bound is below log p(y), and both are log p(y) where every row has a point."""
    rows = random_rows(12, seed=9)
    exact = Dense(sparse_problem(rows, "solved", "sgpr", points=rows.x.unsqueeze(0), seed=10), 1)
    x = rows.x.unsqueeze(0)
    covariance = exact.kernel(x, x).to_dense() + exact.noise.reshape(1, 1, 1) * torch.eye(12).double()
    mean = exact.constant.reshape(1, 1).expand(1, 12)
    log_evidence = torch.distributions.MultivariateNormal(mean, covariance).log_prob(rows.y.mT).sum()
    for name in ("sgpr", "fitc"):
        all_points = sparse_problem(rows, "solved", name, points=rows.x.unsqueeze(0), seed=10)
        torch.testing.assert_close(-12 * all_points.loss(rows.whole()), log_evidence, rtol=1e-7, atol=1e-7)
    few = sparse_problem(rows, "solved", "sgpr", points=rows.x[:5].unsqueeze(0), seed=10)
    assert -12 * few.loss(rows.whole()) < log_evidence - 1e-3


@pytest.mark.parametrize("name", ["sgpr", "fitc"])
def test_training_improves_it_and_ends_with_the_best_weights(name):
    rows = random_rows(20, seed=11)
    problem = sparse_problem(rows, "solved", name, n_points=5, seed=12)
    before = problem.loss(rows.whole()).item()
    train(problem, rows, Plan({"all": "lbfgs"}, max_epochs=3, batch_size=20))
    assert problem.loss(rows.whole()).item() < before - 0.1
    found = [parameter.clone() for parameter in problem.family.weights.parameters()]
    solve_weights(problem.family, problem.likelihood, rows, residual_is_noise=name == "fitc")
    for now, best in zip(found, problem.family.weights.parameters(), strict=True):
        torch.testing.assert_close(now, best)


def test_chains_stay_apart():
    """Three models side by side have the evidences that each has alone."""
    rows = random_rows(10, n_outputs=2, seed=13)
    weight = 1.0 + torch.arange(10, dtype=torch.float64) % 3
    problems = [sparse_problem(rows, "solved", n_points=4, seed=seed) for seed in range(3)]
    priors = [problem.family.prior(rows.whole()) for problem in problems]
    noise = [problem.likelihood.at().variance for problem in problems]
    together = type(priors[0])(
        *(torch.stack([getattr(prior, part.name) for prior in priors]) for part in dataclasses.fields(priors[0]))
    )
    for name in ("sgpr", "fitc"):
        found = EVIDENCES[name](together, GaussianRows(torch.stack(noise)), rows.y, weight)
        assert found.shape == (3,)
        for value, prior, variance in zip(found, priors, noise, strict=True):
            torch.testing.assert_close(value, EVIDENCES[name](prior, GaussianRows(variance), rows.y, weight))
        shared = EVIDENCES[name](priors[0], GaussianRows(torch.stack(noise)), rows.y, weight)
        torch.testing.assert_close(shared[0], found[0])
