"""What machine code does strip by strip is what torch does with all rows of a block."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("numba")

from candid.families.blockwise import blockwise_moments
from candid.families.row_blocks import GPs, Sums, TorchPasses
from candid.families.row_strips import StripPasses, column_edges, make_passes
from candid.kernels import make_kernel, profiles
from candid.kernels.blocks import scaled_blocks
from candid.linalg import without_machine_code
from candid.linalg.crew import crew
from candid.weights import WEIGHTS

# So many that strips, panels and tiles have edges.
N_GPS, N_POINTS, N_ROWS, N_FEATURES = 2, 61, 1103, 5
TOLERANCES = {torch.float64: {"rtol": 1e-8, "atol": 1e-8}, torch.float32: {"rtol": 2e-2, "atol": 2e-2}}


def all_passes(passes_of, pulls, weights, draw, dtype):
    """Moments, sums, gradients of points and rows, and of the root of S."""
    points, x = draw(N_GPS, N_POINTS, N_FEATURES), draw(N_ROWS, N_FEATURES)
    mean, root = draw(N_GPS, N_POINTS), 0.3 * draw(N_GPS, N_POINTS, N_POINTS)
    lengthscale, jitter = torch.full((N_GPS, 1, N_FEATURES), 1.5), torch.full((N_GPS,), 1e-4)
    root = {"delta": None, "diagonal": root[..., 0], "full": root}[weights]
    given = (part if part is None else part.to(dtype) for part in (points, x, mean, root, lengthscale, jitter))
    points, x, mean, root, lengthscale, jitter = given
    blocks = scaled_blocks(profiles.MATERN52, points, x, lengthscale)
    lower, whitener, _, slope = blocks.factorise(slice(None), jitter)
    passes = passes_of(GPs(lower, whitener, mean, root), blocks)
    moments, total = x.new_zeros(3, N_GPS, N_ROWS), blocks.zeros(of_rows=True)
    rows = [slice(0, 900), slice(900, N_ROWS)]
    kept = {(gp, part.start): passes.evaluate(gp, part, moments) for gp in range(N_GPS) for part in rows}
    pull = passes.pull(*(part.to(dtype) for part in pulls))
    passes.turn(pull)
    sums = Sums.zeros(passes.gps, pull)
    for gp in range(N_GPS):
        for part in rows:
            passes.pull_back(pull, gp, part, kept[gp, part.start], sums, total)
    apart = None if sums.apart is None else sums.apart.tril()
    found = [moments, sums.gram.tril(), sums.mean_bar.clone(), apart]
    found.append(passes.finish(pull, sums, slope, total))
    return [*found, *total.without(N_FEATURES)]


@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
@pytest.mark.parametrize("weights", ["delta", "diagonal", "full"])
@pytest.mark.parametrize("apart", ["nowhere", "in some rows", "everywhere"])
@pytest.mark.parametrize("size", [1, 2], ids=["crew of one", "crew of two"])
def test_strips_and_blocks_agree(weights, apart, size, dtype, draw):
    of_mean, of_explained, of_spread = draw(3, N_GPS, N_ROWS)
    if apart != "everywhere":
        of_explained = -of_spread
    if apart == "in some rows":
        of_explained[:, ::7] = 0.0
    pulls = (of_mean, of_explained, of_spread)
    with crew(size):
        found = all_passes(make_passes, pulls, weights, random_like, dtype)
    with without_machine_code():
        expected = all_passes(
            lambda gps, blocks: TorchPasses(gps.cut(), blocks),
            pulls, weights, random_like, torch.float64,
        )  # fmt: skip
    for one, other in zip(found, expected, strict=True):
        if other is None:
            assert one is None
        else:
            scale = float(other.abs().max())
            torch.testing.assert_close(one.double() / scale, other / scale, **TOLERANCES[dtype])


def random_like(*shape):
    """The same numbers whenever that shape is asked for."""
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(sum(shape)))


def test_who_is_asked(draw):
    blocks = scaled_blocks(profiles.MATERN52, draw(1, 5, 2), draw(9, 2), torch.ones(1, 1, 2).double())
    gps = GPs(*[torch.eye(5).double()[None]] * 2, draw(1, 5), None)
    assert isinstance(make_passes(gps, blocks), TorchPasses)
    with crew(1):
        assert isinstance(make_passes(gps, blocks), StripPasses)


@pytest.mark.parametrize("size", range(1, 60))
def test_columns_of_members(size):
    for members in range(1, 17):
        edges = column_edges(size, members)
        assert edges == sorted(edges)
        assert (edges[0], edges[-1], len(edges)) == (0, size, members + 1)


@pytest.mark.parametrize("n_points", [1, 7, 8, 9, 17])
@pytest.mark.parametrize("size", [3, 4], ids=["crew of three", "crew of four"])
@pytest.mark.parametrize("later", [True, False], ids=["still there", "gone when gradients are asked for"])
def test_members_with_nothing_to_do(n_points, size, later, draw):
    kernel = make_kernel("matern52", 2, batch_shape=(1,)).double()
    weights = WEIGHTS["full"](n_points, (1,)).double()
    x, points = draw(30, 2), draw(1, n_points, 2).requires_grad_()
    found = []
    for own in (None, size):
        with crew(own):
            moments = blockwise_moments(kernel.unit, weights, x, points, torch.full((1,), 1e-6).double())
        with crew(own if later else None):
            value = sum((k + 1) * part.sin().sum() for k, part in enumerate(moments[:3]))
            found.append(torch.autograd.grad(value, [points, *weights.parameters()]))
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other)
