"""Decoupled conditionals against dense formulas with explicit inverses, differentiated by autograd."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from candid.engines import Problem, Rows, solve_weights
from dense_models import assert_same_gradients, noise_of
from small_models import conditional_problem, random_rows

CLOSE = {"rtol": 1e-8, "atol": 1e-8}
FLOOR = 1e-4
whitenings = pytest.mark.parametrize("whiten", ["mean", "covariance"])
all_weights = pytest.mark.parametrize("weights", ["full", "diagonal", "delta"])


def rbf(x1, x2, lengthscale):
    """In unit amplitude; for numpy and for torch."""
    exponent = ((x1 / lengthscale)[:, None] - (x2 / lengthscale)[None]) ** 2
    return (torch if isinstance(exponent, torch.Tensor) else np).exp(-0.5 * exponent.sum(-1))


def lengthscales(problem: Problem, output: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Of the covariance and of the mean."""
    family = problem.family
    return family.kernel.base.lengthscale.value[output], family.mean_kernel.lengthscale.value[output]


def moments_of_u(problem: Problem, output: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Mean and covariance of q(u), in unit amplitude."""
    family, (of_covariance, of_mean) = problem.family, lengthscales(problem, output)
    points = family.points[output]
    chosen = of_mean if family.whiten == "mean" else of_covariance
    lower = torch.linalg.cholesky(rbf(points, points, chosen))
    root = family.weights.root()
    root = torch.zeros_like(lower) if root is None else root[output]
    root = lower @ (torch.diag(root) if root.dim() == 1 else root)
    return lower @ family.weights.mean[output], root @ root.T


def dense_penalties(problem: Problem, x: torch.Tensor, output: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """KL(q(u) ‖ N(0, K_zz)) (for a point −log N(v; 0, prior of v)) and Ω."""
    family, (of_covariance, of_mean) = problem.family, lengthscales(problem, output)
    z = family.points[output]
    kzz, qzz, kxz, qxz = (rbf(left, z, lengthscale) for left in (z, x) for lengthscale in (of_covariance, of_mean))
    mean, covariance = moments_of_u(problem, output)
    inverse = torch.linalg.inv(kzz)
    if family.weights.root() is None:
        # p(v) = p(u) |du/dv|
        log_volume = 0.5 * torch.logdet(qzz if family.whiten == "mean" else kzz)
        kl = 0.5 * (mean @ inverse @ mean + torch.logdet(kzz) + len(z) * math.log(2 * math.pi)) - log_volume
    else:
        log_dets = torch.logdet(kzz) - torch.logdet(covariance)
        kl = 0.5 * (torch.trace(inverse @ covariance) + mean @ inverse @ mean - len(z) + log_dets)
    apart = qxz @ torch.linalg.inv(qzz) - kxz @ inverse
    left = rbf(x, x, of_covariance) - kxz @ inverse @ kxz.T + FLOOR * torch.eye(len(x)).double()
    second_moment = covariance + torch.outer(mean, mean)
    return kl, 0.5 * torch.trace(torch.linalg.inv(left) @ apart @ second_moment @ apart.T)


def dense_loss(problem: Problem, rows: Rows, beta: float, omega_weight: float) -> torch.Tensor:
    """−(1/N)Σ w·term + β/N·KL + β₂/N·Ω for one output."""
    family, (of_covariance, of_mean) = problem.family, lengthscales(problem)
    z, x, amplitude = family.points[0], rows.x, family.kernel.amplitude.value[0]
    mean_of_u, covariance_of_u = moments_of_u(problem)
    gain = rbf(x, z, of_mean) @ torch.linalg.inv(rbf(z, z, of_mean))
    mean = family.mean.constant.value[0] + amplitude.sqrt() * gain @ mean_of_u
    cross = rbf(x, z, of_covariance)
    residual = amplitude * (1 - (cross @ torch.linalg.inv(rbf(z, z, of_covariance)) * cross).sum(-1))
    spread = amplitude * (gain @ covariance_of_u * gain).sum(-1)
    squares, noise, total = (rows.y[:, 0] - mean) ** 2, noise_of(problem), rows.weight.sum()
    if problem.objective == "elbo":
        terms = -0.5 * torch.log(2 * math.pi * noise) - 0.5 * (squares + residual + spread) / noise
    else:
        variance = residual + spread + noise
        terms = -0.5 * torch.log(2 * math.pi * variance) - 0.5 * squares / variance
    kl, omega = dense_penalties(problem, x)
    return -(rows.weight @ terms) / total + (beta * kl + omega_weight * omega) / total


@whitenings
@all_weights
@pytest.mark.parametrize("objective", ["elbo", "predictive"])
@pytest.mark.parametrize("n_points", [5, 1])
def test_loss_and_all_gradients(objective, weights, whiten, n_points):
    rows = random_rows(20, seed=1, weighted=True)
    options = {"n_points": n_points, "beta": 0.3, "omega_weight": 0.2, "whiten": whiten, "seed": 2}
    problem = conditional_problem(rows, weights, objective, **options)
    ours, theirs = problem.loss(rows.whole()), dense_loss(problem, rows, 0.3, 0.2)
    torch.testing.assert_close(ours, theirs, **CLOSE)
    assert_same_gradients(problem, ours, theirs)


@whitenings
@all_weights
def test_penalties_of_two_outputs(weights, whiten):
    rows = random_rows(15, n_outputs=2, seed=3)
    problem = conditional_problem(rows, weights, n_points=6, whiten=whiten, seed=4)
    penalties = problem.family.evaluate(rows.whole()).penalties
    first, second = (dense_penalties(problem, rows.x, output) for output in (0, 1))
    torch.testing.assert_close(penalties["kl"], first[0] + second[0], **CLOSE)
    torch.testing.assert_close(penalties["omega"], first[1] + second[1], **CLOSE)


def test_omega_by_brute_force_over_draws_of_u():
    """½ E‖K̃^(−½)(…)u‖² as an average over u, in numpy, with a root of K̃ from its eigenvalues."""
    rows = random_rows(50, seed=5)
    problem = conditional_problem(rows, n_points=6, seed=6)
    omega = float(problem.family.evaluate(rows.whole()).penalties["omega"].detach())
    x, z = rows.x.numpy(), problem.family.points[0].detach().numpy()
    of_covariance, of_mean = (part.detach().numpy() for part in lengthscales(problem))
    mean, covariance = (part.detach().numpy() for part in moments_of_u(problem))
    # ± pairs of the columns of a root have exactly the moments of q(u).
    steps = np.sqrt(len(z)) * np.linalg.cholesky(covariance)
    draws = np.concatenate([mean[:, None] + steps, mean[:, None] - steps], 1)
    apart = rbf(x, z, of_mean) @ np.linalg.solve(rbf(z, z, of_mean), draws)
    apart -= rbf(x, z, of_covariance) @ np.linalg.solve(rbf(z, z, of_covariance), draws)
    cross = rbf(x, z, of_covariance)
    left = rbf(x, x, of_covariance) - cross @ np.linalg.solve(rbf(z, z, of_covariance), cross.T) + FLOOR * np.eye(50)
    values, vectors = np.linalg.eigh(left)
    whitened = (vectors.T @ apart) / np.sqrt(values)[:, None]
    np.testing.assert_allclose(omega, 0.5 * (whitened**2).sum(0).mean(), rtol=1e-7)


@whitenings
def test_closed_form_weights_are_the_best_ones(whiten):
    """At any two kernels: where the ELBO is largest, it has no gradient with respect to q(v)."""
    rows = random_rows(25, seed=7)
    problem = conditional_problem(rows, n_points=6, whiten=whiten, with_omega=False, seed=8)
    solve_weights(problem.family, problem.likelihood, rows)
    gradients = torch.autograd.grad(problem.loss(rows.whole()), problem.family.weight_parameters())
    assert all(gradient.tril().abs().max() < 1e-9 for gradient in gradients)
