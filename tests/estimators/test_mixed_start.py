"""Which mixing matrix outputs start with."""

from __future__ import annotations

import pytest
import torch

from candid.engines import Rows, changes_nearby, fit_by_evidence
from candid.estimators.mixed_start import fit_mixed
from candid.families import make_mean
from candid.kernels import make_kernel
from candid.likelihoods import Coregionalised, Gaussian


def started(y, x, fixed=False):
    rows = Rows(x, (y - y.mean(0)) / y.std(0, correction=0), torch.ones(len(x)))
    kernel, mean = make_kernel("matern52", 1, batch_shape=(2,)), make_mean("constant", 1, 2)
    likelihood = Coregionalised(rows.y, 2, Gaussian(n_outputs=2), changes=changes_nearby(rows.x, rows.y))
    if fixed:
        likelihood.mixing.fix()

    def fit(noise, latent):
        fit_by_evidence(kernel, mean, noise, None, latent, seed=0)

    fit_mixed(kernel, mean, likelihood, rows, fit)
    return kernel, likelihood


@pytest.fixture
def x():
    return torch.linspace(-2, 2, 60).unsqueeze(-1)


def test_outputs_that_have_nothing_in_common_are_not_mixed(x):
    torch.manual_seed(0)
    y = torch.cat([torch.sin(2 * x), torch.cos(7 * x)], 1) + 0.05 * torch.randn(60, 2)
    kernel, likelihood = started(y, x)
    mixing = likelihood.mixing.value.abs()
    # One function for each output, in any order
    assert bool((mixing.max(1).values > 8 * mixing.min(1).values).all())
    assert kernel.base.lengthscale.value.max() > 2 * kernel.base.lengthscale.value.min()


def test_outputs_that_are_the_same_share_a_function(x):
    torch.manual_seed(0)
    y = torch.sin(3 * x) + 0.2 * torch.randn(60, 2)
    kernel, likelihood = started(y, x)
    loud = kernel.amplitude.value.argmax()
    assert bool((likelihood.mixing.value[loud].abs() > 0.8).all())
    torch.testing.assert_close(likelihood.noise.noise.value, torch.full((1, 2), 0.04 / 0.54), rtol=0.5, atol=0.0)


def test_a_fixed_mixing_stays(x):
    y = torch.cat([torch.sin(2 * x), torch.cos(7 * x)], 1)
    _, likelihood = started(y, x, fixed=True)
    torch.testing.assert_close(likelihood.mixing.value, likelihood.candidates[0])
