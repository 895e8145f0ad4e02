from __future__ import annotations

import pytest
import torch
from torch.distributions import MultivariateNormal

from candid.families.local_likelihood import best_local_values, improved_local_values, profiled_values, scalable
from candid.kernels import make_kernel


def groups(n_groups=4, k=25, theta=0.5, s=2.0, noise=0.05, n_outputs=2, seed=0):
    """Draws of local GPs."""
    torch.manual_seed(seed)
    x = 2 * torch.rand(n_groups, n_outputs, k, 1, dtype=torch.float64)
    unit = make_kernel("matern52", 1, batch_shape=(n_outputs,)).double().unit
    covariance = s * unit(x / theta) + noise * torch.eye(k).double()
    return unit, x, MultivariateNormal(torch.zeros(k).double(), covariance.detach()).sample()


def log_density(unit, x, residual, theta, s, noise):
    covariance = s[..., None, None] * unit(x / theta[..., None, None]) + torch.diag_embed(noise)
    return MultivariateNormal(torch.zeros_like(residual), covariance).log_prob(residual)


def test_values_with_known_noise_are_a_maximum():
    unit, x, residual = groups()
    noise = torch.full_like(residual, 0.05)
    with torch.no_grad():
        theta, s = improved_local_values(
            unit, x, residual, noise, best_local_values(unit, x, residual, noise, torch.tensor([1.0, 3.0]).double())
        )
        best = log_density(unit, x, residual, theta, s, noise)
        # Neither far away, nor nearby is there anything much better.
        for a in torch.linspace(-4, 2, 13).tolist():
            for b in torch.linspace(-3, 3, 7).tolist():
                other = log_density(
                    unit, x, residual, torch.full_like(theta, 2.0**a), torch.full_like(s, 4.0**b), noise
                )
                assert (best > other - 0.05).all()


def test_the_amplitude_and_the_noise_follow_from_their_ratio():
    unit, x, residual = groups(k=40, seed=1)
    share = torch.linspace(0.5, 2.0, 40).double().expand_as(residual)
    with torch.no_grad():
        theta, s, noise = profiled_values(unit, x, residual, share)
        best = log_density(unit, x, residual, theta, s, noise.unsqueeze(-1) * share)
        # s = rᵀC⁻¹r/k: the best at this lengthscale and ratio
        for factor in (0.95, 1.05):
            other = log_density(unit, x, residual, theta, factor * s, factor * noise.unsqueeze(-1) * share)
            assert (other < best).all()
        for a, b in ((0.8, 1.0), (1.25, 1.0), (1.0, 0.5), (1.0, 2.0)):
            other = log_density(unit, x, residual, a * theta, s, b * noise.unsqueeze(-1) * share)
            assert (other < best + 0.1).all()


def test_typical_values_are_those_of_the_draws():
    unit, x, residual = groups(n_groups=60, k=60, theta=0.4, s=2.0, noise=0.05, n_outputs=1, seed=2)
    theta, _, noise = profiled_values(unit, x, residual, torch.ones_like(residual))
    assert float(theta.median()) == pytest.approx(0.4, rel=0.35)
    assert float(noise.median()) == pytest.approx(0.05, rel=0.3)


@pytest.mark.parametrize(
    ("name", "expected"), [("rbf", True), ("rbf + matern32", True), ("linear", False), ("rbf * periodic", False)]
)
def test_which_kernels_have_a_local_lengthscale(name, expected):
    kernel = make_kernel(name, 1, batch_shape=(1,)).double()
    assert scalable(kernel) is expected
    x, residual = torch.randn(3, 1, 8, 1).double(), torch.randn(3, 1, 8).double()
    theta, s = best_local_values(kernel.unit, x, residual, torch.full_like(residual, 0.1), torch.ones(1).double())
    assert bool((theta == 1).all()) is not expected
    assert (s > 0).all()
