"""Networks: values by hand, descriptions, batch normalisation, modules of others."""

from __future__ import annotations

import copy
import json

import pytest
import torch
from torch import nn

from candid.kernels import RBF, Deep, ForeignNetwork, Network, make_network, network_from_spec, networks_in
from candid.kernels.row_norm import RowNorm

D = 3


def randomise(network, draw):
    """Every tensor at a random place, in float64; variances stay positive."""
    network = network.double()
    for name, tensor in network.state_dict().items():
        if not name.endswith(("n_steps", "x_shift", "x_scale")):
            tensor.copy_(draw(*tensor.shape).abs() + 0.5 if name.endswith("running_var") else draw(*tensor.shape))
    return network


def normalised(x, mean, variance):
    return (x - mean) / (variance + 1e-5).sqrt()


class OwnNetwork(nn.Module):
    """What a user might write."""

    def __init__(self, slope: float = 0.1, width: int = 4) -> None:
        super().__init__()
        self.slope = slope
        self.first, self.norm, self.last = nn.Linear(D, 5), nn.BatchNorm1d(5), nn.Linear(5, width)

    def forward(self, x):
        return self.last(nn.functional.leaky_relu(self.norm(self.first(x)), self.slope))


def test_layers_by_hand(draw):
    network = randomise(make_network((4, 6, 2), D), draw)
    (w1, b1, w2, b2, w3, b3), x = network.parameters(), draw(7, D)
    expected = torch.relu(torch.relu(x @ w1.T + b1) @ w2.T + b2) @ w3.T + b3
    torch.testing.assert_close(network(x), expected)
    torch.testing.assert_close(network.settled(x)[0], expected)
    assert network.width == 2
    assert network.n_features == D


def test_normalised_layers_by_hand(draw):
    """At the statistics of the rows while the network learns, and at the running averages elsewhere."""
    network = randomise(Network((4, 2), normalise=True, scaled_output=True).build(D), draw)
    (w1, b1, gain, shift, w2, b2), x = network.parameters(), draw(7, D)
    norms = [part for part in network.layers if isinstance(part, RowNorm)]

    def by_hand(first, second):
        hidden = x @ w1.T + b1
        hidden = torch.relu(normalised(hidden, *first(hidden, norms[0])) * gain + shift)
        features = hidden @ w2.T + b2
        return normalised(features, *second(features, norms[1]))

    def running(values, norm):
        return norm.running_mean, norm.running_var

    def of_batch(values, norm):
        return values.mean(0), values.var(0, correction=0)

    settled, expected = network.settled(x)[0], by_hand(running, running)
    torch.testing.assert_close(settled, expected)
    torch.testing.assert_close(network(x), by_hand(of_batch, of_batch))


@pytest.mark.parametrize(
    ("name", "widths", "n_parameters"),
    [
        ("ppgpr", (256, 256, 128, 128, 64), 256 * (D + 1) + 256 * 257 + 128 * 257 + 128 * 129 + 64 * 129),
        (
            "dspp",
            (1000, 1000, 500, 50, 20),
            1000 * (D + 1) + 1000 * 1001 + 500 * 1001 + 50 * 501 + 20 * 51 + 2 * (1000 + 1000 + 500 + 50),
        ),
        ("dc", (256, 256, 128, 128, 64), 256 * (D + 1) + 256 * 257 + 128 * 257 + 128 * 129 + 64 * 129),
    ],
)
def test_presets(name, widths, n_parameters):
    network = make_network(name, D)
    linear = [layer for layer in network.layers if isinstance(layer, nn.Linear)]
    assert tuple(layer.out_features for layer in linear) == network.widths == widths
    assert sum(parameter.numel() for parameter in network.parameters()) == n_parameters
    norms = [layer for layer in network.layers if isinstance(layer, RowNorm)]
    assert [norm.weight is not None for norm in norms] == ([True] * 4 + [False] if name == "dspp" else [])
    assert sum(isinstance(layer, nn.ReLU) for layer in network.layers) == 4
    assert not isinstance(network.layers[-1], nn.ReLU)


def test_features_of_a_standardised_table_are_of_order_one(draw):
    for name in ("ppgpr", "dspp"):
        network = make_network(name, D).double()
        assert 0.3 < network(draw(500, D)).square().mean() < 3.0


def test_initial_weights_depend_on_the_seed_alone(draw):
    torch.manual_seed(1)
    before = torch.get_rng_state()
    first, second, other = (make_network((8, 2), D, seed=seed) for seed in (5, 5, 6))
    assert torch.equal(torch.get_rng_state(), before)
    for mine, same, different in zip(first.parameters(), second.parameters(), other.parameters(), strict=True):
        assert torch.equal(mine, same)
        assert mine.dim() == 1 or not torch.equal(mine, different)
    other.initialise(5)
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), other.parameters(), strict=True))


def test_initialise_forgets_everything(draw):
    options = {"normalise": True, "scaled_output": True}
    network, fresh = (Network((4, 2), **options, seed=3).build(D) for _ in range(2))
    network = randomise(network, draw).float()
    network(draw(5, D).float())
    network.initialise(3)
    assert all(torch.equal(tensor, fresh.state_dict()[name]) for name, tensor in network.state_dict().items())


@pytest.mark.parametrize("options", [{}, {"normalise": True}, {"normalise": True, "scaled_output": True}])
def test_gradients(options, draw):
    """Of rows, points and parameters, through the statistics of the rows."""
    network = randomise(Network((4, 2), **options).build(D), draw)
    names = [name for name, _ in network.named_parameters()]

    def features(x, z, *values):
        state = {f"network.{name}": value for name, value in zip(names, values, strict=True)}
        return torch.func.functional_call(Together(network), state, (x, z))

    inputs = [draw(5, D), draw(2, 3, D), *(p.detach().clone() for p in network.parameters())]
    assert torch.autograd.gradcheck(features, [tensor.requires_grad_() for tensor in inputs])


class Together(nn.Module):
    def __init__(self, network) -> None:
        super().__init__()
        self.network = network

    def forward(self, x, z):
        return tuple(self.network.together(x, z))


@pytest.mark.parametrize("make", [lambda: Network((4, 2), normalise=True, scaled_output=True), OwnNetwork])
def test_other_inputs_do_not_change_statistics(make, draw):
    """Inducing points are normalised like the rows of their step, but rows and running averages do not know of them."""
    network = randomise(make_network(make(), D), draw)
    alone = copy.deepcopy(network)
    x, z = draw(6, D), 5.0 + 3.0 * draw(2, 4, D)
    (expected,) = alone.together(x)
    rows, points = network.together(x, z)
    torch.testing.assert_close(rows, expected)
    for (name, tensor), (_, other) in zip(network.named_buffers(), alone.named_buffers(), strict=True):
        torch.testing.assert_close(tensor, other, msg=name)
    # A point that is a row has the features of that row.
    _, same = alone.together(x, x[[4, 2]])
    torch.testing.assert_close(same, expected[[4, 2]])
    assert points.shape == (2, 4, network.width)
    (apart,) = copy.deepcopy(network).together(z)
    assert not torch.allclose(points, apart)


def test_running_averages(draw):
    """Even at first, then with torch's momentum, and of the variance that training divides by."""
    network = make_network(Network((2,), scaled_output=True), D).double()
    linear, norm = network.layers
    means, variances = [], []
    for _ in range(14):
        x = draw(5, D)
        values = linear(x).detach()
        means.append(values.mean(0))
        variances.append(values.var(0, correction=0))
        network(x)
    mean, variance = (torch.stack(values[:10]).mean(0) for values in (means, variances))
    for step in range(10, 14):
        mean, variance = 0.9 * mean + 0.1 * means[step], 0.9 * variance + 0.1 * variances[step]
    torch.testing.assert_close(norm.running_mean, mean)
    torch.testing.assert_close(norm.running_var, variance)


def test_running_averages_follow_those_of_torch(draw):
    """After the first steps, and up to n/(n − 1) in the variance."""
    theirs = nn.BatchNorm1d(D).double()
    theirs(draw(6, D))
    ours = RowNorm.like(copy.deepcopy(theirs))
    ours.n_steps.fill_(100.0)
    network = ForeignNetwork(nn.Sequential(nn.Linear(D, D), nn.Identity()))
    network.module[1], linear = ours, network.module[0].double()
    network = network.build(D).double()
    x = draw(6, D)
    torch.testing.assert_close(network(x), theirs(linear(x)))
    norm = network.module[1]
    torch.testing.assert_close(norm.running_mean, theirs.running_mean)
    biased = 0.9 * ours.running_var + 0.1 * linear(x).detach().var(0, correction=0)
    torch.testing.assert_close(norm.running_var, biased)


def test_prediction_converges_to_training_where_batches_are_the_table(draw):
    network, x = make_network("dspp", D).double(), draw(40, D)
    features = network(x)
    torch.testing.assert_close(network.settled(x)[0], features)
    torch.testing.assert_close(features.mean(0), torch.zeros(20).double(), atol=1e-10, rtol=0)
    torch.testing.assert_close(features.var(0, correction=0), torch.ones(20).double(), atol=1e-3, rtol=0)


def test_a_row_of_weight_two_counts_as_two_rows(draw):
    network, x = randomise(Network((4, 2), normalise=True).build(D), draw), draw(4, D)
    twice = copy.deepcopy(network)
    (weighted,) = network.together(x, weight=torch.tensor([1.0, 2.0, 1.0, 3.0]).double())
    (repeated,) = twice.together(x[[0, 1, 1, 2, 3, 3, 3]])
    torch.testing.assert_close(weighted, repeated[[0, 1, 3, 4]])
    torch.testing.assert_close(network.settled(x)[0], twice.settled(x)[0])


@pytest.mark.parametrize("stop", [lambda network: network.requires_grad_(False), lambda network: torch.no_grad()])
def test_a_network_that_does_not_learn_depends_on_single_rows(stop, draw):
    network = randomise(Network((4, 2), normalise=True, scaled_output=True).build(D), draw)
    before, x = copy.deepcopy(network.state_dict()), draw(6, D)
    manager = stop(network)
    with manager if hasattr(manager, "__exit__") else torch.enable_grad():
        torch.testing.assert_close(network(x)[3:4], network(x[3:4]), rtol=1e-12, atol=1e-12)
    assert all(torch.equal(before[name], tensor) for name, tensor in network.state_dict().items())


def test_one_row_can_be_learned_from(draw):
    network = make_network("dspp", D)
    features = network(draw(1, D).float())
    features.sum().backward()
    assert all(torch.isfinite(parameter.grad).all() for parameter in network.parameters())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("network", [Network((4, 2), True, True, seed=2**40), Network((3,))], ids=repr)
def test_round_trip_through_json_and_state_dict(network, dtype, draw):
    built = network.build(D).to(dtype)
    built(draw(5, D).to(dtype))
    again = network_from_spec(json.loads(json.dumps(built.to_spec(), allow_nan=False)))
    again.load_state_dict(built.state_dict())
    x = draw(6, D).to(dtype)
    assert torch.equal(again.settled(x)[0], built.settled(x)[0])
    assert again.to_spec() == built.to_spec()
    assert repr(again) == repr(built)
    unbuilt = network_from_spec(json.loads(json.dumps(network.to_spec())))
    assert unbuilt.to_spec() == network.to_spec()
    for mine, theirs in zip(unbuilt.build(D).parameters(), network.build(D).parameters(), strict=True):
        assert torch.equal(mine, theirs)


@pytest.mark.parametrize(
    "changes", [{"layers": [[3, 4], [5, 2]]}, {"layers": []}, {"dtype": "int8"}, {"dtype": None}, {"seed": None}]
)
def test_faulty_descriptions(changes):
    with pytest.raises(ValueError, match="a network is described by the sizes"):
        network_from_spec(make_network((4, 2), D).to_spec() | changes)
    with pytest.raises(ValueError, match="unknown kind of network"):
        network_from_spec({"type": "os.system"})


def test_copies_and_precision(draw):
    """A copy in float64 gives the features of the original, to float32's digits, and shares nothing with it."""
    network = Network((4, 2), normalise=True, scaled_output=True).build(D)
    x = draw(6, D)
    network(x.float())
    frozen = copy.deepcopy(network).double()
    torch.testing.assert_close(frozen.settled(x)[0].float(), network.settled(x.float())[0], rtol=1e-4, atol=1e-5)
    before = frozen.settled(x)[0]
    network(10.0 * x.float())
    assert torch.equal(frozen.settled(x)[0], before)
    assert {tensor.dtype for tensor in frozen.state_dict().values()} == {torch.float64}


def test_units(draw):
    network, shift, scale, x = randomise(make_network((4, 2), D), draw), draw(D), draw(D).exp(), draw(5, D)
    torch.testing.assert_close(network.in_units(scale)(x), network(x / scale))
    shifted = network.in_units(scale, shift)
    torch.testing.assert_close(shifted(x), network((x - shift) / scale))
    again = shifted.in_units(2.0 * scale, -shift)
    torch.testing.assert_close(again(x), shifted((x + shift) / (2.0 * scale)))


def test_building():
    network = make_network((4, 2), D)
    assert make_network(network, D) is not network
    with pytest.raises(ValueError, match="built for 3 features, but the table has 5"):
        network.build(5)
    with pytest.raises(ValueError, match="built for 3 features, got 2"):
        network(torch.zeros(4, 2))
    with pytest.raises(ValueError, match="call build"):
        Network((4, 2)).settled(torch.zeros(4, 2))
    with pytest.raises(ValueError, match="at least one layer"):
        Network(())
    with pytest.raises(ValueError, match="unknown network 'resnet'; choose one of ppgpr, dspp, dc"):
        make_network("resnet", D)
    for wrong in (3, (1.5, 2), RBF()):
        with pytest.raises(TypeError, match="features are a name"):
            make_network(wrong, D)


def test_leading_dimensions(draw):
    network = make_network((4, 2), D).double()
    x, z = draw(2, 5, 4, D), draw(3, D)
    apart, points = network.together(x, z)
    torch.testing.assert_close(apart, network(x.reshape(-1, D)).reshape(2, 5, 4, 2))
    torch.testing.assert_close(points, network(z))


# Modules of others


def test_a_module_is_copied_and_gives_its_own_features(draw):
    module = OwnNetwork().double()
    network, x = make_network(module, D), draw(6, D)
    assert network.width == 4
    torch.testing.assert_close(network(x), module(x), rtol=1e-12, atol=1e-12)
    module.eval()
    own = copy.deepcopy(module)
    own.norm.running_mean, own.norm.running_var = network.module.norm.running_mean, network.module.norm.running_var
    torch.testing.assert_close(network.settled(x)[0], own(x))
    with torch.no_grad():
        module.last.bias.add_(1.0)
    torch.testing.assert_close(network.settled(x)[0], own(x))


def test_a_module_keeps_what_is_fixed_and_its_mode(draw):
    module = OwnNetwork()
    module.first.requires_grad_(False)
    network = make_network(module, D)
    network.train()
    assert not network.module.training
    assert not network.module.first.weight.requires_grad
    assert network.module.norm.weight.requires_grad
    assert module.training
    assert isinstance(module.norm, nn.BatchNorm1d)


def test_a_module_is_needed_again(draw):
    network = randomise(make_network(OwnNetwork(), D), draw)
    spec = json.loads(json.dumps(network.to_spec()))
    x = draw(5, D)
    given = [OwnNetwork(), [nn.Identity(), OwnNetwork()], Deep(OwnNetwork(), RBF()), network]
    for code in given:
        again = network_from_spec(spec, code)
        again.load_state_dict(network.state_dict())
        assert torch.equal(again.settled(x)[0], network.settled(x)[0])
        assert again.x_scale.dtype == torch.float64
    for nothing in (None, [], Deep((3,), RBF())):
        with pytest.raises(ValueError, match="give the module that it was fitted with, as features="):
            network_from_spec(spec, nothing)


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (lambda: OwnNetwork(slope=0.2), "'slope': '0.2'"),
        (lambda: OwnNetwork(width=5), "'out_features': '5'"),
        (lambda: nn.Linear(D, 4), "the model has the network"),
    ],
)
def test_another_module_does_not_fit(other, message):
    with pytest.raises(ValueError, match=message):
        network_from_spec(make_network(OwnNetwork(), D).to_spec(), other())


class Table(nn.Module):
    def __init__(self, size: int) -> None:
        super().__init__()
        self.values = nn.Parameter(torch.ones(size, D))

    def forward(self, x):
        return x + self.values[0]


def test_tensors_do_not_fit():
    with pytest.raises(ValueError, match=r"has the tensors \{'values': \[7, 3\]\}, but those of the model"):
        network_from_spec(make_network(Table(5), D).to_spec(), Table(7))


@pytest.mark.parametrize(
    ("module", "message"),
    [
        (nn.Linear(D + 1, 2), "does not take a table of 3 features"),
        (nn.Flatten(0), "gives each row its features"),
        (nn.LSTM(D, 2), "gives each row its features"),
        (nn.Sequential(nn.Linear(D, 2), nn.Dropout(0.1)), "cannot have dropout"),
        (nn.LazyLinear(2), "cannot have lazy layers"),
        (nn.Sequential(nn.Linear(D, 2), nn.BatchNorm2d(2)), "only BatchNorm1d"),
    ],
)
def test_modules_that_are_no_networks(module, message):
    with pytest.raises(ValueError, match=message):
        make_network(module, D)


def test_networks_of_a_model():
    kernel = Deep((4,), Deep(nn.Identity(), RBF()) + RBF())
    assert [type(network) for network in networks_in(kernel)] == [Network, ForeignNetwork]
