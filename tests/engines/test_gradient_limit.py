from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from candid.engines.steppers import Adam, make_steppers
from candid.engines.steppers.limit import NOVELTY, GradientLimit


def parameters_with(*gradients):
    pairs = [(nn.Parameter(torch.zeros(len(gradient))), torch.tensor(gradient)) for gradient in gradients]
    for parameter, gradient in pairs:
        parameter.grad = gradient
    return [parameter for parameter, _ in pairs]


def test_a_gradient_far_longer_than_usual_is_shortened_and_keeps_its_direction():
    limit = GradientLimit(3.0)
    # Of length 5, over two parameters.
    limit.shorten(parameters_with([3.0], [0.0, 4.0]))
    long = parameters_with([300.0], [0.0, 400.0])
    limit.shorten(long)
    torch.testing.assert_close(long[0].grad, torch.tensor([9.0]))
    torch.testing.assert_close(long[1].grad, torch.tensor([0.0, 12.0]))
    # What is remembered is the shortened one.
    assert limit.usual == pytest.approx((1 - NOVELTY) * 5 + NOVELTY * 15)


def test_gradients_of_usual_length_are_left_alone():
    limit = GradientLimit(3.0)
    for length in (1.0, 2.5, 0.01):
        (parameter,) = parameters_with([length])
        limit.shorten([parameter])
        assert parameter.grad.item() == pytest.approx(length)


def test_without_a_limit_nothing_is_measured():
    limit = GradientLimit()
    for length in (1.0, 1e9):
        (parameter,) = parameters_with([length])
        limit.shorten([parameter])
        assert parameter.grad.item() == length
    assert limit.usual is None


def test_a_gradient_that_was_zero_may_begin():
    limit = GradientLimit(3.0)
    limit.shorten(parameters_with([0.0]))
    (parameter,) = parameters_with([7.0])
    limit.shorten([parameter])
    assert parameter.grad.item() == 7.0
    limit.shorten([])
    assert limit.usual == 7.0


def test_a_gradient_without_a_length_is_not_usual():
    """The sum of squares does not fit into float32; of the first nothing is known, and a later one is left out."""
    limit = GradientLimit(3.0)
    first = parameters_with([1e25, 1e25])
    limit.shorten(first)
    assert first[0].grad.tolist() == pytest.approx([1e25, 1e25])
    limit.shorten(parameters_with([2.0]))
    later = parameters_with([1e25, 1e25])
    limit.shorten(later)
    assert later[0].grad.tolist() == [0.0, 0.0]
    assert limit.usual == pytest.approx((1 - NOVELTY) * 2 + NOVELTY * 6)


def test_short_gradients_are_measured_as_they_are():
    limit = GradientLimit(3.0)
    for _ in range(3):
        (parameter,) = parameters_with([1e-7])
        limit.shorten([parameter])
        assert parameter.grad.item() == pytest.approx(1e-7)


def test_only_adam_has_a_limit():
    parameter = nn.Parameter(torch.ones(2))
    groups, rates = {"all": [parameter], "rest": [parameter]}, {"all": 0.1, "rest": 0.1}
    steppers = make_steppers({"all": "lbfgs", "rest": "damped"}, groups, rates, limit=2.0)
    assert steppers["rest"].limit.multiple == 2.0
    assert not hasattr(steppers["all"], "limit")


def test_a_group_without_gradients_stays_where_it_is():
    parameter = nn.Parameter(torch.ones(2))
    Adam([parameter], lr=0.1, limit=2.0).advance(lambda: math.nan)
    assert torch.equal(parameter.detach(), torch.ones(2))


@pytest.mark.parametrize("limit", [3.0, math.inf])
def test_one_accident_does_not_stop_adam(limit):
    """At the eleventh of 200 steps towards 1 there is a gradient a million times as long as it should be."""
    x = nn.Parameter(torch.zeros(1))
    stepper = Adam([x], lr=0.02, limit=limit)
    for step in range(200):
        x.grad = (x.detach() - 1) * (1e6 if step == 10 else 1.0)
        stepper.advance(lambda: math.nan)
    arrived = abs(x.item() - 1) < 0.05
    assert arrived == (limit < math.inf)


def test_the_usual_length_is_part_of_the_state():
    first, second = (
        make_steppers({"all": "adam"}, {"all": [nn.Parameter(torch.ones(2))]}, {"all": 0.1}, limit=2.0)["all"]
        for _ in range(2)
    )
    assert isinstance(first, Adam)
    assert isinstance(second, Adam)
    for stepper in (first, second):
        stepper.parameters[0].grad = torch.tensor([3.0, 4.0])
    first.advance(lambda: math.nan)
    second.restore(first.state())
    assert second.limit.usual == pytest.approx(5.0)
