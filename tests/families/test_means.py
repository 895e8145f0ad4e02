from __future__ import annotations

import itertools
import json

import pytest
import torch
from torch import nn

from candid.families import NetworkMean, make_mean, mean_from_spec
from candid.kernels import Network


def test_values(draw):
    x = draw(5, 3)
    zero, constant, linear = (make_mean(name, 3, 2).double() for name in ("zero", "constant", "linear"))
    constant.constant.set([1.0, -2.0])
    linear.constant.set([1.0, -2.0])
    slope = draw(3, 2)
    linear.slope.set(slope)
    torch.testing.assert_close(zero(x), torch.zeros(5, 2).double())
    torch.testing.assert_close(constant(x), torch.tensor([[1.0, -2.0]]).double().expand(5, 2))
    torch.testing.assert_close(linear(x), torch.tensor([1.0, -2.0]).double() + x @ slope)


@pytest.mark.parametrize("name", ["zero", "constant", "linear"])
def test_leading_dimensions(name, draw):
    mean = make_mean(name, 3, 2).double()
    assert mean(draw(4, 5, 3)).shape == (4, 5, 2)


@pytest.mark.parametrize("name", ["zero", "constant", "linear"])
def test_means_start_at_zero(name, draw):
    assert (make_mean(name, 3, 2).double()(draw(4, 3)) == 0).all()


@pytest.mark.parametrize("name", ["zero", "constant", "linear"])
def test_rebuilt_from_its_description(name, draw):
    mean = make_mean(name, 3, 2).double()
    with torch.no_grad():
        for parameter in mean.parameters():
            parameter.copy_(draw(*parameter.shape))
    again = mean_from_spec(mean.to_spec()).double()
    again.load_state_dict(mean.state_dict())
    x = draw(4, 3)
    assert torch.equal(again(x), mean(x))


@pytest.mark.parametrize("chains", [(3,), (2, 3)])
@pytest.mark.parametrize("name", ["zero", "constant", "linear"])
def test_a_batch_of_means_is_each_of_them(name, chains, draw):
    """At shared rows and at rows of their own; also when rebuilt from the description."""
    batch = make_mean(name, 4, 2, chains).double()
    with torch.no_grad():
        for parameter in batch.parameters():
            parameter.copy_(draw(*parameter.shape))
    again = mean_from_spec(json.loads(json.dumps(batch.to_spec()))).double()
    again.load_state_dict(batch.state_dict())
    shared, own = draw(5, 4), draw(*chains, 5, 4)
    assert batch(shared).shape == batch(own).shape == (*chains, 5, 2)
    for chain in itertools.product(*map(range, chains)):
        single = make_mean(name, 4, 2).double()
        single.load_state_dict({key: tensor[chain] for key, tensor in batch.state_dict().items()})
        for mean in (batch, again):
            torch.testing.assert_close(mean(shared)[chain], single(shared))
            torch.testing.assert_close(mean(own)[chain], single(own[chain]))


def test_unknown_name():
    with pytest.raises(ValueError, match="unknown mean function 'quadratic'; choose one of zero, constant, linear"):
        make_mean("quadratic", 3, 1)


def network_mean(draw, features=(4, 2), batch_shape=()):
    """At random values, in float64."""
    mean = NetworkMean(features, 3, 2, batch_shape, seed=1).double()
    mean.constant.set(draw(*batch_shape, 2))
    mean.slope.set(draw(*batch_shape, mean.network.width, 2))
    return mean


def test_a_network_with_a_head_for_each_output(draw):
    mean, x = network_mean(draw), draw(5, 3)
    w1, b1, w2, b2 = mean.network.parameters()
    features = torch.relu(x @ w1.T + b1) @ w2.T + b2
    torch.testing.assert_close(mean(x), mean.constant.value + features @ mean.slope.value)
    assert (NetworkMean("ppgpr", 3, 2)(x.float()) == 0).all()


def test_a_network_starts_to_learn_from_zero(draw):
    """The heads first, and then, once they are not zero, the network."""
    mean, x, y = NetworkMean((4, 2), 3, 2).double(), draw(20, 3), draw(20, 2)
    (y - mean(x)).square().sum().backward()
    assert mean.slope.raw.grad.abs().min() > 0
    with torch.no_grad():
        mean.slope.raw.sub_(0.01 * mean.slope.raw.grad)
    (y - mean(x)).square().sum().backward()
    assert all(parameter.grad.abs().max() > 0 for parameter in mean.network.parameters())


def test_gradients_of_a_network(draw):
    mean = network_mean(draw, Network((4, 2), normalise=True))
    names = [name for name, _ in mean.named_parameters()]

    def values(x, *tensors):
        return torch.func.functional_call(mean, dict(zip(names, tensors, strict=True)), (x,))

    inputs = [draw(5, 3), *(parameter.detach().clone() for parameter in mean.parameters())]
    assert torch.autograd.gradcheck(values, [tensor.requires_grad_() for tensor in inputs])


@pytest.mark.parametrize("chains", [(), (3,)])
@pytest.mark.parametrize("features", [(4, 2), Network((4, 2), True, True), nn.Linear(3, 2)], ids=repr)
def test_a_network_rebuilt_from_its_description(features, chains, draw):
    mean = network_mean(draw, features, chains)
    mean(draw(6, 3))
    again = mean_from_spec(json.loads(json.dumps(mean.to_spec())), nn.Linear(3, 2)).double()
    again.load_state_dict(mean.state_dict())
    x = draw(4, 3)
    with torch.no_grad():
        assert torch.equal(again(x), mean(x))
    assert mean(x).shape == (*chains, 4, 2)
    assert again.to_spec() == mean.to_spec()


def test_code_of_a_network_is_needed_again(draw):
    with pytest.raises(ValueError, match="as features="):
        mean_from_spec(network_mean(draw, nn.Linear(3, 2)).to_spec())
