"""Moments block by block of rows are those of all rows at a time, and so are their gradients."""

from __future__ import annotations

import math

import pytest
import torch

from candid.families import Inducing, block_inputs, inducing, make_mean
from candid.families.block_inputs import BlockInputs
from candid.families.blockwise import blockwise_moments, pays
from candid.families.means import NetworkMean
from candid.kernels import make_kernel
from candid.linalg.crew import crew_size
from candid.weights import WEIGHTS
from small_models import layers_problem, random_rows

SHAPES = {"batch": (3, 5, 26, 4), "few features": (2, 4, 19, 2), "single": (1, 1, 9, 1)}


pytestmark = pytest.mark.usefixtures("both_ways", "with_and_without_crew", "small_blocks")


def random_family(weights, kernel, n_gps, n_points, n_features):
    generator = torch.Generator().manual_seed(n_points)
    q = WEIGHTS[weights](n_points, (n_gps,)).double()
    with torch.no_grad():
        for parameter in q.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape, dtype=torch.float64, generator=generator))
    points = torch.randn(n_gps, n_points, n_features, dtype=torch.float64, generator=generator)
    kernel = make_kernel(kernel, n_features, batch_shape=(n_gps,))
    return Inducing(kernel, make_mean("constant", n_features, n_gps), points, q, 1e-9).double()


def gradients(moments, wanted, seed=0):
    """Of a random combination of mean, explained variance and spread, or of residual and spread alike in most rows."""
    generator = torch.Generator().manual_seed(seed)
    first, second, third = (torch.randn(part.shape, dtype=torch.float64, generator=generator) for part in moments)
    if seed:
        second = -third
    if seed == 2:
        # A residual that is cut off at zero.
        second[..., 1] = 0.0
    pulls = (first, second, third)
    value = sum((pull * part).sum() for pull, part in zip(pulls, moments, strict=True))
    return torch.autograd.grad(value, wanted, retain_graph=True)


@pytest.mark.parametrize("weights", ["delta", "diagonal", "full"])
@pytest.mark.parametrize("kernel", ["matern52", "rbf"])
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_values_and_gradients_are_those_of_all_rows_together(weights, kernel, shape):
    n_gps, n_points, n_rows, n_features = shape
    family = random_family(weights, kernel, n_gps, n_points, n_features)
    x = torch.randn(n_rows, n_features, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    x[1] = x[0]
    x.requires_grad_()
    unit = family.kernel.unit
    assert pays(unit, family.weights, x, family.points)
    expected = family.weights.moments(family.features(x)[0])
    *moments, _ = blockwise_moments(unit, family.weights, x, family.points, family.jitter)
    wanted = [x, family.points, *unit.parameters(), *family.weights.parameters()]
    for one, other in zip(moments, expected, strict=True):
        torch.testing.assert_close(one, other)
    for seed in (0, 1, 2):
        for one, other in zip(gradients(moments, wanted, seed), gradients(expected, wanted, seed), strict=True):
            torch.testing.assert_close(one, other, rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("weights", ["diagonal", "full"])
def test_gradcheck(weights):
    family = random_family(weights, "matern52", 2, 3, 4)
    x = torch.randn(13, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(3)).requires_grad_()

    def residual_and_spread(x, points):
        latent, explained, spread, _ = blockwise_moments(family.kernel.unit, family.weights, x, points, family.jitter)
        return latent, spread - explained

    assert torch.autograd.gradcheck(residual_and_spread, (x, family.points))


def test_deep_gps_take_blocks_of_rows(monkeypatch):
    rows = random_rows(25, n_features=3)
    losses, gradients, calls = [], [], []
    monkeypatch.setattr(inducing, "blockwise_moments", lambda *given: calls.append(least) or blockwise_moments(*given))
    for least in (10**9, 8):
        monkeypatch.setattr(block_inputs, "LEAST", least)
        problem = layers_problem(rows, (2,), weights="full", objective="elbo")
        loss = problem.loss(rows.whole())
        loss.backward()
        losses.append(loss.detach())
        gradients.append([parameter.grad for parameter in problem.parameters()])
    # Two layers.
    assert calls == [8, 8]
    torch.testing.assert_close(*losses)
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-8, atol=1e-10)


def test_blocks_are_as_many_for_each_member():
    """Whoever has more to do would keep the others waiting."""
    family = random_family("full", "matern52", 3, 5, 4)
    x = torch.randn(18, 4, dtype=torch.float64)
    inputs = BlockInputs.scale(family.kernel.unit.profile, x, family.points, family.kernel.unit.lengthscale.value)
    parts = inputs.parts()
    assert len(parts) % max(crew_size(), 1) == 0
    rows = [row for gp, own in parts for row in zip([gp] * 18, range(18)[own], strict=False)]
    assert rows == [(gp, row) for gp in range(3) for row in range(18)]


def test_long_blocks_are_whole_panels(monkeypatch):
    monkeypatch.setattr(block_inputs, "BLOCK", 2000)
    family = random_family("full", "matern52", 2, 5, 4)
    x = torch.randn(1000, 4, dtype=torch.float64)
    inputs = BlockInputs.scale(family.kernel.unit.profile, x, family.points, family.kernel.unit.lengthscale.value)
    ours = [rows for gp, rows in inputs.parts() if gp == 1]
    assert len(ours) > 1
    assert all(rows.start % block_inputs.PANEL == 0 for rows in ours)
    assert [row for rows in ours for row in range(1000)[rows]] == list(range(1000))


def test_what_a_crew_can_share_out(both_ways):
    """Rows that are many for the points, of layers or of several GPs, or by machine code, and no network."""
    rows = random_rows(25, n_features=3)
    family = layers_problem(rows, (2,), weights="full", objective="elbo").family
    points = max(layer.points.shape[-2] for layer in family.layers)
    least = 1.5 if both_ways else 3.0
    assert family.shares_rows(math.ceil(least * points))
    assert not family.shares_rows(math.ceil(least * points) - 1)
    assert random_family("full", "rbf", 2, 3, 2).shares_rows(40)
    assert random_family("full", "rbf", 1, 3, 2).shares_rows(40) == both_ways
    assert not random_family("full", "rq", 2, 3, 2).shares_rows(40)
    parts = torch.zeros(2, 3, 3), WEIGHTS["full"](3, (2,)), 1e-6
    behind_network = Inducing(family.layers[0].kernel, NetworkMean((3,), 3, 2), *parts)
    assert not behind_network.shares_rows(40)


def test_where_blocks_are_of_no_use():
    family = random_family("diagonal", "rq", 1, 3, 2)
    x = torch.randn(40, 2, dtype=torch.float64)
    assert not pays(family.kernel.unit, family.weights, x, family.points)
    family = random_family("diagonal", "rbf", 1, 3, 2)
    assert pays(family.kernel.unit, family.weights, x, family.points)
    assert not pays(family.kernel.unit, family.weights, x[:4], family.points)


def test_without_gradients_the_values_are_those_of_training():
    """Gram matrices that are rounded in another way may need another jitter, for which q(v) was not trained."""
    family = random_family("full", "matern52", 2, 5, 4).float()
    x = torch.randn(26, 4, generator=torch.Generator().manual_seed(1))
    trained = family.marginal(x)
    with torch.no_grad():
        assert pays(family.kernel.unit, family.weights, x, family.points)
        looked_at = family.marginal(x)
    assert all(torch.equal(getattr(trained, name), getattr(looked_at, name)) for name in ("mean", "residual", "spread"))
