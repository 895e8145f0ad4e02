from __future__ import annotations

import pytest
import torch
from torch.distributions import Normal

from candid.likelihoods.normal_rows import normal_terms

# Shapes of y, mean, variance and blur: sites in front, a noise for all rows, one for each row.
SHAPES = [
    ((5, 2), (5, 2), (1, 2), (5, 2)),
    ((5, 2), (3, 5, 2), (1, 2), (3, 5, 2)),
    ((5, 2), (3, 5, 2), (3, 5, 2), (1, 5, 2)),
    ((1, 1), (1, 1), (1, 1), (1, 1)),
]


@pytest.fixture(params=SHAPES, ids=str)
def given(request, generator):
    y, mean, variance, blur = (torch.randn(shape, dtype=torch.float64, generator=generator) for shape in request.param)
    return tuple(values.requires_grad_() for values in (y, mean, 0.1 + variance.square(), blur.square()))


def test_without_blur_it_is_the_density(given):
    y, mean, variance, _ = given
    torch.testing.assert_close(normal_terms(y, mean, variance), Normal(mean, variance.sqrt()).log_prob(y))


def test_with_blur_it_is_the_average_over_the_mean(given):
    y, mean, variance, blur = given
    # Three nodes of Gauss and Hermite are exact for a square.
    nodes = [(-(3**0.5), 1 / 6), (0.0, 2 / 3), (3**0.5, 1 / 6)]
    expected = sum(weight * Normal(mean + node * blur.sqrt(), variance.sqrt()).log_prob(y) for node, weight in nodes)
    torch.testing.assert_close(normal_terms(y, mean, variance, blur), expected)


def test_gradients(given):
    assert torch.autograd.gradcheck(normal_terms, given)
    assert torch.autograd.gradcheck(normal_terms, given[:3])
