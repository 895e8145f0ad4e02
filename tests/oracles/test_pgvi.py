"""Pólya–Gamma classification against its published closed form (Wenzel et al. 2019), written out densely."""

from __future__ import annotations

import pytest
import torch

from candid.engines import settle_weights
from candid.engines.moment import Moment
from candid.engines.rows import Rows
from candid.engines.steppers import make_steppers, take_step
from candid.likelihoods import Bernoulli
from small_models import random_rows, sparse_problem


def labelled(n_rows: int = 40, weighted: bool = False) -> Rows:
    rows = random_rows(n_rows, weighted=weighted)
    return Rows(rows.x, (rows.y > 0.1).double(), rows.weight)


def pgvi_problem(rows: Rows, mean: str = "zero"):
    problem = sparse_problem(rows, objective="polya_gamma", mean=mean)
    problem.likelihood = Bernoulli()
    return problem


@torch.no_grad()
def dense(problem, rows: Rows):
    """κ = K_xz K_zz⁻¹, K̃ = diag(K_xx − κ K_zx), K_zz, mu at rows, and moments of q(u) = N(m, S) without whitening."""
    family = problem.family
    kernel = family.kernel
    gram = kernel(family.points)[0]
    cross = kernel(family.points, rows.x)[0]
    kappa = torch.linalg.solve(gram, cross).mT
    rest = kernel.diagonal(rows.x)[0] - (kappa * cross.mT).sum(-1)
    lower = torch.linalg.cholesky(gram)
    root = lower @ family.weights.root()[0]
    return kappa, rest, gram, family.mean(rows.x)[:, 0], lower @ family.weights.mean[0], root @ root.mT


def published_update(problem, rows: Rows):
    """c² = K̃ + κSκᵀ + (κm + mu)², θ = tanh(c/2)/(2c), S⁻¹ = K⁻¹ + κᵀθκ, m = S κᵀ(½y − θmu), with y = ±1."""
    kappa, rest, gram, mu, m, covariance = dense(problem, rows)
    c = torch.sqrt(rest + (kappa @ covariance * kappa).sum(-1) + (kappa @ m + mu).square())
    theta = rows.weight * torch.tanh(c / 2) / (2 * c)
    sign = 2 * rows.y[:, 0] - 1
    new_covariance = torch.linalg.inv(torch.linalg.inv(gram) + kappa.mT @ (theta[:, None] * kappa))
    return new_covariance @ (kappa.mT @ (0.5 * rows.weight * sign - theta * mu)), new_covariance


@pytest.mark.parametrize("mean", ["zero", "constant"])
@pytest.mark.parametrize("weighted", [False, True])
def test_a_natural_gradient_of_rate_one_is_the_published_update(mean, weighted):
    rows = labelled(weighted=weighted)
    problem = pgvi_problem(rows, mean)
    m, covariance = published_update(problem, rows)
    groups = problem.groups()
    steppers = make_steppers({"weights": "natural"}, groups, {"weights": 1.0})
    take_step(list(steppers.values()), Moment(problem, rows.whole(), 0, 0))
    *_, found_m, found_covariance = dense(problem, rows)
    torch.testing.assert_close(found_m, m, rtol=1e-7, atol=1e-8)
    torch.testing.assert_close(found_covariance, covariance, rtol=1e-6, atol=1e-8)


def test_rounds_of_the_closed_form_end_at_its_fixed_point():
    rows = labelled()
    problem = pgvi_problem(rows, "constant")
    settle_weights(problem.family, problem.likelihood, rows, rounds=200)
    *_, m, covariance = dense(problem, rows)
    expected_m, expected_covariance = published_update(problem, rows)
    torch.testing.assert_close(m, expected_m, rtol=0.03, atol=0.01)
    torch.testing.assert_close(covariance, expected_covariance, rtol=0.03, atol=0.01)


def test_every_round_makes_the_bound_higher():
    rows = labelled()
    problem = pgvi_problem(rows, "constant")
    losses = []
    for rounds in (1, 2, 3, 5):
        settle_weights(problem.family, problem.likelihood, rows, rounds=rounds)
        losses.append(problem.loss(rows.whole()).item())
    assert losses == sorted(losses, reverse=True)
    assert losses[0] > losses[-1]
