"""Natural gradients of q(v) against closed forms: the conjugate optimum, and natural parameters by finite steps."""

from __future__ import annotations

import pytest
import torch

from candid.engines import Plan, solve_weights, train
from small_models import random_rows, sparse_problem

ONE_STEP = Plan({"weights": "natural"}, max_epochs=1, batch_size=30, rates={"weights": 1.0})


def covariance(problem):
    root = problem.family.weights.root()
    return root @ root.mT


@pytest.mark.parametrize("objective", ["elbo", "vfitc", "fitc_elbo"])
@pytest.mark.parametrize("beta", [1.0, 0.3])
@pytest.mark.parametrize("n_outputs", [1, 2])
def test_one_step_on_all_rows_reaches_the_closed_form(objective, beta, n_outputs):
    """From a random q(v), with Gaussian noise: a step of rate one ends at the optimum."""
    rows = random_rows(30, n_outputs=n_outputs, weighted=True)
    problem = sparse_problem(rows, objective=objective, beta=beta)
    best = sparse_problem(rows, objective=objective, beta=beta)
    solve_weights(best.family, best.likelihood, rows, beta, residual_is_noise=objective != "elbo")
    train(problem, rows, ONE_STEP)
    torch.testing.assert_close(problem.family.weights.mean, best.family.weights.mean, rtol=1e-6, atol=1e-8)
    torch.testing.assert_close(covariance(problem), covariance(best), rtol=1e-6, atol=1e-8)


def test_a_shorter_step_goes_that_share_of_the_way_in_natural_parameters():
    """Precision and precision times mean move in straight lines towards those of the optimum."""
    rows, share = random_rows(30), 0.3
    start, best, problem = (sparse_problem(rows) for _ in range(3))
    solve_weights(best.family, best.likelihood, rows)
    train(problem, rows, Plan({"weights": "natural"}, max_epochs=1, batch_size=30, rates={"weights": share}))

    def natural(model):
        precision = torch.linalg.inv(covariance(model)).detach()
        return precision, (precision @ model.family.weights.mean.unsqueeze(-1)).detach()

    for before, after, end in zip(natural(start), natural(problem), natural(best), strict=True):
        torch.testing.assert_close(after, (1 - share) * before + share * end, rtol=1e-6, atol=1e-8)


def test_mini_batches_average_out():
    """With small rates on mini-batches q(v) comes close to the optimum of all rows."""
    rows = random_rows(200)
    problem, best = sparse_problem(rows, n_points=5), sparse_problem(rows, n_points=5)
    solve_weights(best.family, best.likelihood, rows)
    plan = Plan({"weights": "natural"}, max_epochs=40, batch_size=20, rates={"weights": 0.1}, schedule="cosine")
    train(problem, rows, plan)
    gap = float((problem.loss(rows.whole()) - best.loss(rows.whole())).detach())
    assert 0 <= gap < 2e-4


def test_a_step_that_leaves_the_covariances_is_shortened():
    """With the predictive objective rows far off pull S⁻¹ below zero; S stays a covariance all the same."""
    rows = random_rows(30)
    rows.y[:] *= 30
    problem = sparse_problem(rows, objective="predictive")
    train(problem, rows, ONE_STEP)
    assert torch.isfinite(problem.family.weights.lower).all()
    assert bool((torch.linalg.eigvalsh(covariance(problem)) > 0).all())
