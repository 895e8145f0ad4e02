"""Decoupled inducing points against dense formulas with explicit inverses, differentiated by autograd."""

from __future__ import annotations

import math

import pytest
import torch

from candid.engines import Problem, Rows
from dense_models import assert_same_gradients, dense_kernel, noise_of
from small_models import decoupled_problem, random_rows, sparse_problem

CLOSE = {"rtol": 1e-9, "atol": 1e-9}


def dense_loss(problem: Problem, rows: Rows, beta: float) -> torch.Tensor:
    """−(1/N)Σ w·term + β/N·penalty for one output."""
    family, k = problem.family, dense_kernel(problem)
    zm, zs = family.mean_points[0], family.points[0]
    total = rows.weight.sum()
    lm, ls = torch.linalg.cholesky(k(zm, zm)), torch.linalg.cholesky(k(zs, zs))
    mean = family.mean.constant.value[0] + k(rows.x, zm) @ torch.linalg.inv(lm).T @ family.mean_weights.mean[0]
    features = torch.linalg.inv(ls) @ k(zs, rows.x)
    root = family.weights.root()[0]
    covariance = torch.diag(root**2) if root.dim() == 1 else root @ root.T
    residual = (k(rows.x, rows.x) - k(rows.x, zs) @ torch.linalg.inv(k(zs, zs)) @ k(zs, rows.x)).diagonal()
    spread = (features.T @ covariance @ features).diagonal()

    squares, noise = (rows.y[:, 0] - mean) ** 2, noise_of(problem)
    if problem.objective == "elbo":
        terms = -0.5 * torch.log(2 * math.pi * noise) - 0.5 * (squares + residual + spread) / noise
    else:
        variance = residual + spread + noise
        terms = -0.5 * torch.log(2 * math.pi * variance) - 0.5 * squares / variance
    m = family.mean_weights.mean[0]
    point = 0.5 * m @ m + 0.5 * len(m) * math.log(2 * math.pi)
    normal = 0.5 * (torch.trace(covariance) - len(covariance) - torch.logdet(covariance))
    return -(rows.weight @ terms) / total + beta * (point + normal) / total


@pytest.mark.parametrize("weights", ["diagonal", "full"])
@pytest.mark.parametrize("objective", ["elbo", "predictive"])
@pytest.mark.parametrize(("n_mean_points", "n_points"), [(7, 4), (4, 6), (5, 5), (1, 1)])
def test_loss_and_all_gradients(objective, weights, n_mean_points, n_points):
    rows = random_rows(20, seed=1, weighted=True)
    options = {"n_mean_points": n_mean_points, "n_points": n_points, "beta": 0.3, "seed": 2}
    problem = decoupled_problem(rows, weights, objective, **options)
    ours, theirs = problem.loss(rows.whole()), dense_loss(problem, rows, 0.3)
    torch.testing.assert_close(ours, theirs, **CLOSE)
    assert_same_gradients(problem, ours, theirs)


def test_at_the_same_points_it_is_one_set_of_points_with_its_own_penalty():
    """Zμ = Zσ: the data term of a diagonal q(v), and −log N(m; 0, I) where the KL has ½mᵀm."""
    rows = random_rows(20, seed=3)
    plain = sparse_problem(rows, "diagonal", "predictive", n_points=6, beta=0.4, seed=4)
    points = plain.family.points.detach()
    both = decoupled_problem(rows, "diagonal", "predictive", beta=0.4, points=points, mean_points=points)
    with torch.no_grad():
        both.family.kernel.load_state_dict(plain.family.kernel.state_dict())
        both.family.mean.load_state_dict(plain.family.mean.state_dict())
        both.likelihood.load_state_dict(plain.likelihood.state_dict())
        both.family.mean_weights.mean.copy_(plain.family.weights.mean)
        both.family.weights.log_scale.copy_(plain.family.weights.log_scale)
    ours, theirs = (problem.family.evaluate(rows.whole()) for problem in (both, plain))
    for part in ("mean", "residual", "spread"):
        torch.testing.assert_close(getattr(ours.marginal, part), getattr(theirs.marginal, part), **CLOSE)
    # log N has a normalising constant, and the KL has none.
    constant = 0.5 * 6 * math.log(2 * math.pi)
    torch.testing.assert_close(ours.penalties["kl"], theirs.penalties["kl"] + constant, **CLOSE)
