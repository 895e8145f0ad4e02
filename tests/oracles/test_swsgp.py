"""Points of which every row sees all: the evidence lower bound of independent inducing values, by dense formulas."""

from __future__ import annotations

import pytest
import torch
from torch.distributions import MultivariateNormal, Normal, kl_divergence

from candid.engines import Problem, Rows
from dense_models import assert_same_gradients, dense_kernel, noise_of
from small_models import random_rows, swsgp_problem

M = 9


def dense_terms(problem: Problem, x, points, mean, variance):
    """Moments of q(f) at rows that see some points, and the divergence of these."""
    k = dense_kernel(problem)
    gram, cross = k(points, points), k(points, x)
    gain = torch.linalg.solve(gram, cross).mT
    prior = problem.family.mean(points)[:, 0]
    latent = problem.family.mean(x)[:, 0] + gain @ mean
    spread = k(x, x).diagonal() - (gain * cross.mT).sum(-1) + gain.square() @ variance
    q, p = MultivariateNormal(prior + mean, variance.diag()), MultivariateNormal(prior, gram)
    return latent, spread, kl_divergence(q, p)


def expected_loss(problem: Problem, rows: Rows, subsets) -> torch.Tensor:
    family, noise = problem.family, noise_of(problem)
    mean, variance = family.weights.mean[0], (2 * family.weights.log_scale[0]).exp()
    terms, divergences = [], []
    for row, subset in enumerate(subsets):
        latent, spread, divergence = dense_terms(
            problem, rows.x[row : row + 1], family.points[subset], mean[subset], variance[subset]
        )
        terms.append(Normal(latent, noise.sqrt()).log_prob(rows.y[row]) - 0.5 * spread / noise)
        divergences.append(divergence)
    # Σ_n E log p(y_n|f_n) − average of the divergences, per row
    return -torch.cat(terms).mean() + torch.stack(divergences).mean() / len(rows)


@pytest.fixture
def rows() -> Rows:
    return random_rows(20, 2, seed=1)


@pytest.mark.parametrize("k", [M, M + 5])
def test_all_points_give_the_evidence_lower_bound(rows, k):
    problem = swsgp_problem(rows, k, seed=2)
    ours = problem.loss(rows.whole())
    expected = expected_loss(problem, rows, [torch.arange(M)] * len(rows))
    torch.testing.assert_close(ours, expected, rtol=1e-9, atol=1e-9)
    assert_same_gradients(problem, ours, expected)


@pytest.mark.parametrize("k", [1, 4])
def test_some_points_give_that_of_each_row(rows, k):
    problem = swsgp_problem(rows, k, seed=3)
    family = problem.family
    scale = family.kernel.base.lengthscale.value.detach()[0]
    subsets = torch.cdist(rows.x / scale, family.points.detach() / scale).argsort(-1)[:, :k]
    ours, expected = problem.loss(rows.whole()), expected_loss(problem, rows, subsets)
    torch.testing.assert_close(ours, expected, rtol=1e-9, atol=1e-9)
    assert_same_gradients(problem, ours, expected)


def test_batches_are_unbiased(rows):
    problem = swsgp_problem(rows, 4, seed=4)
    batches = [problem.loss(rows.batch(torch.arange(start, 20, 4))) for start in range(4)]
    torch.testing.assert_close(torch.stack(batches).mean(), problem.loss(rows.whole()))
