"""Kernels against GPyTorch and scikit-learn: values, and gradients of inputs and hyper-parameters, in float64."""

from __future__ import annotations

import gpytorch
import numpy as np
import pytest
import torch
from gpytorch.kernels import LinearKernel, MaternKernel, PeriodicKernel, RBFKernel, RQKernel, ScaleKernel
from sklearn.gaussian_process import kernels as sklearn_kernels

from candid.kernels import RBF, Linear, Matern12, Matern32, Matern52, Periodic, RationalQuadratic, Scale, make_kernel

TOLERANCE = {"rtol": 0.0, "atol": 1e-10}
D = 5


@pytest.fixture
def points():
    generator = torch.Generator().manual_seed(0)
    draw = lambda *shape: torch.randn(*shape, dtype=torch.float64, generator=generator)  # noqa: E731
    return draw(7, D).requires_grad_(), draw(6, D).requires_grad_(), draw(7, 6), draw(7, 7)


def lengthscales(ard: bool) -> torch.Tensor:
    return torch.linspace(0.7, 2.1, D if ard else 1, dtype=torch.float64).reshape(1, -1)


def stationary_pair(name: str, ard: bool):
    """Our kernel and GPyTorch's, with equal hyper-parameters."""
    width = D if ard else None
    theirs = {
        "rbf": lambda: RBFKernel(ard_num_dims=width),
        "matern12": lambda: MaternKernel(nu=0.5, ard_num_dims=width),
        "matern32": lambda: MaternKernel(nu=1.5, ard_num_dims=width),
        "matern52": lambda: MaternKernel(nu=2.5, ard_num_dims=width),
        "rq": lambda: RQKernel(ard_num_dims=width),
    }[name]()
    kinds = {"rbf": RBF, "matern12": Matern12, "matern32": Matern32, "matern52": Matern52, "rq": RationalQuadratic}
    ours = Scale(kinds[name](), 1.7).build(D, ard).double()
    ours.amplitude.set(1.7)
    ours.base.lengthscale.set(lengthscales(ard))
    scaled = ScaleKernel(theirs).double()
    scaled.outputscale = torch.tensor(1.7, dtype=torch.float64)
    scaled.base_kernel.lengthscale = lengthscales(ard)
    if name == "rq":
        ours.base.alpha.set(0.8)
        scaled.base_kernel.alpha = torch.tensor(0.8, dtype=torch.float64)
    return ours, scaled


def gradients(matrix, weight, inputs, parameters):
    """Gradients of Σ weight∘matrix; those of hyper-parameters with respect to their logarithms."""
    found = torch.autograd.grad((weight * matrix).sum(), [*inputs, *(raw for raw, _ in parameters)])
    return found[: len(inputs)], [g * scale for g, (_, scale) in zip(found[len(inputs) :], parameters, strict=True)]


def log_scale(raw: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """d raw / d log(value) for GPyTorch's softplus: value / sigmoid(raw)."""
    return (value / torch.sigmoid(raw)).detach()


@pytest.mark.parametrize("ard", [True, False])
@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize("name", ["rbf", "matern12", "matern32", "matern52", "rq"])
def test_stationary_kernels_against_gpytorch(name, symmetric, ard, points):
    x1, x2, weight, square = points
    ours, theirs = stationary_pair(name, ard)
    if symmetric:
        x2, weight, inputs = None, square, [x1]
    else:
        inputs = [x1, x2]
    actual = ours(x1, x2)
    # GPyTorch sets the distances on the diagonal of k(x, x) to zero only if nothing needs a gradient. Otherwise they
    # are of the order 1e-8, which exp(−d) shows, so there the diagonal is compared by value alone.
    if symmetric and name == "matern12":
        weight = weight.clone().fill_diagonal_(0.0)
    with torch.no_grad():
        torch.testing.assert_close(actual.detach(), theirs(x1, x2).to_dense(), **TOLERANCE)

    expected = theirs(x1, x2).to_dense()
    base = theirs.base_kernel
    our_parameters = [(ours.amplitude.raw, 1.0), (ours.base.lengthscale.raw, 1.0)]
    their_parameters = [
        (theirs.raw_outputscale, log_scale(theirs.raw_outputscale, theirs.outputscale)),
        (base.raw_lengthscale, log_scale(base.raw_lengthscale, base.lengthscale)),
    ]
    if name == "rq":
        our_parameters.append((ours.base.alpha.raw, 1.0))
        their_parameters.append((base.raw_alpha, log_scale(base.raw_alpha, base.alpha)))
    found_inputs, found = gradients(actual, weight, inputs, our_parameters)
    wanted_inputs, wanted = gradients(expected, weight, inputs, their_parameters)
    for a, b in zip([*found_inputs, *found], [*wanted_inputs, *wanted], strict=True):
        torch.testing.assert_close(a, b.reshape(a.shape), **TOLERANCE)


def test_periodic_against_gpytorch(points):
    # GPyTorch divides by ℓ where MacKay's form divides by ℓ².
    x1, x2, weight, _ = points
    period = torch.linspace(1.5, 3.0, D, dtype=torch.float64).reshape(1, D)
    ours = Periodic(period=[1.0] * D).build(D).double()
    ours.period.set(period)
    ours.lengthscale.set(lengthscales(True))
    theirs = PeriodicKernel(ard_num_dims=D).double()
    theirs.period_length, theirs.lengthscale = period, lengthscales(True) ** 2
    actual, expected = ours(x1, x2), theirs(x1, x2).to_dense()
    torch.testing.assert_close(actual, expected, **TOLERANCE)
    found_inputs, found = gradients(actual, weight, [x1, x2], [(ours.period.raw, 1.0), (ours.lengthscale.raw, 1.0)])
    wanted_inputs, wanted = gradients(
        expected,
        weight,
        [x1, x2],
        [
            (theirs.raw_period_length, log_scale(theirs.raw_period_length, theirs.period_length)),
            (theirs.raw_lengthscale, 2.0 * log_scale(theirs.raw_lengthscale, theirs.lengthscale)),
        ],
    )
    for a, b in zip([*found_inputs, *found], [*wanted_inputs, *wanted], strict=True):
        torch.testing.assert_close(a, b.reshape(a.shape), **TOLERANCE)


@pytest.mark.parametrize("ard", [True, False])
def test_linear_against_gpytorch(ard, points):
    x1, x2, weight, _ = points
    variance = lengthscales(ard)
    ours = Linear(variance=[1.0] * D if ard else 1.0).build(D).double()
    ours.variance.set(variance)
    theirs = LinearKernel(ard_num_dims=D if ard else None).double()
    theirs.variance = variance
    actual, expected = ours(x1, x2), theirs(x1, x2).to_dense()
    torch.testing.assert_close(actual, expected, **TOLERANCE)
    torch.testing.assert_close(ours(x1), theirs(x1, x1).to_dense(), **TOLERANCE)
    found_inputs, found = gradients(actual, weight, [x1, x2], [(ours.variance.raw, 1.0)])
    scale = log_scale(theirs.raw_variance, theirs.variance)
    wanted_inputs, wanted = gradients(expected, weight, [x1, x2], [(theirs.raw_variance, scale)])
    for a, b in zip([*found_inputs, *found], [*wanted_inputs, *wanted], strict=True):
        torch.testing.assert_close(a, b.reshape(a.shape), **TOLERANCE)


def test_sums_and_products_against_gpytorch(points):
    x1, x2, _, _ = points
    ours = make_kernel("matern52 + rbf * linear", D).double()
    matern, rbf, linear = MaternKernel(nu=2.5), RBFKernel(), LinearKernel()
    matern.lengthscale = rbf.lengthscale = D**0.5
    linear.variance = 1.0 / D
    theirs = (matern + rbf * linear).double()
    # The lengthscales were rounded to float32 on both sides before becoming double.
    torch.testing.assert_close(ours(x1, x2), theirs(x1, x2).to_dense(), rtol=0, atol=1e-6)
    torch.testing.assert_close(ours.diagonal(x1), theirs(x1, diag=True), rtol=0, atol=1e-6)


def test_batches_against_gpytorch():
    generator = torch.Generator().manual_seed(0)
    z = torch.randn(3, 7, D, dtype=torch.float64, generator=generator)
    x = torch.randn(6, D, dtype=torch.float64, generator=generator)
    lengthscale = torch.rand(3, 1, D, dtype=torch.float64, generator=generator) + 0.5
    ours = Matern52().build(D, batch_shape=(3,)).double()
    ours.lengthscale.set(lengthscale)
    theirs = MaternKernel(nu=2.5, ard_num_dims=D, batch_shape=torch.Size([3])).double()
    theirs.lengthscale = lengthscale
    with gpytorch.settings.lazily_evaluate_kernels(False):
        expected = theirs(z, x.expand(3, 6, D)).to_dense()
    torch.testing.assert_close(ours(z, x), expected, **TOLERANCE)


@pytest.mark.parametrize("alpha", [0.3, 5.0])
def test_rational_quadratic_against_scikit_learn(alpha, points):
    x1, x2, _, square = points
    x1, x2 = x1.detach().numpy(), x2.detach().numpy()
    ours = RationalQuadratic().build(D, ard=False).double()
    ours.lengthscale.set(1.3)
    ours.alpha.set(alpha)
    theirs = sklearn_kernels.RationalQuadratic(length_scale=1.3, alpha=alpha)
    np.testing.assert_allclose(ours(torch.tensor(x1), torch.tensor(x2)).detach(), theirs(x1, x2), rtol=0, atol=1e-10)

    matrix = ours(torch.tensor(x1))
    expected, log_gradients = theirs(x1, eval_gradient=True)
    np.testing.assert_allclose(matrix.detach(), expected, rtol=0, atol=1e-10)
    found = torch.autograd.grad((square * matrix).sum(), [ours.alpha.raw, ours.lengthscale.raw])
    wanted = np.einsum("ij,ijp->p", square.numpy(), log_gradients)
    names = [parameter.name for parameter in theirs.hyperparameters]
    assert names == ["alpha", "length_scale"]
    np.testing.assert_allclose([g.item() for g in found], wanted, rtol=0, atol=1e-10)


def test_periodic_against_scikit_learn():
    rng = np.random.default_rng(0)
    x1, x2, square = rng.normal(size=(8, 1)), rng.normal(size=(6, 1)), rng.normal(size=(8, 8))
    ours = Periodic().build(1).double()
    ours.period.set(1.7)
    ours.lengthscale.set(0.9)
    theirs = sklearn_kernels.ExpSineSquared(length_scale=0.9, periodicity=1.7)
    np.testing.assert_allclose(ours(torch.tensor(x1), torch.tensor(x2)).detach(), theirs(x1, x2), rtol=0, atol=1e-10)

    matrix = ours(torch.tensor(x1))
    expected, log_gradients = theirs(x1, eval_gradient=True)
    np.testing.assert_allclose(matrix.detach(), expected, rtol=0, atol=1e-10)
    found = torch.autograd.grad((torch.tensor(square) * matrix).sum(), [ours.lengthscale.raw, ours.period.raw])
    assert [parameter.name for parameter in theirs.hyperparameters] == ["length_scale", "periodicity"]
    np.testing.assert_allclose(
        [g.item() for g in found], np.einsum("ij,ijp->p", square, log_gradients), rtol=0, atol=1e-10
    )
