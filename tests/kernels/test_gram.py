"""The hand-written gradient of stationary Gram matrices, and their accuracy."""

from __future__ import annotations

import math

import pytest
import torch
from torch.autograd import gradcheck

from candid.kernels import RBF, Linear, Matern12, Matern32, Matern52, Periodic, RationalQuadratic, make_kernel, profiles
from candid.kernels.gram import stationary_gram

PROFILES = {
    "rbf": profiles.RBF,
    "matern12": profiles.MATERN12,
    "matern32": profiles.MATERN32,
    "matern52": profiles.MATERN52,
    "rq": profiles.RATIONAL_QUADRATIC,
}

# x1, x2, lengthscale. Five features go through the matrix product, up to three through differences.
SHAPES = {
    "plain": ((3, 5), (4, 5), (1, 5)),
    "few features": ((3, 2), (4, 2), (1, 2)),
    "isotropic": ((3, 5), (4, 5), (1, 1)),
    "batch of two": ((2, 3, 5), (2, 2, 5), (2, 1, 5)),
    "batch of two, isotropic": ((2, 3, 2), (2, 2, 2), (2, 1, 1)),
    "x2 shared by the batch": ((2, 3, 5), (2, 5), (2, 1, 5)),
    "only the kernel has a batch": ((3, 4), (2, 4), (2, 1, 4)),
    "batch of another shape": ((3, 1, 2, 4), (2, 3, 4), (2, 1, 4)),
    "batches of length one": ((1, 2, 4), (2, 3, 4), (1, 1, 4)),
    "one feature": ((3, 1), (4, 1), (1, 1)),
    "one point": ((1, 5), (1, 5), (1, 5)),
}


def draw(*shape: int, seed: int = 0, positive: bool = False) -> torch.Tensor:
    value = torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    return (value.exp() if positive else value).requires_grad_()


def alphas(name: str, batch: tuple[int, ...] = ()) -> tuple[torch.Tensor, ...]:
    return (draw(*batch, 1, 1, seed=3, positive=True),) if name == "rq" else ()


def reference(name: str, x1, x2, lengthscale, *shapes):
    """The textbook formula, differentiated by autograd."""
    x2 = x1 if x2 is None else x2
    difference = (x1.unsqueeze(-2) - x2.unsqueeze(-3)) / lengthscale.unsqueeze(-2)
    squares = difference.square().sum(-1)
    d = torch.where(squares > 0, squares, 1.0).sqrt() * (squares > 0)
    if name == "rbf":
        return torch.exp(-squares / 2)
    if name == "matern12":
        return torch.exp(-d)
    if name == "matern32":
        return (1 + math.sqrt(3) * d) * torch.exp(-math.sqrt(3) * d)
    if name == "matern52":
        return (1 + math.sqrt(5) * d + 5 / 3 * squares) * torch.exp(-math.sqrt(5) * d)
    return (1 + squares / (2 * shapes[0])) ** -shapes[0]


@pytest.mark.parametrize("shapes", SHAPES.values(), ids=SHAPES.keys())
@pytest.mark.parametrize("name", PROFILES)
def test_gradients_of_two_sets_of_points(name, shapes):
    x1, x2 = draw(*shapes[0], seed=1), draw(*shapes[1], seed=2)
    parameters = (draw(*shapes[2], seed=4, positive=True), *alphas(name, shapes[2][:-2]))
    assert gradcheck(lambda *t: stationary_gram(PROFILES[name], *t), (x1, x2, *parameters), fast_mode=True)


@pytest.mark.parametrize("shapes", SHAPES.values(), ids=SHAPES.keys())
@pytest.mark.parametrize("name", PROFILES)
def test_gradients_of_one_set_of_points(name, shapes):
    # gradcheck multiplies by matrices that are not symmetric, which the backward pass has to survive.
    x = draw(*shapes[0], seed=1)
    parameters = (draw(*shapes[2], seed=4, positive=True), *alphas(name, shapes[2][:-2]))
    assert gradcheck(lambda x, *p: stationary_gram(PROFILES[name], x, None, *p), (x, *parameters), fast_mode=True)


@pytest.mark.parametrize("name", PROFILES)
def test_full_jacobian(name):
    inputs = (draw(3, 4, seed=1), draw(2, 4, seed=2), draw(2, 1, 4, seed=3, positive=True), *alphas(name, (2,)))
    assert gradcheck(lambda *t: stationary_gram(PROFILES[name], *t), inputs)


@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize("features", [2, 5])
@pytest.mark.parametrize("name", PROFILES)
def test_duplicate_points(name, features, symmetric):
    x1, x2 = draw(4, features, seed=1), draw(3, features, seed=2)
    parameters = (draw(1, features, seed=4, positive=True), *alphas(name))
    with torch.no_grad():
        x1[1] = x1[0]
        x2[0] = x1[0]
    pair = None if symmetric else x2
    inputs = (x1, *parameters) if symmetric else (x1, x2, *parameters)
    # The matrix product finds a distance of zero to about 1e-8, and exp(−d) is not smoother than that.
    atol = 1e-6 if name == "matern12" else 1e-12
    actual, wanted = stationary_gram(PROFILES[name], x1, pair, *parameters), reference(name, x1, pair, *parameters)
    torch.testing.assert_close(actual, wanted, rtol=0, atol=atol)
    weight = draw(*actual.shape, seed=9).detach()
    for a, b in zip(
        torch.autograd.grad(actual, inputs, weight), torch.autograd.grad(wanted, inputs, weight), strict=True
    ):
        torch.testing.assert_close(a, b, rtol=0, atol=atol)


@pytest.mark.parametrize("name", [name for name in PROFILES if name != "matern12"])
def test_gradcheck_at_duplicate_points(name):
    x1, x2, lengthscale = draw(3, 5, seed=1), draw(3, 5, seed=2), draw(1, 5, seed=4, positive=True)
    with torch.no_grad():
        x1[1] = x1[0]
        x2[0] = x1[0]
    assert gradcheck(lambda *t: stationary_gram(PROFILES[name], *t), (x1, x2, lengthscale, *alphas(name)))


@pytest.mark.parametrize(
    ("needed", "symmetric"),
    [((0,), False), ((1,), False), ((2,), False), ((0, 2), False), ((1, 2), False), ((0,), True), ((2,), True)],
)
def test_each_gradient_alone(needed, symmetric):
    tensors = [draw(4, 5, seed=1), None if symmetric else draw(3, 5, seed=2), draw(1, 5, seed=3, positive=True)]
    for i, tensor in enumerate(tensors):
        if tensor is not None:
            tensor.requires_grad_(i in needed)
    inputs = [tensors[i] for i in needed]
    k = stationary_gram(profiles.MATERN52, *tensors)
    weight = draw(*k.shape, seed=9).detach()
    actual = torch.autograd.grad(k, inputs, weight)
    wanted = torch.autograd.grad(reference("matern52", *tensors), inputs, weight)
    for a, b in zip(actual, wanted, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    "kernel", [Periodic(1.3), Periodic([1.0, 0.4, 2.0, 1.1]), Linear([0.5, 1.0, 2.0, 3.0]), Linear(0.7)], ids=repr
)
@pytest.mark.parametrize("batch", [(), (2,)])
def test_gradients_of_periodic_and_linear(kernel, batch):
    kernel = kernel.build(4, batch_shape=batch).double()
    x1, x2 = draw(*batch, 3, 4, seed=1), draw(2, 4, seed=2)
    raws = tuple(kernel.parameters())
    assert gradcheck(lambda x1, x2, *raws: kernel(x1, x2), (x1, x2, *raws), fast_mode=True)
    assert gradcheck(lambda x1, *raws: kernel(x1), (x1, *raws), fast_mode=True)


def test_training_and_prediction_see_the_same_numbers():
    kernel = make_kernel("matern52", 5)
    x1, x2 = torch.randn(6, 5), torch.randn(4, 5)
    trained = kernel(x1, x2)
    with torch.no_grad():
        predicted = kernel(x1, x2)
    assert trained.requires_grad
    assert not predicted.requires_grad
    assert torch.equal(trained, predicted)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("kind", [RBF, Matern12, Matern32, Matern52, RationalQuadratic, Periodic])
@pytest.mark.parametrize("features", [2, 9])
def test_diagonal_is_exactly_one(kind, features, dtype):
    kernel = kind().build(features).to(dtype)
    x = 100 + torch.randn(50, features, dtype=dtype, generator=torch.Generator().manual_seed(0))
    k = kernel(x)
    assert torch.equal(k.diagonal(), torch.ones(50, dtype=dtype))
    assert torch.equal(kernel.diagonal(x), torch.ones(50, dtype=dtype))
    torch.testing.assert_close(k, k.mT, rtol=0, atol=4 * torch.finfo(dtype).eps)


@pytest.mark.parametrize("features", [1, 3, 10])
def test_inputs_far_from_the_origin_lose_nothing_in_float32(features):
    # Without centring, ‖x‖² + ‖z‖² − 2xz would be off by about 1e4² · 1e-7 = 10.
    generator = torch.Generator().manual_seed(0)
    x1 = torch.randn(30, features, generator=generator) + 1e4
    x2 = torch.randn(20, features, generator=generator) + 1e4
    kernel = Matern52().build(features)
    with torch.no_grad():
        single = kernel(x1, x2)
        double = kernel.double()(x1.double(), x2.double())
    torch.testing.assert_close(single.double(), double, rtol=0, atol=2e-6)


def test_each_group_of_points_is_centred_on_its_own():
    # Tight groups, far apart: the neighbours of many rows.
    centres = 300.0 * torch.arange(20.0).reshape(20, 1, 1)
    x = centres + torch.randn(20, 8, 6, generator=torch.Generator().manual_seed(0))
    kernel = RBF().build(6)
    with torch.no_grad():
        single = kernel(x)
        double = kernel.double()(x.double())
    torch.testing.assert_close(single.double(), double, rtol=0, atol=2e-6)


def test_short_lengthscale_on_few_features_stays_accurate_in_float32():
    x = torch.linspace(-2, 2, 400).unsqueeze(-1)
    kernel = Matern12(lengthscale=0.002).build(1)
    with torch.no_grad():
        single = kernel(x)
        double = kernel.double()(x.double())
    torch.testing.assert_close(single.double(), double, rtol=0, atol=1e-5)


@pytest.mark.parametrize("kind", [RBF, Matern12, Matern32, Matern52])
def test_far_points_give_no_subnormal_numbers(kind):
    x = torch.arange(2000.0).unsqueeze(-1)
    with torch.no_grad():
        k = kind(lengthscale=1.0).build(1)(x[:1], x)
    assert (k >= torch.finfo(torch.float32).tiny).all()
    assert k[0, -1] < 1e-30


def test_reduced_precision_elsewhere_does_not_reach_the_gram_matrix():
    x = torch.randn(20, 8, generator=torch.Generator().manual_seed(0))
    kernel, weight = make_kernel("matern52 + linear", 8), torch.randn(20, 20)

    def value_and_gradient():
        kernel.zero_grad()
        k = kernel(x)
        k.backward(weight)
        return k.detach(), kernel.parts[0].base.lengthscale.raw.grad.clone()

    expected = value_and_gradient()
    before = torch.get_float32_matmul_precision()
    try:
        torch.set_float32_matmul_precision("medium")
        with torch.autocast("cpu", dtype=torch.bfloat16):
            actual = value_and_gradient()
        assert torch.get_float32_matmul_precision() == "medium"
    finally:
        torch.set_float32_matmul_precision(before)
    for a, b in zip(actual, expected, strict=True):
        assert a.dtype == torch.float32
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5)


def test_backward_can_be_repeated():
    x, lengthscale = draw(5, 4, seed=1), draw(1, 4, seed=2, positive=True)
    k = stationary_gram(profiles.MATERN32, x, None, lengthscale)
    first = torch.autograd.grad(k.sum(), (x, lengthscale), retain_graph=True)
    second = torch.autograd.grad(k.sum(), (x, lengthscale))
    for a, b in zip(first, second, strict=True):
        assert torch.equal(a, b)
