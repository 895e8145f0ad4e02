from __future__ import annotations

import itertools
import json

import pytest
import torch

from candid.families import make_mean, mean_from_spec


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
