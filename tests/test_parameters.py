from __future__ import annotations

import copy
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from candid.parameters import Hyperparameter, hyperparameters, positive, real

INF = math.inf
DOMAINS = [(-INF, INF), (0.0, INF), (1e-6, INF), (-2.0, INF), (-INF, 3.0), (-1.0, 2.0), (0.0, 5.0), (1e-4, 100.0)]


def inside(lower: float, upper: float, share: float) -> float:
    """A value at ``share`` (0 to 1) of a domain."""
    if lower == -INF:
        return (0.0 if upper == INF else upper - 20.0) + 19.0 * share
    if upper == INF:
        return lower + 10.0 ** (6 * share - 3)
    return lower + (upper - lower) * (0.01 + 0.98 * share)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("domain", DOMAINS)
@given(share=st.floats(0.0, 1.0))
def test_round_trip(domain, dtype, share):
    value = inside(*domain, share)
    parameter = Hyperparameter(inside(*domain, 0.5), *domain).to(dtype)
    parameter.set(value)
    assert parameter.value.item() == pytest.approx(value, rel=2e-5 if dtype == torch.float32 else 1e-12, abs=1e-5)


@pytest.mark.parametrize("domain", DOMAINS)
@given(raw=st.floats(-30.0, 30.0))
def test_every_raw_number_gives_a_value_in_the_domain(domain, raw):
    parameter = Hyperparameter(inside(*domain, 0.5), *domain).double()
    with torch.no_grad():
        parameter.raw.fill_(raw)
    assert domain[0] < parameter.value.item() < domain[1]


@pytest.mark.parametrize("domain", DOMAINS)
def test_value_grows_with_raw(domain):
    parameter = Hyperparameter(torch.full((9,), inside(*domain, 0.5)), *domain).double()
    with torch.no_grad():
        parameter.raw.copy_(torch.linspace(-4, 4, 9))
    assert (parameter.value.diff() > 0).all()


def test_positive_parameters_are_kept_as_logarithms():
    parameter = positive([0.5, 2.0])
    torch.testing.assert_close(parameter.raw.data, torch.tensor([0.5, 2.0]).log())
    torch.testing.assert_close(positive(0.3, floor=0.1).raw.data, torch.tensor(0.2).log())


def test_bounded_positive_parameters_are_kept_on_the_logarithmic_scale():
    """The middle of (10⁻², 10²) is 1."""
    assert Hyperparameter(1.0, 1e-2, 1e2).raw.item() == pytest.approx(0.0, abs=1e-6)
    assert Hyperparameter(0.5, 0.0, 1.0).raw.item() == pytest.approx(0.0, abs=1e-6)


@pytest.mark.parametrize(("domain", "outside"), [((0.0, INF), 0.0), ((0.0, INF), -1.0), ((1.0, 2.0), 2.0)])
def test_values_outside_are_refused(domain, outside):
    with pytest.raises(ValueError, match="must lie between"):
        Hyperparameter(outside, *domain)
    parameter = Hyperparameter(1.5, *domain)
    with pytest.raises(ValueError, match="must lie between"):
        parameter.set(outside)
    assert parameter.value.item() == pytest.approx(1.5)


def test_not_a_number_is_refused():
    with pytest.raises(ValueError, match="must lie between"):
        real(math.nan)


@pytest.mark.parametrize("domain", DOMAINS[1:])
@given(value=st.floats(0.02, 4.0))
def test_restrict_keeps_what_is_inside_and_moves_the_rest_in(domain, value):
    parameter = positive(value).double()
    value = parameter.value.item()
    parameter.restrict(*domain)
    assert (parameter.lower, parameter.upper) == domain
    if domain[0] < value < domain[1]:
        assert parameter.value.item() == pytest.approx(value, rel=1e-9)
    assert domain[0] < parameter.value.item() < domain[1]


def test_restrict_moves_to_the_nearer_end():
    parameter = positive([0.1, 5.0, 100.0]).double()
    parameter.restrict(1.0, 10.0)
    low, kept, high = parameter.value.tolist()
    assert 1.0 < low < 1.01
    assert kept == pytest.approx(5.0)
    assert 9.9 < high < 10.0


def test_restrict_refuses_an_empty_domain():
    with pytest.raises(ValueError, match="lower < upper"):
        positive(1.0).restrict(2.0, 2.0)


def test_set_broadcasts_and_keeps_the_parameter():
    parameter = positive(torch.ones(3, 1, 2))
    before = parameter.raw
    parameter.set([0.5, 4.0])
    assert parameter.raw is before
    torch.testing.assert_close(parameter.value.detach(), torch.tensor([[0.5, 4.0]]).expand(3, 1, 2))


def test_expand_gives_every_entry_its_own_value():
    parameter = positive([[2.0]])
    parameter.fix()
    parameter.expand((3, 1, 4))
    assert parameter.fixed
    with torch.no_grad():
        parameter.raw[1, 0, 2] = 0.0
    expected = torch.full((3, 1, 4), 2.0)
    expected[1, 0, 2] = 1.0
    torch.testing.assert_close(parameter.value, expected)


def test_fixed_parameters_have_no_gradient():
    parameter = positive(2.0)
    assert not parameter.fixed
    parameter.fix()
    assert parameter.fixed
    assert not parameter.value.requires_grad


def test_gradients_of_the_value():
    parameters = [Hyperparameter(inside(*domain, 0.4), *domain).double() for domain in DOMAINS]
    for parameter in parameters:

        def value(raw, parameter=parameter):
            return torch.func.functional_call(_Value(parameter), {"parameter.raw": raw}, ())

        raw = parameter.raw.detach().clone().requires_grad_()
        assert torch.autograd.gradcheck(value, (raw,))


class _Value(nn.Module):
    def __init__(self, parameter: Hyperparameter) -> None:
        super().__init__()
        self.parameter = parameter

    def forward(self):
        return self.parameter.value


def test_copies_and_state_keep_the_value():
    parameter = Hyperparameter([0.3, 0.9], 0.1, 2.0)
    clone = copy.deepcopy(parameter)
    other = Hyperparameter([1.0, 1.0], 0.1, 2.0)
    other.load_state_dict(parameter.state_dict())
    assert torch.equal(clone.value, parameter.value)
    assert torch.equal(other.value, parameter.value)


def test_names_are_dotted_paths():
    model = nn.ModuleDict({"kernel": nn.ModuleDict({"lengthscale": positive(1.0)}), "shift": real(0.0)})
    model["network"] = nn.Linear(2, 2)
    assert [name for name, _ in hyperparameters(model)] == ["kernel.lengthscale", "shift"]


def test_description():
    parameter = Hyperparameter([1.0, 2.0], 0.5)
    parameter.fix()
    assert repr(parameter) == "Hyperparameter((2,), in (0.5, inf), fixed)"
    assert repr(real(0.0)) == "Hyperparameter(())"


@pytest.mark.parametrize("domain", [(-INF, INF), (0.0, INF), (0.1, INF), (-INF, 2.0), (-1.0, 2.0), (0.5, 2.0)])
def test_slopes_are_those_of_autograd(domain):
    parameter = Hyperparameter(torch.tensor([0.6, 1.0, 1.9], dtype=torch.float64), *domain).double()
    (slope,) = torch.autograd.grad(parameter.value.sum(), parameter.raw)
    torch.testing.assert_close(parameter.log_slope(), slope.log())
