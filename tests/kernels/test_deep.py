"""Deep kernels: base(h(x), h(x')), with each network run no more often than needed."""

from __future__ import annotations

import copy
import json

import pytest
import torch
from gpytorch.kernels import RBFKernel
from torch import nn

from candid.kernels import (
    RBF,
    Deep,
    Linear,
    Matern52,
    Network,
    Periodic,
    Scale,
    from_gpytorch,
    in_units,
    kernel_from_spec,
    make_kernel,
    networks_in,
    unfold,
)
from candid.parameters import hyperparameters

D = 3
NORMALISED = {"normalise": True, "scaled_output": True}


def randomise(kernel, draw):
    """Hyper-parameters and weights at random places, in float64."""
    kernel = kernel.double()
    with torch.no_grad():
        for parameter in kernel.parameters():
            parameter.add_(0.3 * draw(1, *parameter.shape)[0])
    return kernel


def passes(kernel):
    """How many rows pass through a network, each time that one runs from now on."""
    counts = []
    for network in networks_in(kernel):
        compute = network._compute
        network._compute = lambda x, compute=compute: counts.append(len(x)) or compute(x)
    return counts


BASES = {
    "rbf": lambda: RBF(),
    "scaled": lambda: 2.0 * Matern52(),
    "linear": lambda: Linear(),
    "combination": lambda: 2.0 * RBF() + Linear() * Matern52(),
}


@pytest.mark.parametrize("batch", [(), (2,)])
@pytest.mark.parametrize("base", BASES.values(), ids=BASES)
def test_values_are_those_of_the_base_at_the_features(base, batch, draw):
    kernel = randomise(Deep((4, 5), base()).build(D, batch_shape=batch), draw)
    w1, b1, w2, b2 = kernel.network.parameters()

    def features(x):
        return torch.relu(x @ w1.T + b1) @ w2.T + b2

    x1, x2 = draw(6, D), draw(4, D)
    torch.testing.assert_close(kernel(x1), kernel.base(features(x1)))
    torch.testing.assert_close(kernel(x1, x2), kernel.base(features(x1), features(x2)))
    torch.testing.assert_close(kernel.diagonal(x1), kernel.base.diagonal(features(x1)))
    torch.testing.assert_close(kernel.diagonal(x1), kernel(x1).diagonal(dim1=-2, dim2=-1))
    points = draw(*batch, 4, D)
    torch.testing.assert_close(kernel(points, x1), kernel.base(features(points), features(x1)))
    assert kernel(points, x1).shape == (*batch, 4, 6)


@pytest.mark.parametrize("base", BASES.values(), ids=BASES)
def test_an_identity_in_front_changes_nothing(base, draw):
    plain = randomise(base().build(D, batch_shape=(2,)), draw)
    deep = Deep(nn.Identity(), plain).build(D, batch_shape=(2,)).double()
    x1, x2 = draw(6, D), draw(4, D)
    assert torch.equal(deep(x1, x2), plain(x1, x2))
    assert torch.equal(deep(x1), plain(x1))
    assert torch.equal(deep.diagonal(x1), plain.diagonal(x1))


@pytest.mark.parametrize("options", [{}, NORMALISED])
def test_gradients(options, draw):
    """Of inputs, weights and lengthscales."""
    kernel = randomise(Deep(Network((4, 2), **options), 2.0 * RBF()).build(D), draw)
    names = [name for name, _ in kernel.named_parameters()]

    def covariance(x1, x2, *values):
        return torch.func.functional_call(kernel, dict(zip(names, values, strict=True)), (x1, x2))

    inputs = [draw(3, D), draw(2, D), *(p.detach().clone() for p in kernel.parameters())]
    assert torch.autograd.gradcheck(covariance, [tensor.requires_grad_() for tensor in inputs])


def test_building(draw):
    """The base is built for the features, with a hyper-parameter for each output; the network is one for all."""
    kernel = Deep("ppgpr", Scale(Matern52()), seed=4)
    built = make_kernel(kernel, D, batch_shape=(2,))
    assert built.base.base.lengthscale.value.shape == (2, 1, 64)
    assert built.base.base.lengthscale.value.unique().item() == pytest.approx(8.0)
    assert built.base.amplitude.value.shape == (2,)
    assert built.network.layers[0].weight.shape == (256, D)
    assert kernel.network.n_features is None
    assert make_kernel(kernel, D, ard=False).base.base.lengthscale.value.shape == (1, 1)
    again = built.build(D, batch_shape=(2,))
    assert torch.equal(again(torch.ones(2, D), torch.zeros(1, D)), built(torch.ones(2, D), torch.zeros(1, D)))
    assert again.network is not built.network
    with pytest.raises(ValueError, match="call build"):
        kernel(torch.zeros(2, D))


def test_split(draw):
    """The amplitude of the base is the outermost one; the unit kernel shares what is learned."""
    kernel = randomise(Deep((4, 2), Scale(RBF(), 3.0)).build(D, batch_shape=(2,)), draw)
    amplitude, unit = kernel.split()
    x = draw(5, D)
    torch.testing.assert_close(amplitude[:, None, None] * unit(x), kernel(x))
    assert isinstance(unit, Deep)
    assert unit.network is kernel.network
    assert kernel.unit.base is unit.base is kernel.base.base
    plain = Deep((4, 2), RBF()).build(D)
    assert plain.split() == (None, plain)


def test_units(draw):
    kernel = randomise(Deep((4, 2), 2.0 * RBF() + Linear()).build(D, batch_shape=(2,)), draw)
    x1, x2, scale, y_scale, shift = draw(5, D), draw(4, D), draw(D).exp(), draw(2).exp(), draw(D)
    square = y_scale.square()[:, None, None]
    torch.testing.assert_close(in_units(kernel, scale, y_scale)(x1, x2), square * kernel(x1 / scale, x2 / scale))
    shifted = kernel.in_units(scale, y_scale, shift)
    torch.testing.assert_close(shifted(x1, x2), square * kernel((x1 - shift) / scale, (x2 - shift) / scale))
    again = kernel_from_spec(json.loads(json.dumps(shifted.to_spec())))
    again.load_state_dict(shifted.state_dict())
    assert torch.equal(again(x1), shifted(x1))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("build", [True, False])
def test_round_trip_through_json_and_state_dict(dtype, build, draw):
    kernel = Deep(Network((4, 2), **NORMALISED, seed=7), 2.0 * Matern52() + Linear())
    if build:
        kernel = kernel.build(D, batch_shape=(2,))
    kernel = kernel.to(dtype)
    again = kernel_from_spec(json.loads(json.dumps(kernel.to_spec(), allow_nan=False)))
    again.load_state_dict(kernel.state_dict())
    assert again.to_spec() == kernel.to_spec()
    assert repr(again) == repr(kernel)
    mine, theirs = (k if build else k.build(D).to(dtype) for k in (kernel, again))
    x = draw(5, D).to(dtype)
    assert torch.equal(mine(x), theirs(x))


def test_code_of_others(draw):
    """Network and base kernel, each from what is given at load."""
    module, theirs = nn.Linear(D, 2), RBFKernel()
    kernel = randomise(Deep(module, from_gpytorch(theirs)).build(D), draw)
    spec, x = json.loads(json.dumps(kernel.to_spec())), draw(4, D)
    for code in ([RBFKernel(), nn.Linear(D, 2)], Deep(nn.Linear(D, 2), from_gpytorch(RBFKernel()))):
        again = kernel_from_spec(spec, code)
        again.load_state_dict(kernel.state_dict())
        assert torch.equal(again(x), kernel(x))
    with pytest.raises(ValueError, match="give the module that it was fitted with, as features="):
        kernel_from_spec(spec, RBFKernel())
    with pytest.raises(ValueError, match="give the kernel that it was fitted with, as kernel="):
        kernel_from_spec(spec, nn.Linear(D, 2))
    only_network = Deep(module, RBF()).build(D)
    assert kernel_from_spec(only_network.to_spec(), module).to_spec() == only_network.to_spec()


def test_faulty_descriptions():
    spec = Deep((2,), RBF()).build(D).to_spec()
    for changes in ({"network": None}, {"parts": []}):
        with pytest.raises(ValueError, match="its network and one kernel of the features"):
            kernel_from_spec(spec | changes)


def test_copies_share_nothing(draw):
    kernel = Deep((4, 2), Scale(RBF())).build(D)
    x = draw(4, D)
    frozen = copy.deepcopy(kernel).double()
    before = frozen(x)
    torch.testing.assert_close(before.float(), kernel(x.float()), rtol=1e-5, atol=1e-5)
    with torch.no_grad():
        for parameter in kernel.parameters():
            parameter.add_(1.0)
    assert torch.equal(frozen(x), before)


def test_as_a_kernel_it_is_one_function(draw):
    """Whatever rows it sees together, and without a trace."""
    kernel = randomise(Deep(Network((4, 2), **NORMALISED), RBF()).build(D), draw)
    before, x = copy.deepcopy(kernel.state_dict()), draw(6, D)
    torch.testing.assert_close(kernel(x)[1:3, 1:3], kernel(x[1:3]), rtol=1e-12, atol=1e-12)
    assert all(torch.equal(tensor, before[name]) for name, tensor in kernel.state_dict().items())


def test_a_stationary_base_needs_no_features_for_its_diagonal(draw):
    for base, needed in ((Scale(RBF()) * Periodic(), []), (Linear(), [5])):
        kernel = Deep((4, 2), base).build(D).double()
        counts = passes(kernel)
        kernel.diagonal(draw(5, D))
        assert counts == needed


# Unfolded


SHARED = Network((3, 2))
KERNELS = {
    "no network": lambda: Scale(RBF()) + Linear(),
    "deep": lambda: Deep((4, 2), Scale(RBF()) + Linear()),
    "deep in deep": lambda: Deep((4,), Deep((5, 2), RBF())),
    "scaled": lambda: Scale(Deep((4, 2), Scale(RBF()))),
    "beside inputs": lambda: Scale(Linear()) + Scale(Deep((4, 2), RBF())) + Matern52() * Deep((3,), RBF()),
    "a network for two": lambda: Deep(SHARED, RBF()) + Deep(SHARED, Linear()),
    "all": lambda: Deep((4,), RBF() + Scale(Deep((5, 2), Linear()) * Matern52())),
}


def of_width(kernel, width, batch):
    """The kernel with each of its parts built for the features that this part sees."""
    if isinstance(kernel, Deep):
        network = kernel.network.build(width)
        return Deep(network, of_width(kernel.base, network.width, batch))
    if isinstance(kernel, Scale):
        scaled = Scale(RBF()).build(width, batch_shape=batch)
        scaled.base = of_width(kernel.base, width, batch)
        return scaled
    parts = kernel._own_parts()
    return (
        type(kernel)(*(of_width(part, width, batch) for part in parts)) if parts else kernel.build(width, True, batch)
    )


@pytest.mark.parametrize("make", KERNELS.values(), ids=KERNELS)
def test_unfolded_kernels_are_the_same(make, draw):
    """In values and in gradients of everything that is learned."""
    kernel = randomise(of_width(make(), D, (2,)), draw)
    x, z, weight = draw(6, D), draw(2, 4, D), draw(2, 4, 6)
    unit, embed = unfold(kernel)
    rows, points = embed(x, z)
    torch.testing.assert_close(unit(points, rows), kernel(z, x))
    torch.testing.assert_close(unit(points), kernel(z))
    torch.testing.assert_close(unit.diagonal(rows), kernel.diagonal(x))
    learned = list(kernel.parameters())
    losses = ((weight * cross).sum() for cross in (unit(points, rows), kernel(z, x)))
    gradients = (torch.autograd.grad(loss, learned) for loss in losses)
    for found, expected in zip(*gradients, strict=True):
        torch.testing.assert_close(found, expected)
    assert {id(p) for p in unit.parameters()} <= {id(p) for p in learned}


def test_a_kernel_without_networks_is_left_alone(draw):
    kernel, x = of_width(KERNELS["no network"](), D, ()), draw(4, D)
    unit, embed = unfold(kernel)
    assert unit is kernel
    assert embed(x)[0] is x


@pytest.mark.parametrize("make", KERNELS.values(), ids=KERNELS)
def test_each_network_runs_once(make, draw):
    kernel = of_width(make(), D, ()).double()
    counts = passes(kernel)
    unit, embed = unfold(kernel)
    rows, points = embed(draw(6, D), draw(4, D))
    unit(points), unit(points, rows), unit.diagonal(rows)
    if make is KERNELS["all"]:
        # A network in front of a combination serves each of its parts.
        assert counts == [10] * 3
    else:
        assert counts == [10] * len(list(networks_in(kernel)))


def test_training_statistics_are_those_of_the_rows(draw):
    """The unfolded kernel sees what batch normalisation makes of the batch, the kernel itself the running averages."""
    kernel = randomise(Deep(Network((4, 2), **NORMALISED), RBF()).build(D), draw)
    x, z = draw(20, D), draw(5, D)
    norm = kernel.network.layers[-1]
    unit, embed = unfold(kernel)
    rows, points = embed(x, z)
    torch.testing.assert_close(rows.mean(0), torch.zeros(2).double(), atol=1e-12, rtol=0)
    assert norm.n_steps == 1
    # After a step in which every row took part, both agree.
    torch.testing.assert_close(kernel(z, x), unit(points, rows))
    with torch.no_grad():
        settled = unfold(kernel)[1](draw(7, D), z)[1]
    torch.testing.assert_close(settled, points)
    assert norm.n_steps == 1


def test_hyperparameters_are_found_by_name():
    names = [name for name, _ in hyperparameters(Deep((2,), Scale(RBF())).build(D))]
    assert names == ["base.amplitude", "base.base.lengthscale"]


def test_only_kernels_can_be_a_base():
    with pytest.raises(TypeError, match="a kernel is a name"):
        Deep((2,), nn.Identity())
