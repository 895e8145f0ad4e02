"""Orthogonally decoupled bases against dense formulas with explicit inverses, differentiated by autograd."""

from __future__ import annotations

import math

import pytest
import torch

from candid.engines import Problem, Rows, solve_weights
from dense_models import assert_same_gradients, dense_kernel, noise_of
from small_models import orthogonal_problem, random_rows

CLOSE = {"rtol": 1e-9, "atol": 1e-9}


def coefficients(problem: Problem) -> torch.Tensor:
    """h, the coefficients of the functions at Zμ as Salimbeni et al. have them."""
    family = problem.family
    return family.transform[0] @ family.directions[0] / family.kernel.amplitude.value[0].sqrt()


def dense_loss(problem: Problem, rows: Rows, beta: float) -> torch.Tensor:
    """−(1/N)Σ w·term + β/N·penalty for one output."""
    family, k = problem.family, dense_kernel(problem)
    zm, zs, h, m = family.mean_points[0], family.points[0], coefficients(problem), family.weights.mean[0]
    inverse = torch.linalg.inv(k(zs, zs))
    features = torch.linalg.inv(torch.linalg.cholesky(k(zs, zs))) @ k(zs, rows.x)
    new = k(rows.x, zm) - k(rows.x, zs) @ inverse @ k(zs, zm)
    mean = family.mean.constant.value[0] + features.T @ m + new @ h
    root = family.weights.root()[0]
    covariance = torch.diag(root**2) if root.dim() == 1 else root @ root.T
    residual = (k(rows.x, rows.x) - k(rows.x, zs) @ inverse @ k(zs, rows.x)).diagonal()
    spread = (features.T @ covariance @ features).diagonal()

    squares, noise, total = (rows.y[:, 0] - mean) ** 2, noise_of(problem), rows.weight.sum()
    if problem.objective == "elbo":
        terms = -0.5 * torch.log(2 * math.pi * noise) - 0.5 * (squares + residual + spread) / noise
    else:
        variance = residual + spread + noise
        terms = -0.5 * torch.log(2 * math.pi * variance) - 0.5 * squares / variance
    kl = 0.5 * (torch.trace(covariance) + m @ m - len(m) - torch.logdet(covariance))
    left = k(zm, zm) - k(zm, zs) @ inverse @ k(zs, zm)
    return -(rows.weight @ terms) / total + beta * (kl + 0.5 * h @ left @ h) / total


@pytest.mark.parametrize("weights", ["diagonal", "full"])
@pytest.mark.parametrize("objective", ["elbo", "predictive"])
@pytest.mark.parametrize(("n_mean_points", "n_points"), [(7, 4), (4, 6), (1, 1)])
def test_loss_and_all_gradients(objective, weights, n_mean_points, n_points):
    rows = random_rows(20, seed=1, weighted=True)
    options = {"n_mean_points": n_mean_points, "n_points": n_points, "beta": 0.3, "seed": 2}
    problem = orthogonal_problem(rows, weights, objective, **options)
    ours, theirs = problem.loss(rows.whole()), dense_loss(problem, rows, 0.3)
    torch.testing.assert_close(ours, theirs, **CLOSE)
    assert_same_gradients(problem, ours, theirs)


def test_all_rows_in_the_two_bases_give_the_mean_of_the_exact_gp():
    """Zσ some rows, Zμ the others: the best mean is k(x, X)(K + σ²I)⁻¹(y − mu), whatever the split."""
    rows = random_rows(20, seed=5)
    points, mean_points = rows.x[:8].unsqueeze(0), rows.x[8:].unsqueeze(0)
    problem = orthogonal_problem(rows, "full", points=points, mean_points=mean_points, seed=6)
    solve_weights(problem.family, problem.likelihood, rows)
    k, new = dense_kernel(problem), random_rows(7, seed=7).x
    constant = problem.family.mean.constant.value[0]
    gain = k(new, rows.x) @ torch.linalg.inv(k(rows.x, rows.x) + noise_of(problem) * torch.eye(20).double())
    expected = constant + gain @ (rows.y[:, 0] - constant)
    torch.testing.assert_close(problem.family.predictor().marginal(new).mean[:, 0], expected, rtol=1e-7, atol=1e-7)
