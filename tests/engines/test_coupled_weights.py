from __future__ import annotations

import pytest
import torch

from candid.engines import Problem, Rows, solve_together
from candid.families import Inducing, make_mean
from candid.kernels import make_kernel
from candid.likelihoods import Coregionalised, Gaussian
from candid.weights import WEIGHTS
from small_models import decoupled_problem, random_rows, randomise, separated_points


def mixed_problem(rows, weights="full", n_latents=2, beta=0.7, objective="elbo", points=None):
    generator = torch.Generator().manual_seed(7)
    likelihood = Coregionalised(rows.y.nan_to_num(), n_latents, Gaussian(n_outputs=rows.y.shape[1]))
    points = separated_points(6, 2, n_latents, generator) if points is None else points.expand(n_latents, -1, -1)
    family = Inducing(
        make_kernel("matern52", 2, batch_shape=(n_latents,)),
        make_mean("constant", 2, n_latents),
        points,
        WEIGHTS[weights](points.shape[-2], (n_latents,)),
        0.0,
    )
    problem = Problem(family, likelihood, objective, {"kl": beta}).double()
    randomise(problem, generator)
    return problem


@pytest.fixture
def rows():
    """Three outputs, of which some entries are missing."""
    rows = random_rows(30, n_outputs=3, seed=3, weighted=True)
    missing = torch.rand(rows.y.shape, generator=torch.Generator().manual_seed(1)) < 0.4
    return Rows(rows.x, torch.where(missing, torch.nan, rows.y), rows.weight)


def test_the_bound_is_at_its_maximum(rows):
    problem = mixed_problem(rows)
    solve_together(problem.family, problem.likelihood, rows, beta=0.7)
    gradients = torch.autograd.grad(problem.loss(rows.whole()), problem.family.weight_parameters())
    assert max(gradient.abs().max() for gradient in gradients) < 1e-10


def test_with_points_at_all_rows_means_are_those_of_the_exact_gp(rows):
    problem = mixed_problem(rows, beta=1.0, points=rows.x)
    solve_together(problem.family, problem.likelihood, rows)
    mixing, noise = problem.likelihood.mixing.value, problem.likelihood.noise.at().variance / rows.weight.unsqueeze(-1)
    # Outputs (output, row) given latent functions (latent, row)
    prior, projection = (
        torch.block_diag(*problem.family.kernel(rows.x)),
        torch.kron(mixing.mT.contiguous(), torch.eye(30).double()),
    )
    there = ~rows.y.mT.flatten().isnan()
    projection = projection[there]
    mean = problem.family.mean(rows.x).mT.flatten()
    total = projection @ prior @ projection.T + torch.diag(noise.mT.flatten()[there])
    residual = rows.y.mT.flatten()[there] - projection @ mean
    expected = mean + prior @ projection.T @ torch.linalg.solve(total, residual)
    found = problem.family.evaluate(rows.whole()).marginal.mean
    torch.testing.assert_close(found, expected.reshape(2, 30).T, rtol=1e-6, atol=1e-6)


def test_a_mean_with_points_of_its_own(rows):
    """Its coefficients are the best ones."""
    problem = decoupled_problem(Rows(rows.x, rows.y[:, :2], rows.weight), "full", beta=0.7)
    likelihood = Coregionalised(rows.y.nan_to_num(), 2, Gaussian(n_outputs=3)).double()
    problem.likelihood = likelihood
    solve_together(problem.family, likelihood, rows, beta=0.7)
    gradients = torch.autograd.grad(problem.loss(rows.whole()), problem.family.weight_parameters())
    assert max(gradient.abs().max() for gradient in gradients) < 1e-10


def test_by_turns_it_ends_nearby(rows, monkeypatch):
    together, by_turns = mixed_problem(rows), mixed_problem(rows)
    solve_together(together.family, together.likelihood, rows, beta=0.7)
    before = by_turns.loss(rows.whole()).item()
    monkeypatch.setattr("candid.engines.coupled_weights.MOST_COEFFICIENTS", 1)
    solve_together(by_turns.family, by_turns.likelihood, rows, beta=0.7)
    best, reached = together.loss(rows.whole()).item(), by_turns.loss(rows.whole()).item()
    assert best < reached < best + 0.1 * (before - best)


def test_a_residual_that_is_noise_counts_for_less(rows):
    sharp, blurred = mixed_problem(rows), mixed_problem(rows)
    solve_together(sharp.family, sharp.likelihood, rows)
    solve_together(blurred.family, blurred.likelihood, rows, residual_is_noise=True)
    spreads = [problem.family.evaluate(rows.whole()).marginal.spread for problem in (sharp, blurred)]
    assert bool((spreads[0] < spreads[1]).all())
