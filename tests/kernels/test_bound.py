"""A kernel that is bound to points is the kernel itself."""

from __future__ import annotations

import pytest
import torch

from candid.kernels import make_kernel
from candid.kernels.bound import bind

NAMES = [
    "rbf",
    "matern12",
    "matern32",
    "matern52",
    "rq",
    "periodic",
    "linear",
    "rbf + matern32",
    "matern52 * linear + rbf",
]


def built(name, n_features, batch, draw):
    kernel = make_kernel(name, n_features, batch_shape=batch).double()
    with torch.no_grad():
        for parameter in kernel.parameters():
            parameter.add_(0.3 * draw(*parameter.shape))
    return kernel


@pytest.mark.parametrize("n_features", [1, 3, 4, 9])
@pytest.mark.parametrize("name", NAMES)
def test_values(name, n_features, draw):
    kernel, points, x = built(name, n_features, (2,), draw), draw(2, 6, n_features), draw(5, n_features)
    with torch.no_grad():
        torch.testing.assert_close(bind(kernel, points)(x), kernel(points, x), rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("shape", [(5, 4), (1, 4), (0, 4), (2, 5, 4), (3, 1, 5, 4)])
def test_leading_dimensions(shape, draw):
    kernel, points, x = built("matern52", 4, (3, 2), draw), draw(3, 2, 6, 4), draw(*shape)
    with torch.no_grad():
        expected = kernel(points, x)
        assert bind(kernel, points)(x).shape == expected.shape
        torch.testing.assert_close(bind(kernel, points)(x), expected, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_gradients(name, draw):
    kernel = built(name, 4, (2,), draw).requires_grad_(False)
    assert torch.autograd.gradcheck(bind(kernel, draw(2, 6, 4)), (draw(3, 4).requires_grad_(),))


@pytest.mark.parametrize("name", ["matern12", "rbf"])
def test_far_from_the_origin_and_at_the_points_themselves(name, draw):
    """Inputs are centred: a column of dates has its digits behind the ninth."""
    kernel, points = built(name, 5, (1,), draw), draw(6, 5)
    with torch.no_grad():
        here, there = bind(kernel, points)(points), bind(kernel, points + 2.0**24)(points + 2.0**24)
        variances = kernel.diagonal(points)
    torch.testing.assert_close(here.diagonal(dim1=-2, dim2=-1), variances, rtol=0, atol=1e-7)
    torch.testing.assert_close(here, there, rtol=0, atol=1e-6)


def test_single_precision_is_as_careful_as_the_kernel(draw):
    kernel, points, x = built("rbf", 4, (1,), draw).float(), draw(6, 4).float(), draw(3, 4).float()
    with torch.no_grad():
        assert torch.equal(bind(kernel, points)(x), kernel(points, x))


@pytest.mark.parametrize("width", [1, 3, 5])
def test_other_features_are_refused(width, draw):
    bound = bind(built("matern52", 4, (1,), draw), draw(6, 4))
    with pytest.raises(ValueError, match="features"):
        bound(draw(3, width))
