"""q(v) and the noise in closed form."""

from __future__ import annotations

import copy
import math

import numpy as np
import pytest
import torch

from candid.engines import Rows, closed_form, match_noise, solve_weights
from candid.priors import LogNormal, attach
from small_models import random_rows, sparse_problem


@pytest.mark.parametrize("weights", ["full", "diagonal", "delta"])
def test_solving_in_chunks_is_solving_at_once(weights, monkeypatch):
    rows = random_rows(50, n_outputs=2, seed=6, weighted=True)
    once = sparse_problem(rows, weights, seed=7)
    chunked = copy.deepcopy(once)
    solve_weights(once.family, once.likelihood, rows)
    monkeypatch.setattr(closed_form, "CHUNK", 7)
    solve_weights(chunked.family, chunked.likelihood, rows)
    for one, other in zip(once.parameters(), chunked.parameters(), strict=True):
        torch.testing.assert_close(one, other)


def test_solving_touches_nothing_but_q():
    rows = random_rows(30, seed=8)
    problem = sparse_problem(rows, seed=9)
    before = copy.deepcopy(problem.state_dict())
    solve_weights(problem.family, problem.likelihood, rows)
    changed = {name for name, tensor in problem.state_dict().items() if not torch.equal(tensor, before[name])}
    assert changed == {"family.weights.mean", "family.weights.lower"}


def test_solving_in_single_precision_is_done_in_double():
    rows = random_rows(60, seed=10)
    double = sparse_problem(rows, n_points=12, jitter=1e-6, seed=11)
    single = copy.deepcopy(double).float()
    # The same numbers on both sides: what remains is the precision of the solve.
    double.load_state_dict(single.state_dict())
    solve_weights(double.family, double.likelihood, rows.to(torch.float32))
    solve_weights(single.family, single.likelihood, rows.to(torch.float32))
    assert single.family.weights.mean.dtype == torch.float32
    torch.testing.assert_close(single.family.weights.mean, double.family.weights.mean.float(), rtol=1e-6, atol=1e-6)


def collapsed_bound(problem, rows, variance: float) -> float:
    """Titsias' bound of the present inducing points, from the dense N×N formula."""
    family = problem.family
    amplitude, _ = family.kernel.split()
    features, diagonal = family.features(rows.x)
    q = (amplitude[:, None, None] * features.mT @ features)[0].detach().numpy()
    residual = (amplitude * diagonal)[0].sum().item() - np.trace(q)
    r = (rows.y - family.mean(rows.x))[:, 0].detach().numpy()
    covariance = q + variance * np.eye(len(r))
    _, log_det = np.linalg.slogdet(covariance)
    return -0.5 * (len(r) * math.log(2 * math.pi) + log_det + r @ np.linalg.solve(covariance, r) + residual / variance)


def test_matched_noise_maximises_the_collapsed_bound():
    rows = random_rows(60, seed=12)
    problem = sparse_problem(rows, n_points=6, seed=13)
    match_noise(problem.family, problem.likelihood, None, rows)
    found = problem.likelihood.noise.value.item()
    grid = np.exp(np.linspace(math.log(1e-5), math.log(50.0), 4001))
    best = grid[np.argmax([collapsed_bound(problem, rows, variance) for variance in grid])]
    assert found == pytest.approx(best, rel=5e-3)


def test_matched_noise_maximises_the_elbo_with_weights():
    rows = random_rows(40, seed=14, weighted=True)
    problem = sparse_problem(rows, n_points=5, seed=15)
    match_noise(problem.family, problem.likelihood, None, rows)
    solve_weights(problem.family, problem.likelihood, rows)
    problem.loss(rows.whole()).backward()
    assert abs(float(problem.likelihood.noise.raw.grad)) < 1e-4


def test_fixed_and_known_noise_are_left_alone():
    rows = random_rows(20, seed=16)
    problem = sparse_problem(rows, seed=17)
    problem.likelihood.noise.fix()
    before = problem.likelihood.noise.value.clone()
    match_noise(problem.family, problem.likelihood, None, rows)
    assert torch.equal(problem.likelihood.noise.value, before)


def test_half_the_way_is_the_geometric_mean():
    rows = random_rows(40, seed=24)
    problem = sparse_problem(rows, n_points=5, seed=25)
    half = copy.deepcopy(problem)
    before = problem.likelihood.noise.value.clone()
    match_noise(problem.family, problem.likelihood, None, rows)
    match_noise(half.family, half.likelihood, None, rows, share=0.5)
    torch.testing.assert_close(half.likelihood.noise.value, (before * problem.likelihood.noise.value).sqrt())


def test_a_prior_of_the_noise_counts():
    rows = random_rows(40, seed=26)
    problem = sparse_problem(rows, n_points=5, seed=27)
    prior = attach(problem.likelihood, {"noise": LogNormal(0.5, 1e-3)})
    match_noise(problem.family, problem.likelihood, prior, rows)
    assert problem.likelihood.noise.value.item() == pytest.approx(0.5, rel=1e-2)


def test_a_long_table_is_represented_by_some_rows(monkeypatch):
    rows = random_rows(400, seed=28)
    whole = sparse_problem(rows, n_points=5, seed=29)
    part = copy.deepcopy(whole)
    match_noise(whole.family, whole.likelihood, None, rows)
    monkeypatch.setattr(closed_form, "MOST_ROWS", 300)
    match_noise(part.family, part.likelihood, None, rows)
    found, expected = part.likelihood.noise.value.item(), whole.likelihood.noise.value.item()
    assert found != expected
    assert found == pytest.approx(expected, rel=0.1)


@pytest.mark.parametrize(("lower", "upper"), [(0.3, 0.4), (1e-4, 1e-3), (200.0, 300.0)])
def test_matched_noise_keeps_its_bounds(lower, upper):
    rows = random_rows(40, seed=20)
    problem = sparse_problem(rows, seed=21)
    problem.likelihood.noise.restrict(lower, upper)
    match_noise(problem.family, problem.likelihood, None, rows)
    assert lower < problem.likelihood.noise.value.item() < upper


def test_noise_of_any_scale_is_matched():
    """A target that is a thousand times larger has a noise variance that is a million times larger."""
    rows = random_rows(40, seed=22)
    small = sparse_problem(rows, mean="zero", seed=23)
    large = copy.deepcopy(small)
    large.family.kernel.amplitude.set(1e6 * small.family.kernel.amplitude.value)
    match_noise(small.family, small.likelihood, None, rows)
    match_noise(large.family, large.likelihood, None, Rows(rows.x, 1e3 * rows.y, rows.weight))
    ratio = large.likelihood.noise.value / small.likelihood.noise.value
    assert ratio.item() == pytest.approx(1e6, rel=1e-3)


def test_residual_as_noise_maximises_the_fitc_objective():
    # The FITC variant: log N(r; 0, c + σ²) − s/(2(c + σ²)) − KL/N, at the q(v) that solve_weights finds.
    rows = random_rows(50, seed=18)
    problem = sparse_problem(rows, n_points=6, seed=19)
    solve_weights(problem.family, problem.likelihood, rows, beta=0.3, residual_is_noise=True)
    evaluation = problem.family.evaluate(rows.whole())
    marginal = evaluation.marginal
    noise = marginal.residual.detach() + problem.likelihood.noise.value.detach()
    terms = -0.5 * (noise.log() + ((rows.y - marginal.mean).square() + marginal.spread) / noise)
    loss = -terms.mean() + 0.3 * evaluation.penalties["kl"] / rows.total
    gradients = torch.autograd.grad(loss, problem.family.weight_parameters())
    assert (
        max(
            float(gradient.tril().abs().max()) if gradient.dim() > 2 else float(gradient.abs().max())
            for gradient in gradients
        )
        < 1e-8
    )
