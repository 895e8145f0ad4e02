"""Smooth functions with hardly any noise: how large a latent function may become."""

from __future__ import annotations

import math

import pytest
import torch

from candid.engines import JITTER, Rows, fit_by_evidence
from candid.engines.resolution import MARGIN, Resolvable
from candid.families import make_mean
from candid.kernels import Linear, Matern52, make_kernel
from candid.likelihoods import NOISE_FLOOR, Gaussian
from candid.priors import LogNormal, attach

N_ROWS = 60


def smooth_rows(n_outputs: int = 1, scale: float = 1.0) -> Rows:
    x = torch.randn(N_ROWS, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    y = x[:, :1].square() + x[:, 1:]
    y = scale * (y - y.mean()) / y.std(correction=0)
    return Rows(x, y.expand(-1, n_outputs).contiguous(), torch.ones(N_ROWS, dtype=torch.float64))


def kernel_of(*amplitudes: float):
    kernel = make_kernel("matern52", 2, batch_shape=(len(amplitudes),)).double()
    kernel.amplitude.set(torch.tensor(amplitudes))
    return kernel


def limit(noise: float, dtype: torch.dtype = torch.float32) -> float:
    return MARGIN * noise / JITTER[dtype]


def test_below_the_limit_nothing_is_paid():
    kernel, likelihood = kernel_of(0.99 * limit(0.01)), Gaussian(0.01).double()
    resolvable = Resolvable(None, kernel, likelihood, smooth_rows(), 1e-6)
    penalty = resolvable.penalty()
    penalty.backward()
    assert penalty.item() == 0.0
    assert kernel.amplitude.raw.grad.item() == 0.0
    prior = attach(kernel, {"amplitude": LogNormal(0.05)})
    both = Resolvable(prior, kernel, likelihood, smooth_rows(), 1e-6)
    assert both.penalty().item() == prior.penalty().item()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_each_output_pays_for_what_is_beyond_its_own_limit(dtype):
    likelihood = Gaussian(n_outputs=3).double()
    likelihood.noise.set(torch.tensor([[0.1, 0.01, 0.001]]))
    amplitude = limit(0.05, dtype)
    resolvable = Resolvable(None, kernel_of(*[amplitude] * 3), likelihood, smooth_rows(3), JITTER[dtype])
    expected = N_ROWS * (math.log(5) ** 2 + math.log(50) ** 2)
    assert resolvable.penalty().item() == pytest.approx(expected)


def test_the_variance_of_any_kernel_counts():
    rows = smooth_rows()
    kernel = (3e5 * Matern52() + 2e5 * Linear()).build(2).double()
    resolvable = Resolvable(None, kernel, Gaussian(0.1).double(), rows, 1e-6)
    variance = 3e5 + 2e5 * rows.x.square().sum(-1).mean().item()
    assert resolvable.penalty().item() == pytest.approx(N_ROWS * math.log(variance / limit(0.1)) ** 2)


def test_a_fixed_kernel_does_not_move_the_noise():
    kernel = kernel_of(1e9)
    kernel.amplitude.fix()
    assert Resolvable(None, kernel, Gaussian(0.1).double(), smooth_rows(), 1e-6).penalty().item() == 0.0


def test_known_noise_is_that_of_a_typical_row_and_never_nothing():
    known = torch.full((N_ROWS, 1), 0.01, dtype=torch.float64)
    known[:5] = 1e6
    resolvable = Resolvable(None, kernel_of(limit(0.03)), Gaussian(known=known), smooth_rows(), 1e-6)
    assert resolvable.penalty().item() == pytest.approx(N_ROWS * math.log(3) ** 2)
    known = torch.full((N_ROWS, 1), 1e-12, dtype=torch.float64)
    resolvable = Resolvable(None, kernel_of(limit(2e-4)), Gaussian(known=known), smooth_rows(), 1e-6)
    assert resolvable.penalty().item() == pytest.approx(N_ROWS * math.log(2e-4 / NOISE_FLOOR) ** 2)


def test_targets_that_are_not_standardised_have_limits_in_their_units():
    rows = smooth_rows(scale=100.0)
    kernel = kernel_of(3 * limit(NOISE_FLOOR * 1e4))
    resolvable = Resolvable(None, kernel, Gaussian(NOISE_FLOOR * 2).double(), rows, 1e-6)
    assert resolvable.penalty().item() == pytest.approx(N_ROWS * math.log(3) ** 2)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_evidence_stops_near_the_limit(dtype):
    rows = smooth_rows()
    kernel, mean, likelihood = kernel_of(1.0).to(dtype), make_mean("constant", 2, 1).to(dtype), Gaussian().to(dtype)
    fit_by_evidence(kernel, mean, likelihood, None, rows.to(dtype), seed=0, max_epochs=40, jitter=JITTER[dtype])
    amplitude, noise = kernel.amplitude.value.item(), likelihood.noise.value.item()
    assert 0.2 * limit(noise, dtype) < amplitude < 1.5 * limit(noise, dtype)


def test_without_points_there_is_no_limit():
    rows = smooth_rows()
    kernel, mean, likelihood = kernel_of(1.0), make_mean("constant", 2, 1).double(), Gaussian().double()
    fit_by_evidence(kernel, mean, likelihood, None, rows, seed=0, max_epochs=40)
    assert kernel.amplitude.value.item() > 100 * limit(likelihood.noise.value.item(), torch.float64)
