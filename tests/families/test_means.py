from __future__ import annotations

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


def test_unknown_name():
    with pytest.raises(ValueError, match="unknown mean function 'quadratic'; choose one of zero, constant, linear"):
        make_mean("quadratic", 3, 1)
