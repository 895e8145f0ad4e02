"""Priors of inducing inputs, by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy import integrate, stats

from candid.kernels import RBF
from candid.priors import (
    POINT_PRIORS,
    Box,
    DeterminantalPoints,
    HyperPrior,
    LogNormal,
    NormalPoints,
    StraussPoints,
    UniformPoints,
)

CORNERS = torch.tensor([[-1.0, 0.0], [3.0, 1.0]], dtype=torch.float64)


@pytest.fixture
def box() -> Box:
    return Box(CORNERS[0], CORNERS[1])


@pytest.fixture
def unit():
    return RBF(lengthscale=0.8).build(2).double()


def test_a_box_is_a_little_wider_than_the_data(draw):
    x = draw(30, 3)
    x[:, 2] = 7.0
    around = Box.around(x)
    assert (around.lower < x.amin(0)).all()
    assert (around.upper > x.amax(0)).all()
    torch.testing.assert_close((around.upper - around.lower)[:2], 1.2 * (x.amax(0) - x.amin(0))[:2])


def test_the_density_of_a_box_is_one_in_all():
    line = Box(CORNERS[0, :1], CORNERS[1, :1])

    def density(z: float) -> float:
        return math.exp(line.log_density(torch.tensor([[z]]).double()))

    assert integrate.quad(density, -5, 7, points=[-1, 3])[0] == pytest.approx(1, rel=1e-6)
    assert density(0.0) == density(2.9)
    assert density(3.4) < 0.2 * density(0.0)


def test_normal(draw, unit):
    z = draw(3, 5, 2)
    expected = stats.norm.logpdf(z.numpy()).sum((-2, -1))
    np.testing.assert_allclose(NormalPoints().log_density(z, unit), expected, rtol=1e-12)


def test_uniform(box, unit):
    inside = torch.tensor([[0.0, 0.5], [2.0, 0.1], [-0.9, 0.9]]).double()
    softness = 0.05 * (CORNERS[1] - CORNERS[0])
    volume = (CORNERS[1] - CORNERS[0] + softness * math.sqrt(2 * math.pi)).log().sum()
    assert UniformPoints(box).log_density(inside, unit).item() == pytest.approx(-3 * volume.item(), rel=1e-12)


def test_determinantal(draw, box, unit):
    z = 0.5 * draw(2, 4, 2)
    squares = ((z.unsqueeze(-2) - z.unsqueeze(-3)) / 0.8).square().sum(-1)
    gram = torch.exp(-0.5 * squares) + 1e-6 * torch.eye(4)
    expected = torch.linalg.slogdet(gram).logabsdet + box.log_density(z)
    torch.testing.assert_close(DeterminantalPoints(box).log_density(z, unit), expected, rtol=1e-9, atol=1e-9)


def test_strauss(box, unit):
    """Three points: one pair well within the radius, one right at it, one far apart."""
    z = torch.tensor([[0.0, 0.0], [0.1, 0.0], [0.6, 0.0]], dtype=torch.float64)
    pairs = sum(1 / (1 + math.exp((d - 0.5) / 0.05)) for d in (0.1, 0.6, 0.5))
    expected = math.log(0.5) * pairs + box.log_density(z).item()
    assert StraussPoints(box).log_density(z, unit).item() == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("name", POINT_PRIORS)
def test_gradients(name, box, unit, draw):
    """With batches, beyond the walls, and finite where two points are the same."""
    prior, z = POINT_PRIORS[name](box), draw(2, 4, 2).requires_grad_()
    assert torch.autograd.gradcheck(lambda z: prior.log_density(z, unit), z)
    same = torch.zeros(3, 2, dtype=torch.float64, requires_grad=True)
    (gradient,) = torch.autograd.grad(prior.log_density(same, unit), same)
    assert gradient.isfinite().all()


@pytest.mark.parametrize("name", POINT_PRIORS)
def test_a_single_point(name, box, unit):
    assert POINT_PRIORS[name](box).log_density(torch.zeros(1, 2).double(), unit).isfinite()


def test_a_penalty_for_each_chain(draw, box):
    """Of hyper-parameters and of inducing inputs together."""

    class Owner:
        kernel = RBF(lengthscale=0.8).build(2, batch_shape=(3, 2)).double()
        points = torch.nn.Parameter(draw(3, 2, 4, 2))

    owner = Owner()
    with torch.no_grad():
        owner.kernel.lengthscale.raw.copy_(draw(3, 2, 1, 2))
    prior = HyperPrior([(owner.kernel.lengthscale, LogNormal())], [(owner, NormalPoints())])
    prior.chains = (3,)
    raw, points = owner.kernel.lengthscale.raw.detach().numpy(), owner.points.detach().numpy()
    expected = stats.norm.logpdf(raw).sum((1, 2, 3)) + stats.norm.logpdf(points).sum((1, 2, 3))
    np.testing.assert_allclose(prior.penalty().detach(), -expected, rtol=1e-12)
    prior.chains = ()
    assert prior.penalty().item() == pytest.approx(-expected.sum())
