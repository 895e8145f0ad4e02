"""Several Gram matrices from one evaluation are what separate evaluations give."""

from __future__ import annotations

import pytest
import torch

from candid.kernels import RBF, Matern12, Matern32, Matern52, RationalQuadratic, joint, make_kernel
from candid.kernels.joint import joint_grams

KINDS = [RBF, Matern12, Matern32, Matern52, RationalQuadratic]


def apart(kernel, rows, *points):
    return [(kernel(z), kernel(z, rows)) for z in points]


def inputs(draw, batch=(), features=5, shared=True):
    rows = draw(7, features) if shared else draw(*batch, 7, features)
    return rows, draw(*batch, 4, features).requires_grad_(), draw(*batch, 3, features).requires_grad_()


def together_only(monkeypatch):
    """Fail where a kernel falls back on separate evaluations."""
    monkeypatch.setattr(joint, "_together", _never_none(joint._together))


def _never_none(function):
    def checked(*arguments):
        result = function(*arguments)
        assert result is not None
        return result

    return checked


@pytest.mark.parametrize("ard", [True, False])
@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("batch", [(), (1,), (2,), (3, 2)])
@pytest.mark.parametrize("kind", KINDS[:-1])
def test_values_and_gradients(kind, batch, shared, ard, draw, monkeypatch):
    together_only(monkeypatch)
    kernel = kind().build(5, ard, batch).double()
    rows, *points = inputs(draw, batch, shared=shared)
    learned = [*points, *kernel.parameters()]
    ours, theirs = (
        [matrix for pair in function(kernel, rows, *points) for matrix in pair] for function in (joint_grams, apart)
    )
    pulls = [draw(*matrix.shape) for matrix in theirs]
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-6 if kind is Matern12 else 1e-12)
    for a, b in zip(
        torch.autograd.grad(ours, learned, pulls), torch.autograd.grad(theirs, learned, pulls), strict=True
    ):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("features", [2, 5])
def test_gradcheck(kind, features, draw):
    kernel = kind().build(features, batch_shape=(2,)).double()
    rows, *points = inputs(draw, (2,), features)
    raws = tuple(kernel.parameters())

    def matrices(first, second, *raws):
        return tuple(matrix for pair in joint_grams(kernel, rows, first, second) for matrix in pair)

    assert torch.autograd.gradcheck(matrices, (*points, *raws), fast_mode=True)


@pytest.mark.parametrize("used", [(0, 0), (0, 1), (1, 0), (1, 1)])
def test_what_is_not_used_has_no_gradient(used, draw, monkeypatch):
    together_only(monkeypatch)
    kernel = Matern52().build(5).double()
    rows, *points = inputs(draw)
    which, part = used
    found, expected = (
        torch.autograd.grad(function(kernel, rows, *points)[which][part].sum(), [points[which], *kernel.parameters()])
        for function in (joint_grams, apart)
    )
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b)


def test_duplicate_points(draw, monkeypatch):
    together_only(monkeypatch)
    kernel = Matern52().build(5).double()
    rows, z, _ = inputs(draw)
    with torch.no_grad():
        z[1] = z[0]
        rows[2] = z[0]
    assert torch.equal(joint_grams(kernel, rows, z)[0][0].diagonal(), torch.ones(4).double())
    results = [
        torch.autograd.grad(sum(matrix.sum() for matrix in function(kernel, rows, z)[0]), [z, *kernel.parameters()])
        for function in (joint_grams, apart)
    ]
    for a, b in zip(*results, strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("name", ["matern52", "matern52 + linear", "periodic", "rq * linear"])
def test_any_kernel(name, draw):
    kernel = make_kernel(name, 5).double()
    rows, *points = inputs(draw)
    for ours, theirs in zip(joint_grams(kernel, rows, *points), apart(kernel, rows, *points), strict=True):
        torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("n_rows", [1, 7, 300])
def test_gram_matrices_do_not_depend_on_rows(n_rows, draw, monkeypatch):
    """To the last bit, with gradients and without, one set of points and several."""
    together_only(monkeypatch)
    kernel, rows = Matern52().build(5, batch_shape=(2,)), 3 + draw(n_rows, 5).float()
    first, second = (draw(2, size, 5).float() for size in (64, 21))
    for points in ((first,), (first, second)):
        with torch.no_grad():
            expected = [gram for gram, _ in joint_grams(kernel, draw(12, 5).float(), *points)]
        for gram, (found, _) in zip(expected, joint_grams(kernel, rows, *points), strict=True):
            assert torch.equal(found, gram)
    assert torch.equal(joint_grams(kernel, rows, first)[0][0], kernel(first))


def test_inputs_that_need_care(draw):
    """Batches that differ, rows with gradients, no gradients at all, and in float32 norms that cancel."""
    kernel = Matern32(lengthscale=0.01).build(5, batch_shape=(2,)).double()
    rows, z, _ = inputs(draw)
    for some in (rows, rows.clone().requires_grad_()):
        torch.testing.assert_close(joint_grams(kernel, some, z), apart(kernel, some, z))
    kernel, rows, z = kernel.float(), rows.float(), draw(2, 4, 5).float()
    torch.testing.assert_close(joint_grams(kernel, rows, z), apart(kernel, rows, z))
    with torch.no_grad():
        assert not joint_grams(kernel, rows, z)[0][1].requires_grad


def test_other_features_are_refused(draw):
    with pytest.raises(ValueError, match="same features"):
        joint_grams(Matern52().build(5).double(), draw(3, 4), draw(2, 5))
