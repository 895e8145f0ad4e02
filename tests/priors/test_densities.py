from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy import stats

from candid.priors import Gamma, HalfNormal, Interval, LogNormal, Normal

VALUES = np.array([0.01, 0.3, 1.0, 2.5, 40.0])
DENSITIES = {
    "normal": (Normal(0.5, 2.0), stats.norm(0.5, 2.0).logpdf(VALUES)),
    "gamma": (Gamma(3.0, 0.7), stats.gamma(3.0, scale=1 / 0.7).logpdf(VALUES)),
    "half-normal": (HalfNormal(1.3), stats.halfnorm(scale=1.3).logpdf(VALUES)),
    # The density of the logarithm: scipy's lognormal without its Jacobian 1/value.
    "log-normal": (LogNormal(0.6, 0.8), stats.lognorm(0.8, scale=0.6).logpdf(VALUES) + np.log(VALUES)),
}


@pytest.mark.parametrize(("prior", "expected"), DENSITIES.values(), ids=DENSITIES)
def test_densities_are_scipys(prior, expected):
    np.testing.assert_allclose(prior.log_density(torch.tensor(VALUES)), expected, rtol=1e-12)


@pytest.mark.parametrize("prior", [prior for prior, _ in DENSITIES.values()], ids=DENSITIES)
def test_gradients(prior):
    value = torch.tensor(VALUES[:4], requires_grad=True)
    assert torch.autograd.gradcheck(prior.log_density, (value,))


def test_the_mode_of_a_log_normal_is_its_median():
    grid = torch.linspace(0.1, 3.0, 2901, dtype=torch.float64)
    assert grid[LogNormal(0.7, 0.5).log_density(grid).argmax()].item() == pytest.approx(0.7, abs=1e-3)


def test_a_half_normal_has_no_negative_values():
    assert HalfNormal().log_density(torch.tensor(-0.1)) == -math.inf


@pytest.mark.parametrize(
    "make",
    [
        lambda: Normal(0.0, 0.0),
        lambda: LogNormal(-1.0, 1.0),
        lambda: LogNormal(1.0, 0.0),
        lambda: Gamma(0.0, 1.0),
        lambda: Gamma(1.0, -1.0),
        lambda: HalfNormal(0.0),
    ],
)
def test_parameters_must_be_positive(make):
    with pytest.raises(ValueError, match="must be positive"):
        make()


def test_an_interval_is_not_empty():
    with pytest.raises(ValueError, match="lower < upper"):
        Interval(2.0, 1.0)


def test_priors_are_values():
    assert LogNormal(1.0, 2.0) == LogNormal(1.0, 2.0)
    assert LogNormal(1.0, 2.0) != LogNormal(1.0, 3.0)
