"""The mean block by block of rows is that of all rows at a time, and so are its gradients."""

from __future__ import annotations

import pytest
import torch

from candid.families import block_inputs, decoupled, make_mean
from candid.families.blockwise_mean import blockwise_mean
from candid.families.decoupled import Decoupled
from candid.families.means import NetworkMean
from candid.kernels import make_kernel
from candid.linalg import kernel_coefficients
from candid.marginal import Batch
from candid.weights import WEIGHTS

# Chains and GPs, points, rows, features.
SHAPES = {
    "batch": ((3,), 5, 26, 4),
    "chains": ((2, 3), 4, 13, 3),
    "few features": ((2,), 4, 19, 2),
    "single": ((1,), 1, 9, 1),
}


pytestmark = pytest.mark.usefixtures("both_ways", "with_and_without_crew", "small_blocks")


@pytest.mark.parametrize("kernel", ["matern52", "rbf"])
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_values_and_gradients_are_those_of_all_rows_together(kernel, shape, draw):
    batch, n_points, n_rows, n_features = shape
    unit = make_kernel(kernel, n_features, batch_shape=batch).double().unit
    x, points, weights = draw(n_rows, n_features), draw(*batch, n_points, n_features), draw(*batch, n_points)
    x[1] = x[0]
    jitter, pull = torch.full(batch, 1e-9, dtype=torch.float64), draw(*batch, n_rows)
    wanted = [*(values.requires_grad_() for values in (x, points, weights)), *unit.parameters()]

    coefficients, factor = kernel_coefficients(unit(points), weights, jitter)
    expected = (coefficients.unsqueeze(-2) @ unit(points, x)).squeeze(-2)
    latent, own = blockwise_mean(unit, weights, x, points, jitter)
    torch.testing.assert_close(latent, expected)
    torch.testing.assert_close(own, factor.jitter)
    found, known = (torch.autograd.grad((pull * values).sum(), wanted) for values in (latent, expected))
    for one, other in zip(found, known, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-8, atol=1e-9)


def test_gradcheck(draw):
    unit = make_kernel("matern52", 4, batch_shape=(2,)).double().unit
    jitter = torch.full((2,), 1e-9, dtype=torch.float64)
    inputs = [values.requires_grad_() for values in (draw(2, 3), draw(13, 4), draw(2, 3, 4))]
    assert torch.autograd.gradcheck(lambda m, x, points: blockwise_mean(unit, m, x, points, jitter)[0], inputs)


def test_decoupled_points_take_blocks_of_rows(monkeypatch, draw):
    """Also where mean and variance have different numbers of points."""
    x, y = draw(30, 3), draw(30, 1)
    batch = Batch(x, y, torch.ones(30, dtype=torch.float64), 100.0)
    found, calls = [], []
    monkeypatch.setattr(decoupled, "blockwise_mean", lambda *given: calls.append(least) or blockwise_mean(*given))
    for least in (10**9, 8):
        monkeypatch.setattr(block_inputs, "LEAST", least)
        generator = torch.Generator().manual_seed(0)
        points = [torch.randn(1, size, 3, dtype=torch.float64, generator=generator) for size in (6, 4)]
        kernel = make_kernel("matern52", 3, batch_shape=(1,))
        family = Decoupled(kernel, make_mean("constant", 3, 1), *points, WEIGHTS["full"](4, (1,)), 1e-9).double()
        with torch.no_grad():
            family.mean_weights.mean.copy_(torch.arange(6.0))
        marginal = family.evaluate(batch).marginal
        value = (marginal.mean * y + marginal.residual + 2 * marginal.spread).sum()
        learned = [parameter for parameter in family.parameters() if parameter.requires_grad]
        found.append([value.detach(), *torch.autograd.grad(value, learned)])
    assert calls == [8]
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-8, atol=1e-10)


def test_what_a_crew_can_share_out(both_ways):
    """Rows that are many for both sets of points."""
    mean, weights = make_mean("zero", 2, 1), WEIGHTS["diagonal"](3, (1,))
    points = torch.zeros(1, 4, 2), torch.zeros(1, 3, 2)
    family = Decoupled(make_kernel("rbf", 2, batch_shape=(1,)), mean, *points, weights, 1e-6)
    least = 6 if both_ways else 12
    assert family.shares_rows(least)
    assert not family.shares_rows(least - 1)
    behind_network = Decoupled(family.kernel, NetworkMean((3,), 2, 1), *points, weights, 1e-6)
    assert not behind_network.shares_rows(12)
