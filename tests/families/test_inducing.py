from __future__ import annotations

import copy

import pytest
import torch

from candid.families import Inducing, make_mean
from candid.kernels import make_kernel
from candid.weights import Full
from small_models import random_rows, sparse_problem


def dense_marginals(family, x):
    """mu + K_xz L⁻ᵀ m, diag(K_xx − K_xz K_zz⁻¹ K_zx) and diag(K_xz L⁻ᵀ S L⁻¹ K_zx), with the amplitude left in."""
    kernel, points = family.kernel, family.points
    lower = torch.linalg.cholesky(kernel(points))
    features = torch.linalg.solve(lower, kernel(points, x))
    root = family.weights.root()
    if root is None:
        spread = torch.zeros_like(features[..., 0, :])
    else:
        root = root if root.dim() == 3 else torch.diag_embed(root)
        spread = (features.mT @ root @ root.mT @ features).diagonal(dim1=-2, dim2=-1)
    mean = family.mean(x) + (features.mT @ family.weights.mean.unsqueeze(-1)).squeeze(-1).mT
    residual = kernel.diagonal(x) - features.square().sum(-2)
    return mean, residual.mT, spread.mT


@pytest.mark.parametrize("kernel", ["matern52", "rbf + matern32", "rbf * matern12"])
@pytest.mark.parametrize("weights", ["full", "diagonal", "delta"])
def test_marginals(weights, kernel):
    """Also of kernels whose summands have amplitudes of their own."""
    rows = random_rows(15, n_features=3, n_outputs=2, seed=1)
    family = sparse_problem(rows, weights, kernel=kernel, mean="linear", seed=2).family
    marginal = family.evaluate(rows.whole()).marginal
    mean, residual, spread = dense_marginals(family, rows.x)
    torch.testing.assert_close(marginal.mean, mean)
    torch.testing.assert_close(marginal.residual, residual)
    torch.testing.assert_close(marginal.spread, spread)
    torch.testing.assert_close(marginal.variance, residual + spread)


@pytest.mark.parametrize("weights", ["full", "diagonal", "delta"])
def test_gradients_of_the_loss(weights):
    """By finite differences along random directions of all parameters."""
    rows = random_rows(12, n_outputs=2, seed=3)
    problem = sparse_problem(rows, weights, "predictive", n_points=4, beta=0.5, seed=4)
    problem.loss(rows.whole()).backward()
    generator, step = torch.Generator().manual_seed(5), 1e-6
    for _ in range(3):
        directions = [torch.randn(p.shape, dtype=torch.float64, generator=generator) for p in problem.parameters()]
        slope = sum((d * p.grad).sum() for d, p in zip(directions, problem.parameters(), strict=True))
        ends = []
        for sign in (1, -1):
            moved = copy.deepcopy(problem)
            with torch.no_grad():
                for d, p in zip(directions, moved.parameters(), strict=True):
                    p.add_(sign * step * d)
            ends.append(moved.loss(rows.whole()).item())
        assert (ends[0] - ends[1]) / (2 * step) == pytest.approx(slope.item(), rel=1e-6, abs=1e-7)


def test_residual_vanishes_at_inducing_points_and_is_never_negative():
    rows = random_rows(20, seed=6)
    family = sparse_problem(rows, points=rows.x[:10].unsqueeze(0), seed=7).family
    residual = family.evaluate(rows.whole()).marginal.residual
    assert (residual >= 0).all()
    assert residual[:10].max() < 1e-12
    assert residual[10:].min() > 1e-4


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_duplicate_inducing_points(dtype):
    """The jitter that one evaluation needed is where the next one starts, and nothing is NaN."""
    rows = random_rows(20, seed=8)
    points = rows.x[:5].repeat(2, 1).unsqueeze(0)
    problem = sparse_problem(rows, points=points, kernel="rbf").to(dtype)
    assert problem.family.jitter == 0
    problem.loss(rows.to(dtype).whole()).backward()
    needed = problem.family.jitter.clone()
    assert 0 < needed < 1e-3
    assert all(torch.isfinite(parameter.grad).all() for parameter in problem.parameters())
    problem.loss(rows.to(dtype).whole())
    assert torch.equal(problem.family.jitter, needed)
    assert torch.isfinite(problem.family.predictor().marginal(rows.x).variance).all()


def test_one_bad_output_does_not_blur_the_other():
    rows = random_rows(20, n_outputs=2, seed=9)
    points = torch.stack([rows.x[:6], rows.x[:3].repeat(2, 1)])
    family = sparse_problem(rows, points=points, kernel="rbf").family
    family.evaluate(rows.whole())
    assert family.jitter[0] == 0
    assert family.jitter[1] > 0


def test_scale_of_the_amplitude_does_not_change_the_jitter():
    """Duplicate points under amplitudes of 10⁻⁶ and 10⁶ need the same share of the diagonal."""
    rows = random_rows(20, seed=10)
    found = []
    for amplitude in (1e-6, 1e6):
        family = sparse_problem(rows, points=rows.x[:4].repeat(2, 1).unsqueeze(0), kernel="rbf").family
        family.kernel.amplitude.set(amplitude)
        family.evaluate(rows.whole())
        found.append(family.jitter.item())
    assert found[0] == found[1] > 0


def test_training_changes_its_own_copy_of_the_points():
    points = torch.zeros(1, 3, 2)
    family = Inducing(make_kernel("rbf", 2, batch_shape=(1,)), make_mean("zero", 2, 1), points, Full(3, (1,)), 1e-6)
    with torch.no_grad():
        family.points.add_(1.0)
    assert (points == 0).all()


def test_weight_parameters_are_those_of_q():
    problem = sparse_problem(random_rows(10), "full")
    assert {id(p) for p in problem.family.weight_parameters()} == {id(p) for p in problem.family.weights.parameters()}


def test_the_joint_prior_is_what_the_points_explain_and_the_rest_of_the_diagonal():
    rows = random_rows(10, n_outputs=2, seed=11)
    family = sparse_problem(rows, n_points=4, mean="linear", seed=12).family
    prior, kernel = family.prior(rows.whole()), family.kernel
    cross = kernel(family.points, rows.x)
    explained = cross.mT @ torch.linalg.inv(kernel(family.points)) @ cross
    torch.testing.assert_close(prior.mean, family.mean(rows.x))
    torch.testing.assert_close(prior.features.mT @ prior.features, explained)
    torch.testing.assert_close(prior.residual.mT, kernel.diagonal(rows.x) - explained.diagonal(dim1=-2, dim2=-1))
