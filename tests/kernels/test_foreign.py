"""Kernels of GPyTorch in our interface, against GPyTorch's own evaluation and against our kernels."""

from __future__ import annotations

import builtins
import copy
import json
import sys

import gpytorch
import numpy as np
import pytest
import torch
from gpytorch.constraints import GreaterThan, Interval
from gpytorch.kernels import (
    LinearKernel,
    MaternKernel,
    MultitaskKernel,
    PeriodicKernel,
    RBFKernel,
    RBFKernelGrad,
    ScaleKernel,
    SpectralMixtureKernel,
)

from candid import ExactGPRegressor, SparseGPRegressor
from candid.engines import Problem
from candid.families import Inducing, make_mean
from candid.kernels import (
    RBF,
    GPyTorchKernel,
    Matern52,
    Scale,
    Sum,
    from_gpytorch,
    in_units,
    kernel_from_spec,
    make_kernel,
)
from candid.likelihoods import Gaussian
from candid.weights import WEIGHTS
from small_models import random_rows

D = 3
TOLERANCE = {"rtol": 0.0, "atol": 1e-10}
KERNELS = {
    "rbf": lambda: RBFKernel(ard_num_dims=D),
    "scaled matern": lambda: ScaleKernel(MaternKernel(nu=2.5, ard_num_dims=D)),
    "sum of products": lambda: PeriodicKernel() * LinearKernel() + ScaleKernel(RBFKernel()) * RBFKernel(),
    "some features": lambda: ScaleKernel(RBFKernel(active_dims=[2, 0], ard_num_dims=2)) + LinearKernel(active_dims=[1]),
    "spectral mixture": lambda: SpectralMixtureKernel(num_mixtures=2, ard_num_dims=D),
}


def randomise(kernel, seed: int = 0):
    """Every parameter at a random place, in float64."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in kernel.double().parameters():
            parameter.add_(0.5 * torch.randn(parameter.shape, dtype=torch.float64, generator=generator))
    return kernel


@pytest.fixture(params=KERNELS.values(), ids=KERNELS)
def theirs(request):
    return randomise(request.param())


def test_values_and_gradients(theirs, draw):
    """Of inputs and parameters; theirs through softplus, ours through the same code, but the amplitude is ours."""
    ours = from_gpytorch(theirs).build(D)
    x1, x2, weight = draw(6, D).requires_grad_(), draw(5, D).requires_grad_(), draw(6, 5)
    found, expected = ours(x1, x2), theirs(x1, x2).to_dense()
    torch.testing.assert_close(found, expected, **TOLERANCE)
    torch.testing.assert_close(ours(x1), theirs(x1).to_dense(), **TOLERANCE)
    assert torch.equal(ours(x1), ours(x1).mT)
    torch.testing.assert_close(ours.diagonal(x1), theirs(x1, diag=True), **TOLERANCE)
    for ours_, theirs_ in zip(
        *(torch.autograd.grad((weight * k).sum(), (x1, x2), retain_graph=True) for k in (found, expected)), strict=True
    ):
        torch.testing.assert_close(ours_, theirs_, **TOLERANCE)
    own = dict(ours.named_parameters())
    for name, raw in theirs.named_parameters():
        gradient = torch.autograd.grad((weight * expected).sum(), raw, retain_graph=True)[0]
        assert gradient.abs().max() > 1e-6
        if isinstance(theirs, ScaleKernel):
            key = "amplitude.raw" if name == "raw_outputscale" else name.replace("base_kernel", "base.copies.0")
        else:
            key = f"copies.0.{name}"
        mine = torch.autograd.grad((weight * found).sum(), own[key], retain_graph=True)[0]
        if key == "amplitude.raw":
            # d log(amplitude) against d softplus(raw)
            gradient = gradient * theirs.outputscale / torch.sigmoid(raw)
        torch.testing.assert_close(mine, gradient, **TOLERANCE)


def test_amplitude_is_split_off(draw):
    theirs = randomise(ScaleKernel(MaternKernel(nu=1.5)))
    ours = from_gpytorch(theirs).build(D, batch_shape=(2,))
    amplitude, unit = ours.split()
    torch.testing.assert_close(amplitude, theirs.outputscale.expand(2))
    x = draw(4, D)
    torch.testing.assert_close(unit(x), theirs.base_kernel(x).to_dense().expand(2, 4, 4), **TOLERANCE)
    assert from_gpytorch(RBFKernel()).build(D).split()[0] is None


def test_constraints_of_the_outputscale_are_domains():
    for constraint, domain in ((GreaterThan(0.1), (0.1, float("inf"))), (Interval(0.2, 3.0), (0.2, 3.0))):
        ours = from_gpytorch(ScaleKernel(RBFKernel(), outputscale_constraint=constraint))
        assert (ours.amplitude.lower, ours.amplitude.upper) == pytest.approx(domain)
    theirs = ScaleKernel(RBFKernel())
    theirs.raw_outputscale.requires_grad_(False)
    theirs.base_kernel.raw_lengthscale.requires_grad_(False)
    ours = from_gpytorch(theirs).build(D, batch_shape=(2,))
    assert not any(parameter.requires_grad for parameter in ours.parameters())


def test_a_scale_that_selects_features_stays_whole(draw):
    theirs = randomise(ScaleKernel(RBFKernel(), active_dims=[0, 2]))
    ours = from_gpytorch(theirs).build(D)
    assert isinstance(ours, GPyTorchKernel)
    x = draw(4, D)
    torch.testing.assert_close(ours(x), theirs(x).to_dense(), **TOLERANCE)


@pytest.mark.parametrize(
    ("batch", "leading"),
    [((1,), "shared rows"), ((2,), "shared rows"), ((2,), "more dimensions"), ((3, 2), "rows of each entry")],
)
def test_batches(theirs, batch, leading, draw):
    """Each entry of a batch has its own parameters; inputs broadcast as they do for our kernels."""
    ours = from_gpytorch(theirs).build(D, batch_shape=batch)
    parts = [part for part in ours.modules() if isinstance(part, GPyTorchKernel)]
    for position in range(len(parts[0].copies)):
        for part in parts:
            randomise(part.copies[position], seed=position)
    native = Matern52().build(D, batch_shape=batch).double()
    x1 = {"shared rows": draw(4, D), "rows of each entry": draw(*batch, 4, D), "more dimensions": draw(5, *batch, 4, D)}
    x1, x2 = x1[leading], draw(3, D)
    found = ours(x1, x2)
    assert found.shape == native(x1, x2).shape
    assert ours(x1).shape == native(x1).shape
    assert ours.diagonal(x1).shape == native.diagonal(x1).shape
    amplitude = ours.amplitude.value.flatten() if isinstance(ours, Scale) else torch.ones(len(parts[0].copies))
    wide1 = x1.expand(*found.shape[:-2], 4, D).reshape(-1, len(parts[0].copies), 4, D)
    flat = found.reshape(-1, len(parts[0].copies), 4, 3)
    diagonal = ours.diagonal(x1).reshape(-1, len(parts[0].copies), 4)
    for position, kernel in enumerate(parts[0].copies):
        for extra in range(len(flat)):
            rows = wide1[extra, position]
            expected = amplitude[position] * kernel(rows, x2).to_dense()
            torch.testing.assert_close(flat[extra, position], expected, **TOLERANCE)
            expected = amplitude[position] * kernel(rows, diag=True)
            torch.testing.assert_close(diagonal[extra, position], expected, **TOLERANCE)


def test_one_kernel_for_several_groups_of_rows(draw):
    """A batch of one broadcasts over the leading dimensions of the inputs."""
    theirs = randomise(RBFKernel())
    ours, x = from_gpytorch(theirs).build(D, batch_shape=(1,)), draw(5, 4, D)
    torch.testing.assert_close(ours(x), theirs(x).to_dense(), **TOLERANCE)
    # Copies that own entries out of order.
    ours = from_gpytorch(theirs).build(D, batch_shape=(2, 1))
    randomise(ours.copies[1], seed=3)
    found = ours(x)
    assert found.shape == (2, 5, 4, 4)
    for position in range(2):
        torch.testing.assert_close(found[position], ours.copies[position](x).to_dense(), **TOLERANCE)


def test_the_given_kernel_stays_as_it_is(theirs):
    before = copy.deepcopy(theirs.state_dict())
    ours = from_gpytorch(theirs).build(D, batch_shape=(2,))
    for parameter in ours.parameters():
        parameter.data.add_(1.0)
    assert all(torch.equal(tensor, before[name]) for name, tensor in theirs.state_dict().items())


def test_in_units(theirs, draw):
    built = from_gpytorch(theirs).build(D, batch_shape=(2,))
    x_scale, y_scale = torch.tensor([0.5, 3.0, 20.0]).double(), torch.tensor([4.0, 0.1]).double()
    x = draw(6, D) * x_scale
    expected = y_scale.square()[:, None, None] * built(x / x_scale)
    once = in_units(built, x_scale, y_scale)
    torch.testing.assert_close(once(x), expected, rtol=1e-9, atol=1e-12)
    ones = torch.ones(2).double()
    twice = in_units(in_units(built, x_scale.sqrt(), ones), x_scale.sqrt(), ones)
    torch.testing.assert_close(twice(x), built(x / x_scale), rtol=1e-9, atol=1e-12)
    assert "x_scale=[0.5, 3, 20]" in repr(once)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("batch", [(), (2,)])
def test_round_trip_through_json_and_state_dict(theirs, batch, dtype, draw):
    """The description holds no code; with it, everything comes back."""
    fitted = (from_gpytorch(theirs) + 2.0 * RBF()).build(D, batch_shape=batch).to(dtype)
    fitted = in_units(fitted, torch.tensor([1.0, 2.0, 3.0]).to(dtype), torch.ones(batch).to(dtype) * 2.0)
    spec = json.loads(json.dumps(fitted.to_spec(), allow_nan=False))
    with pytest.raises(ValueError, match="kernel=…"):
        kernel_from_spec(spec)
    pristine = randomise(copy.deepcopy(theirs), seed=9)
    again = kernel_from_spec(spec, from_gpytorch(pristine) + RBF())
    again.load_state_dict(fitted.state_dict())
    x = draw(5, D).to(dtype)
    assert torch.equal(again(x), fitted(x))
    assert repr(again) == repr(fitted)
    assert again.to_spec() == fitted.to_spec()
    assert again(x).dtype == dtype


def test_code_may_be_given_as_the_gpytorch_kernel(theirs, draw):
    fitted, x = make_kernel(theirs, D, batch_shape=(2,)), draw(4, D)
    again = kernel_from_spec(fitted.to_spec(), theirs)
    again.load_state_dict(fitted.state_dict(), assign=True)
    assert torch.equal(again(x), fitted(x))


def test_equal_parts_are_told_apart(draw):
    """The same object twice in a sum is two parts of the description."""
    part, x = from_gpytorch(randomise(RBFKernel())), draw(4, D)
    kernel = Sum(part, 2.0 * part).build(D)
    again = kernel_from_spec(kernel.to_spec(), Sum(part, 2.0 * part))
    again.load_state_dict(kernel.state_dict())
    torch.testing.assert_close(again(x), 3.0 * part(x))


@pytest.mark.parametrize("other", [MaternKernel(nu=1.5), RBFKernel(), MaternKernel(nu=2.5) + RBFKernel()])
def test_other_code_is_refused(other):
    spec = from_gpytorch(MaternKernel(nu=2.5)).build(D).to_spec()
    with pytest.raises(ValueError, match=r"MaternKernel.*but the one that was given"):
        kernel_from_spec(spec, other)
    with pytest.raises(ValueError, match="needs its code"):
        kernel_from_spec({name: value for name, value in spec.items() if name != "batch"}, MaternKernel(nu=2.5))


def test_repr_shows_structure_and_values():
    kernel = RBFKernel() + ScaleKernel(LinearKernel())
    kernel.kernels[0].lengthscale = 0.5
    text = repr(from_gpytorch(kernel).build(D, batch_shape=(2,)))
    assert text.startswith("GPyTorchKernel(AdditiveKernel(RBFKernel, ScaleKernel(LinearKernel)), ")
    assert "kernels.0.lengthscale=[0.5, 0.5]" in text


@pytest.mark.parametrize(
    ("kernel", "message"),
    [
        (RBFKernel(ard_num_dims=5), "does not take 3 features.*ard_num_dims=3"),
        (RBFKernel(active_dims=[7]), "does not take 3 features"),
        (RBFKernelGrad(), "one output"),
        (MultitaskKernel(RBFKernel(), num_tasks=2), "one output"),
    ],
)
def test_kernels_that_do_not_fit_the_table(kernel, message):
    with pytest.raises(ValueError, match=message):
        from_gpytorch(kernel).build(D)


def test_what_is_not_taken():
    with pytest.raises(ValueError, match="batch_shape"):
        from_gpytorch(RBFKernel(batch_shape=torch.Size([2])))
    with pytest.raises(TypeError, match="got Matern52"):
        from_gpytorch(Matern52())
    with pytest.raises(TypeError, match=r"gpytorch\.kernels, got int"):
        make_kernel(3, D)
    with pytest.warns(UserWarning, match="priors"):
        from_gpytorch(RBFKernel(lengthscale_prior=gpytorch.priors.GammaPrior(3.0, 6.0)))
    with pytest.raises(ValueError, match="start from the GPyTorch kernel"):
        from_gpytorch(RBFKernel()).build(D, batch_shape=(2,)).build(D, batch_shape=(3,))


def test_without_gpytorch(monkeypatch):
    real = builtins.__import__

    def missing(name, *rest, **options):
        if name.startswith("gpytorch"):
            raise ImportError(name)
        return real(name, *rest, **options)

    monkeypatch.setattr(builtins, "__import__", missing)
    monkeypatch.delitem(sys.modules, "gpytorch")
    with pytest.raises(ImportError, match=r"pip install candid-gp\[bo\]"):
        from_gpytorch(object())
    with pytest.raises(TypeError, match="got object"):
        make_kernel(object(), D)


def native_pair():
    """Ours and theirs at equal hyper-parameters."""
    theirs = ScaleKernel(MaternKernel(nu=2.5, ard_num_dims=2))
    theirs.outputscale = 1.3
    theirs.base_kernel.lengthscale = torch.tensor([0.7, 1.9])
    return Scale(Matern52(lengthscale=[0.7, 1.9]), 1.3), from_gpytorch(theirs)


@pytest.mark.parametrize("objective", ["elbo", "predictive", "sgpr"])
def test_losses_equal_those_of_our_kernel(objective, default_double):
    """And so do the gradients of what both have."""
    rows = random_rows(30, n_outputs=2, seed=1)
    losses, gradients = [], []
    for kernel in native_pair():
        family = Inducing(
            make_kernel(kernel, 2, batch_shape=(2,)),
            make_mean("constant", 2, 2),
            rows.x[:6].expand(2, 6, 2),
            WEIGHTS["full"](6, (2,)),
            jitter=0.0,
        )
        problem = Problem(family, Gaussian(0.1, 2), objective)
        loss = problem.loss(rows.whole())
        loss.backward()
        losses.append(loss.detach())
        gradients.append([family.points.grad, family.kernel.amplitude.raw.grad, problem.likelihood.noise.raw.grad])
    torch.testing.assert_close(losses[0], losses[1], rtol=1e-10, atol=1e-10)
    for ours, theirs in zip(*gradients, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-8, atol=1e-8)


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 2)) * [1.0, 30.0]
    return x, 5.0 * np.sin(1.5 * x[:, 0]) + 0.05 * x[:, 1] + 0.3 * rng.normal(size=60)


def test_sparse_fits_are_those_of_our_kernel(table):
    """With fixed lengthscales both train the same parameters, and every epoch has the same loss."""
    ours, theirs = native_pair()
    theirs.base.copies[0].raw_lengthscale.requires_grad_(False)
    options = {"n_inducing": 15, "init": "kmeans", "max_epochs": 12, "lr": 0.05, "q_lr": 0.05, "random_state": 0}
    native = SparseGPRegressor(kernel=ours, fixed=("lengthscale",), **options).fit(*table)
    foreign = SparseGPRegressor(kernel=theirs, **options).fit(*table)
    found, expected = ([record["loss"] for record in fit.history_] for fit in (foreign, native))
    np.testing.assert_allclose(found, expected, rtol=1e-4)
    assert found[-1] < found[0] - 0.3
    x = torch.tensor(table[0][:7])
    torch.testing.assert_close(foreign.kernel_(x), native.kernel_(x), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(foreign.predict(table[0]), native.predict(table[0]), rtol=1e-3, atol=1e-3)


def test_exact_fits_find_the_same_optimum(table):
    """Whatever the parameters are made of: also kernel_ in the units of the table, and predictions."""
    native, foreign = (
        ExactGPRegressor(kernel=kernel, max_epochs=40, random_state=0).fit(*table) for kernel in native_pair()
    )
    assert native.history_[-1]["loss"] == pytest.approx(foreign.history_[-1]["loss"], abs=1e-4)
    x = torch.tensor(table[0][:7])
    torch.testing.assert_close(foreign.kernel_(x), native.kernel_(x), rtol=0.02, atol=0.02)
    for ours, theirs in zip(*(fit.predict(table[0], return_std=True) for fit in (native, foreign)), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=0.01, atol=0.01)
