"""q(v) and the noise in closed form."""

from __future__ import annotations

import copy
import math

import numpy as np
import pytest
import torch

from candid.engines import Rows, closed_form, match_noise, solve_weights
from candid.families import Decoupled, basis, block_inputs
from candid.kernels import blocks
from candid.linalg import cholesky
from candid.priors import LogNormal, attach
from small_models import decoupled_problem, orthogonal_problem, random_rows, sparse_problem

BUILDERS = [sparse_problem, decoupled_problem, orthogonal_problem]


@pytest.mark.parametrize("build", BUILDERS)
@pytest.mark.parametrize("weights", ["full", "diagonal", "delta"])
def test_solving_in_chunks_is_solving_at_once(build, weights, monkeypatch):
    rows = random_rows(50, n_outputs=2, seed=6, weighted=True)
    once = build(rows, weights, seed=7)
    chunked = copy.deepcopy(once)
    solve_weights(once.family, once.likelihood, rows)
    monkeypatch.setattr(closed_form, "CHUNK", 7)
    solve_weights(chunked.family, chunked.likelihood, rows)
    for one, other in zip(once.parameters(), chunked.parameters(), strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize(
    ("build", "expected"),
    [
        (sparse_problem, {"weights.mean", "weights.lower"}),
        (decoupled_problem, {"mean_weights.mean", "weights.log_scale"}),
        (orthogonal_problem, {"directions", "weights.mean", "weights.lower"}),
    ],
)
def test_solving_touches_nothing_but_weights(build, expected):
    rows = random_rows(30, seed=8)
    problem = build(rows, seed=9)
    before = copy.deepcopy(problem.state_dict())
    solve_weights(problem.family, problem.likelihood, rows)
    changed = {name for name, tensor in problem.state_dict().items() if not torch.equal(tensor, before[name])}
    assert changed == {f"family.{name}" for name in expected}


@pytest.mark.parametrize("build", BUILDERS)
@pytest.mark.parametrize("openness", [0.25, 1.0])
def test_an_open_start_keeps_the_mean_and_blends_precisions(build, openness):
    rows = random_rows(40, n_outputs=2, seed=40)
    closed = build(rows, "full", seed=41)
    opened = copy.deepcopy(closed)
    solve_weights(closed.family, closed.likelihood, rows)
    solve_weights(opened.family, opened.likelihood, rows, openness=openness)
    precision, wide = (torch.linalg.inv(p.family.weights.root() @ p.family.weights.root().mT) for p in (closed, opened))
    expected = (1 - openness) * precision + openness * 10 * torch.eye(precision.shape[-1])
    torch.testing.assert_close(wide, expected)
    torch.testing.assert_close(opened.family.weights.mean, closed.family.weights.mean)


@pytest.mark.parametrize("build", BUILDERS)
def test_kernel_matrices_are_factorised_once(build, monkeypatch):
    """However many chunks there are."""
    rows = random_rows(50, seed=30)
    problem = build(rows, seed=31)
    counts = []
    for chunk in (50, 5):
        seen = []
        original = basis.cholesky
        monkeypatch.setattr(basis, "cholesky", lambda *a, seen=seen, original=original: seen.append(a) or original(*a))
        monkeypatch.setattr(closed_form, "CHUNK", chunk)
        solve_weights(problem.family, problem.likelihood, rows)
        monkeypatch.setattr(basis, "cholesky", original)
        counts.append(len(seen))
    assert 0 < counts[0] == counts[1] <= 2


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


@torch.no_grad()
def collapsed_bound(problem, rows, variances) -> np.ndarray:
    """log N(r; 0, ΦᵀΦ + σ²I) − tr(c)/(2σ²) from the dense N×N formula, for each σ²."""
    family = problem.family
    kernel, both = family.kernel, [family.points[0]]
    cross = kernel(family.points, rows.x)
    explained = (cross.mT @ torch.linalg.inv(kernel(family.points)) @ cross)[0]
    residual = (kernel.diagonal(rows.x)[0] - explained.diagonal()).sum().item()
    if hasattr(family, "mean_points"):
        # The functions of the mean are those at Zμ, or at Zμ and Zσ.
        both = [family.mean_points[0]] if isinstance(family, Decoupled) else [*both, family.mean_points[0]]
    points = torch.cat(both).unsqueeze(0)
    cross = kernel(points, rows.x)
    values, basis = np.linalg.eigh((cross.mT @ torch.linalg.inv(kernel(points)) @ cross)[0].numpy())
    projected = (basis.T @ (rows.y - family.mean(rows.x))[:, 0].numpy()) ** 2
    total = np.maximum(values, 0) + np.asarray(variances)[:, None]
    return -0.5 * (np.log(2 * np.pi * total) + projected / total).sum(1) - 0.5 * residual / np.asarray(variances)


@pytest.mark.parametrize("build", BUILDERS)
def test_matched_noise_maximises_the_collapsed_bound(build):
    rows = random_rows(60, seed=12)
    problem = build(rows, n_points=6, seed=13)
    match_noise(problem.family, problem.likelihood, None, rows)
    found = problem.likelihood.noise.value.item()
    grid = np.exp(np.linspace(math.log(1e-5), math.log(50.0), 4001))
    best = grid[np.argmax(collapsed_bound(problem, rows, grid))]
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


@pytest.mark.parametrize("build", BUILDERS)
def test_residual_as_noise_maximises_the_fitc_objective(build):
    # The FITC variant: log N(r; 0, c + σ²) − s/(2(c + σ²)) − KL/N, at the weights that solve_weights finds.
    rows = random_rows(50, seed=18)
    problem = build(rows, "full", n_points=6, seed=19)
    solve_weights(problem.family, problem.likelihood, rows, beta=0.3, residual_is_noise=True)
    evaluation = problem.family.evaluate(rows.whole())
    marginal = evaluation.marginal
    noise = marginal.residual.detach() + problem.likelihood.noise.value.detach()
    terms = -0.5 * (noise.log() + ((rows.y - marginal.mean).square() + marginal.spread) / noise)
    loss = -terms.mean() + 0.3 * evaluation.penalties["kl"] / rows.total
    gradients = torch.autograd.grad(loss, problem.family.weight_parameters())
    assert max(float((g.tril() if g.dim() > 2 else g).abs().max()) for g in gradients) < 1e-8


@pytest.mark.parametrize("size", [1, 200, 300, 517])
def test_symmetric_products(size, draw):
    features = draw(2, size, 9)
    torch.testing.assert_close(closed_form._gram(features), features @ features.mT)


def test_coefficients_are_for_the_jitter_that_many_rows_need(monkeypatch):
    """Blocks of rows have Gram matrices that are rounded in their own way."""
    monkeypatch.setattr(block_inputs, "LEAST", 8)
    monkeypatch.setattr(
        blocks, "cholesky", lambda matrix, jitter, scale: cholesky(matrix, jitter.clamp_min(1e-2), scale)
    )
    rows = random_rows(40)
    one, other = (sparse_problem(rows, "full", "elbo", n_points=5) for _ in range(2))
    other.family.jitter.fill_(1e-2)
    for problem in (one, other):
        solve_weights(problem.family, problem.likelihood, rows)
    torch.testing.assert_close(one.family.jitter, other.family.jitter)
    torch.testing.assert_close(one.family.weights.mean, other.family.weights.mean)


def test_mean_points_on_points_of_the_variance_are_solved():
    """Their orthogonal functions are zero: any coefficients will do, but they must be finite."""
    rows = random_rows(30, seed=32)
    points = rows.x[:6].unsqueeze(0)
    problem = orthogonal_problem(rows, points=points, mean_points=points, jitter=1e-8, seed=33)
    plain = sparse_problem(rows, points=points, jitter=1e-8, seed=33)
    plain.load_state_dict({name: problem.state_dict()[name] for name in plain.state_dict()})
    for either in (problem, plain):
        solve_weights(either.family, either.likelihood, rows)
    found, expected = (each.family.predictor().marginal(rows.x).mean for each in (problem, plain))
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
