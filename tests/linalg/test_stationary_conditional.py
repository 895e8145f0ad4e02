"""Machine code for neighbours says what torch says, and its gradients are right."""

from __future__ import annotations

import math

import pytest
import torch
from torch.autograd.functional import hessian

from candid.kernels import RBF, Matern12, Matern32, Matern52
from candid.kernels.gram import stationary_gram
from candid.linalg import CompiledProfile, can_compile, condition, condition_stationary
from candid.linalg import stationary_conditional as room

pytest.importorskip("numba")

KERNELS = (RBF, Matern12, Matern32, Matern52)
# Rows, GPs, neighbours, features.
SIZES = [(4, 1, 1, 1), (3, 2, 5, 1), (4, 1, 6, 3), (2, 2, 19, 4), (3, 1, 33, 6), (2, 1, 70, 18)]
TOLERANCE = {torch.float32: {"rtol": 2e-4, "atol": 2e-4}, torch.float64: {"rtol": 1e-10, "atol": 1e-11}}


def compiled(kernel, *given, jitter=0.0):
    profile = kernel.profile
    return condition_stationary(
        CompiledProfile(KERNELS.index(kernel), profile.stretch, profile.slope), *given, jitter=jitter
    )


def by_torch(kernel, points, rows, lengthscale, noise, targets, absent, jitter=0.0):
    here = ~absent
    covariance = stationary_gram(kernel.profile, points, None, lengthscale)
    covariance = covariance * (here.unsqueeze(-1) & here.unsqueeze(-2)) + torch.diag_embed(
        torch.where(here, noise, 1.0)
    )
    cross = stationary_gram(kernel.profile, rows, points, lengthscale).squeeze(-2) * here
    return condition(covariance, cross, targets.expand(cross.shape), jitter)[:2]


def systems(draw, n, p, k, d, dtype=torch.float64, isotropic=False):
    """Points, rows, lengthscales, noise, targets and absent neighbours, as families give them."""
    lengthscale = math.sqrt(d) * (1 + 0.3 * draw(p, 1, 1 if isotropic else d).tanh())
    noise = 0.1 + 0.05 * draw(n, p, k).tanh()
    given = (draw(n, 1, k, d), draw(n, 1, 1, d), lengthscale, noise, draw(n, p, k))
    return [*(values.to(dtype) for values in given), torch.zeros(n, 1, k, dtype=torch.bool)]


def learned(given):
    return [values.requires_grad_() for values in given[2:5]]


def assert_alike(kernel, given, jitter=0.0):
    """Values and gradients, for some gradient of both results."""
    leaves = learned(given)
    *ours, failed = compiled(kernel, *given, jitter=jitter)
    theirs = by_torch(kernel, *given, jitter=jitter)
    assert not failed.any()
    tolerance = TOLERANCE[given[0].dtype]
    torch.testing.assert_close(tuple(ours), theirs, **tolerance)
    pulls = [torch.cos(torch.arange(ours[0].numel()) + shift).view(ours[0].shape) for shift in (0.0, 1.0)]
    found, expected = (
        torch.autograd.grad(sum((pull * part).sum() for pull, part in zip(pulls, parts, strict=True)), leaves)
        for parts in (ours, theirs)
    )
    torch.testing.assert_close(found, expected, **tolerance)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("kernel", KERNELS)
def test_machine_code_and_torch_agree(draw, kernel, size, dtype):
    assert_alike(kernel, systems(draw, *size, dtype))


@pytest.mark.parametrize("isotropic", [False, True])
def test_gradients(draw, isotropic):
    *given, absent = systems(draw, 3, 2, 5, 3, isotropic=isotropic)
    absent[1, 0, 2] = True

    learned([*given])
    assert torch.autograd.gradcheck(lambda *leaves: compiled(Matern52, *given[:2], *leaves, absent)[:2], given[2:])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_neighbours_that_are_not_there(draw, dtype):
    given = systems(draw, 5, 2, 9, 3, dtype)
    given[-1][0, 0, [0, 4, 8]] = True
    given[-1][1, 0, 3:] = True
    given[-1][2] = True
    assert_alike(Matern32, given, jitter=1e-2)
    mean, explained, _ = compiled(Matern32, *given)
    assert mean[2].tolist() == explained[2].tolist() == [0.0, 0.0]


@pytest.mark.parametrize("kernel", KERNELS)
def test_points_at_the_same_place(draw, kernel):
    given = systems(draw, 3, 1, 8, 2)
    given[0][:, :, 4:] = given[0][:, :, :4]
    given[0][0, 0, 0] = given[1][0, 0, 0]
    assert_alike(kernel, given)


def test_rows_far_from_the_origin(draw):
    """In float32 too, distances of near points have their full precision."""
    near = systems(draw, 3, 1, 12, 5, torch.float32)
    far = [near[0] + 1000.0, near[1] + 1000.0, *near[2:]]
    moved = [far[0] - 1000.0, far[1] - 1000.0, *near[2:]]
    torch.testing.assert_close(compiled(Matern52, *far)[:2], compiled(Matern52, *moved)[:2], rtol=0, atol=0)


def test_points_beyond_all_distances(draw):
    given = systems(draw, 2, 1, 4, 2, torch.float32)
    given[0][0] *= 1e30
    mean, explained, failed = compiled(RBF, *given)
    assert not failed.any()
    assert mean[0].abs().item() < 1e-30
    assert explained[0].item() < 1e-30


def test_only_singular_systems_fail(draw):
    given = systems(draw, 3, 2, 6, 2)
    given[0][1, :, 3] = given[0][1, :, 0]
    given[3][1, 1] = 0.0
    leaves = learned([values.clone() for values in given])
    mean, explained, failed = compiled(RBF, *given[:2], *leaves, given[-1])
    assert failed.tolist() == [[False, False], [False, True], [False, False]]
    assert mean[1, 1] == explained[1, 1] == 0
    for gradient in torch.autograd.grad(mean[1, 1] + explained[1, 1], leaves):
        assert not gradient.any()
    assert not compiled(RBF, *given, jitter=1e-6)[2].any()


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_what_is_not_a_number_fails(draw, bad):
    given = systems(draw, 3, 1, 6, 2)
    given[0][1, 0, 2, 1] = bad
    assert compiled(Matern52, *given)[2].tolist() == [[False], [True], [False]]
    given = systems(draw, 3, 1, 6, 2)
    given[3][2, 0, 4] = math.nan
    assert compiled(Matern52, *given)[2].tolist() == [[False], [False], [True]]


def test_threads_change_nothing(draw, monkeypatch):
    given = systems(draw, 11, 2, 20, 3, torch.float32)
    leaves = learned(given)
    results = []
    for number in (1, 2, 3):
        monkeypatch.setattr(room.torch, "get_num_threads", lambda number=number: number)
        mean, explained, _ = compiled(Matern52, *given)
        results.append([mean, explained, *torch.autograd.grad((mean * explained).sum(), leaves)])
    for others in results[1:]:
        for one, other in zip(results[0], others, strict=True):
            assert torch.equal(one, other)


def test_chains_of_kernels(draw):
    """Axes are (row, chain, output): points are shared by outputs, lengthscales by rows."""
    points, rows = draw(3, 2, 1, 5, 2), draw(3, 1, 1, 1, 2)
    lengthscale, noise, targets = 1 + draw(2, 4, 1, 2).sigmoid(), 0.1 + draw(3, 2, 4, 5).sigmoid(), draw(3, 2, 4, 5)
    absent = torch.zeros(3, 1, 1, 5, dtype=torch.bool)
    assert_alike(Matern52, [points, rows, lengthscale, noise, targets, absent])


def test_what_machine_code_can_take(draw, monkeypatch):
    points = draw(2, 1, 3, 2)
    assert can_compile(points)
    assert can_compile(points.float())
    assert not can_compile(points.half())
    assert not can_compile(points.to("meta"))
    assert not can_compile(points[:, :, :0])
    assert not can_compile(points[:, :, :1].expand(2, 1, room.MOST_NEIGHBOURS + 1, 2))
    assert not can_compile(points.clone().requires_grad_())
    with torch.no_grad():
        assert can_compile(points.clone().requires_grad_())
    monkeypatch.setattr(room, "_numba_is_there", lambda: False)
    assert not can_compile(points)


def test_second_derivatives_are_refused(draw):
    *given, absent = systems(draw, 2, 1, 3, 2)
    with pytest.raises(RuntimeError, match="second derivatives"):
        hessian(lambda noise: compiled(RBF, *given[:3], noise, given[4], absent)[1].sum(), given[3])
