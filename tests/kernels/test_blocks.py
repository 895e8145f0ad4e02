"""Machine code and torch agree with the Gram matrix of all rows, and with its gradients."""

from __future__ import annotations

import pytest
import torch
from torch.nn.functional import pad

pytest.importorskip("numba")

from candid.kernels import blocks, profiles
from candid.kernels.blocks import CompiledBlocks, TorchBlocks, can_compile_blocks
from candid.kernels.compiled import COMPILED
from candid.linalg import without_machine_code

PROFILES = {
    "rbf": profiles.RBF,
    "matern12": profiles.MATERN12,
    "matern32": profiles.MATERN32,
    "matern52": profiles.MATERN52,
}
# GPs, points, rows, features; points are taken four at a time, and features filled up to whole fours.
SHAPES = {"one of each": (1, 1, 1, 1), "few features": (2, 6, 9, 3), "many": (3, 9, 20, 6)}


@pytest.fixture(params=SHAPES.values(), ids=SHAPES)
def inputs(request, draw):
    n_gps, n_points, n_rows, n_features = request.param
    a, b = draw(n_gps, n_points, n_features), draw(n_gps, n_rows, n_features)
    b[:, 0] = a[:, 0]
    return a, b


def make_blocks(profile, a, b):
    """Those of points and rows that are scaled already, and may differ between GPs."""
    if not can_compile_blocks(profile, a):
        return TorchBlocks(profile, a, b)
    a, b = (pad(values, (0, -a.shape[-1] % 4)) for values in (a, b))
    return CompiledBlocks(COMPILED[profile].number, a, b.mT.contiguous(), a.mT.contiguous())


def both_ways(profile, a, b):
    with without_machine_code():
        by_torch = make_blocks(profile, a, b)
    by_machine = make_blocks(profile, a, b)
    assert type(by_machine) is not type(by_torch)
    return by_machine, by_torch


@pytest.mark.parametrize("profile", PROFILES.values(), ids=PROFILES)
def test_covariances_are_those_of_the_profile(profile, inputs):
    a, b = inputs
    part = slice(len(b[0]) // 3, len(b[0]))
    for way in both_ways(profile, a, b):
        for gp in range(len(a)):
            expected = profile.evaluate((a[gp].unsqueeze(1) - b[gp, part]).square().sum(-1))
            for found, wanted in zip(way.covariances(gp, part), expected, strict=True):
                torch.testing.assert_close(found, wanted)
        expected = profile.evaluate((a.unsqueeze(2) - a.unsqueeze(1)).square().sum(-1))
        for found, wanted in zip(way.gram(slice(None)), expected, strict=True):
            torch.testing.assert_close(found, wanted)
        assert (way.gram(slice(None))[0].diagonal(dim1=-2, dim2=-1) == 1).all()


@pytest.mark.parametrize("of_rows", [True, False])
def test_gradients_are_those_of_squared_distances(inputs, draw, of_rows):
    """Summed over two blocks of rows; the derivative of k with respect to q is in ``slope``."""
    a, b = (values.clone().requires_grad_() for values in inputs)
    n_rows = b.shape[1]
    cross_bar, slope = draw(*a.shape[:2], n_rows), draw(*a.shape[:2], n_rows)
    distances = (a.unsqueeze(2) - b.unsqueeze(1)).square().sum(-1)
    a_bar, b_bar = torch.autograd.grad((cross_bar * slope * distances).sum(), (a, b))
    moment = (a * a_bar).sum(1) + (b * b_bar).sum(1)
    for way in both_ways(profiles.RBF, *inputs):
        total = way.zeros(of_rows)
        for gp in range(len(a)):
            for rows in (slice(0, n_rows // 2), slice(n_rows // 2, n_rows)):
                own = (values[gp, :, rows].contiguous() for values in (cross_bar, slope))
                way.add_gradients(total, gp, rows, *own)
        total = total.without(a.shape[-1])
        torch.testing.assert_close(2 * total.points, a_bar)
        torch.testing.assert_close(2 * total.rows.mT, b_bar if of_rows else b_bar[:, :0])
        torch.testing.assert_close(2 * total.moment, moment.detach())


def test_gradients_of_the_gram_matrix(inputs, draw):
    a = inputs[0].clone().requires_grad_()
    shape = (*a.shape[:2], a.shape[1])
    gram_bar, slope = draw(*shape), draw(*shape)
    distances = (a.unsqueeze(2) - a.unsqueeze(1)).square().sum(-1)
    (a_bar,) = torch.autograd.grad((gram_bar * slope * distances).sum(), a)
    for way in both_ways(profiles.RBF, *inputs):
        total = way.zeros(of_rows=False)
        way.add_gram_gradients(total, slice(None), gram_bar.clone(), slope)
        total = total.without(a.shape[-1])
        torch.testing.assert_close(2 * total.points, a_bar)
        torch.testing.assert_close(2 * total.moment, (a * a_bar).sum(1).detach())


@pytest.mark.parametrize("with_variances", [True, False])
def test_moments_of_columns(draw, with_variances):
    x, mean, variances = draw(7, 10), draw(7), draw(7).square() if with_variances else None
    for way in both_ways(profiles.RBF, draw(1, 7, 2), draw(1, 10, 2)):
        sums = torch.ones(3, 10, dtype=torch.float64)
        way.add_moments(x, mean, variances, sums)
        torch.testing.assert_close(sums[0], 1 + mean @ x)
        torch.testing.assert_close(sums[1], 1 + x.square().sum(0))
        spreads = torch.zeros(10, dtype=torch.float64) if variances is None else variances @ x.square()
        torch.testing.assert_close(sums[2], 1 + spreads)
        way.add_squares(x, sums[2])
        torch.testing.assert_close(sums[2], 1 + spreads + x.square().sum(0))


def test_sums_of_many_squares_in_float32_are_not_too_small():
    """What comes late in a long sum is small, and all of it together is not."""
    x = (0.99 ** torch.arange(2000.0)).sqrt().unsqueeze(-1).repeat(1, 5) / 10
    exact = x.double().square().sum(0)
    way, _ = both_ways(profiles.RBF, torch.zeros(1, 1, 1), torch.zeros(1, 5, 1))
    sums, squares = torch.zeros(3, 5), torch.zeros(5)
    way.add_moments(x, x[:, 0], torch.ones(len(x)), sums)
    way.add_squares(x, squares)
    for found in (*sums, squares):
        # One number after the other, they would be wrong by 2e-6.
        torch.testing.assert_close(found.double(), exact, rtol=6e-7, atol=0)


@pytest.mark.parametrize("profile", PROFILES.values(), ids=PROFILES)
def test_what_is_not_a_number_stays_so(profile, draw):
    """A network or a layer that has diverged must not look like one that is far away."""
    a, b = draw(1, 4, 5), draw(1, 6, 5)
    b[0, 2, 1] = torch.nan
    for way in both_ways(profile, a, b):
        covariances, _ = way.covariances(0, slice(0, 6))
        assert torch.equal(torch.isnan(covariances).any(0), torch.arange(6) == 2)


def test_float32_far_from_the_origin(draw):
    """Differences do not cancel where sums of squares would."""
    a, b = 0.1 * draw(1, 5, 6), 0.1 * draw(1, 8, 6)
    exact, _ = make_blocks(profiles.MATERN52, a, b).covariances(0, slice(0, 8))
    near, _ = make_blocks(profiles.MATERN52, a.float() + 64, b.float() + 64).covariances(0, slice(0, 8))
    torch.testing.assert_close(near.double(), exact, rtol=0, atol=1e-4)


def test_many_features_and_other_kernels_go_through_torch(draw):
    kind = blocks.TorchBlocks
    many = blocks.MOST_FEATURES + 1
    assert isinstance(make_blocks(profiles.RBF, draw(1, 3, many), draw(1, 4, many)), kind)
    assert isinstance(make_blocks(profiles.RATIONAL_QUADRATIC, draw(1, 3, 2), draw(1, 4, 2)), kind)
