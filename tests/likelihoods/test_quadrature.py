"""Averages over normal distributions, for likelihoods in general."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.special import log_expit, logsumexp
from torch.nn.functional import logsigmoid

from candid.likelihoods.quadrature import average, gauss_hermite, log_average, positions, window


def double(value) -> torch.Tensor:
    return torch.tensor(value, dtype=torch.float64)


def flat(f: torch.Tensor) -> torch.Tensor:
    return torch.zeros_like(f)


def falling(f: torch.Tensor) -> torch.Tensor:
    """The derivative of log σ(f)."""
    return torch.sigmoid(-f)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_gauss_hermite_integrates_polynomials(dtype):
    nodes, weights = gauss_hermite(5, dtype, torch.device("cpu"))
    assert nodes.dtype == weights.dtype == dtype
    # E x², E x⁴, E x⁶, E x⁸ = 1, 3, 15, 105
    moments = torch.stack([(weights * nodes**power).sum() for power in (0, 1, 2, 4, 6, 8)])
    torch.testing.assert_close(moments, torch.tensor([1, 0, 1, 3, 15, 105], dtype=dtype), rtol=1e-5, atol=1e-5)


def test_nodes_are_made_once_and_serve_training_after_prediction():
    device = torch.device("cpu")
    with torch.inference_mode():
        nodes, _ = gauss_hermite(7, torch.float64, device)
        shares = positions(7, torch.float64, device)
    assert gauss_hermite(7, torch.float64, device)[0] is nodes
    assert positions(7, torch.float64, device) is shares
    factor = torch.ones((), dtype=torch.float64, requires_grad=True)
    (factor * (nodes + shares)).sum().backward()
    assert factor.grad is not None


def test_moments_of_a_normal_distribution(draw):
    mean, variance = draw(3, 4), draw(4).square()
    torch.testing.assert_close(average(lambda f: f, mean, variance), mean, rtol=1e-8, atol=1e-8)
    expected = mean.square() + variance
    torch.testing.assert_close(average(torch.square, mean, variance), expected, rtol=1e-7, atol=1e-8)


def test_a_constant_density_averages_to_itself(draw):
    mean, variance = draw(3, 4), draw(4).square()
    ends = window(flat, flat, mean, variance)
    found = log_average(lambda f: flat(f) - 3.0, mean, variance, ends)
    torch.testing.assert_close(found, torch.full_like(mean, -3.0), rtol=0, atol=1e-9)


@pytest.mark.parametrize("slope", [-40.0, -1.0, 0.5, 40.0])
def test_the_window_follows_the_mass(slope):
    """E exp(af) = exp(a·mean + ½a²·variance): all of the mass lies around mean + a·variance."""
    mean, variance = double([[-3.0, 100.0]]), double([[1e-6, 1.0], [16.0, 900.0]])
    ends = window(lambda f: slope * f, lambda f: torch.full_like(f, slope), mean, variance)
    found = log_average(lambda f: slope * f, mean, variance, ends)
    torch.testing.assert_close(found, slope * mean + 0.5 * slope**2 * variance, rtol=1e-9, atol=1e-9)


def test_the_window_shrinks_to_a_narrow_density():
    """A normal density of width 1e-3 in a latent distribution of width 100."""
    mean, variance, width = double([30.0]), double([1e4]), 1e-3

    def log_density(f: torch.Tensor) -> torch.Tensor:
        return -0.5 * (f / width).square()

    ends = window(log_density, lambda f: -f / width**2, mean, variance)
    # E exp(−½f²/w²) = w/√(w² + variance) exp(−½ mean²/(w² + variance))
    expected = math.log(width) - 0.5 * math.log(width**2 + 1e4) - 0.5 * 900 / (width**2 + 1e4)
    assert log_average(log_density, mean, variance, ends).item() == pytest.approx(expected, abs=1e-8)


def references(mean: np.ndarray, variance: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """E log σ(f) and log E σ(f) from 20 000 nodes; for the second they reach out to where exp(f)·N(f) lies."""
    deviation = np.sqrt(variance)
    x = np.linspace(-12, 12, 20_001)[:, None]
    log_weight = -0.5 * x**2 - 0.5 * math.log(2 * math.pi) + math.log(x[1, 0] - x[0, 0])
    expected_log = (np.exp(log_weight) * log_expit(mean + deviation * x)).sum(0)
    low, high = np.full_like(mean, -12.0), 12 + deviation
    x = low + (high - low) * np.linspace(0, 1, 20_001)[:, None]
    log_weight = -0.5 * x**2 - 0.5 * math.log(2 * math.pi) + np.log((high - low) / 20_000)
    return expected_log, logsumexp(log_weight + log_expit(mean + deviation * x), axis=0)


@pytest.mark.parametrize(
    ("variance", "tolerance"), [(1e-6, 1e-8), (0.1, 1e-8), (4.0, 1e-8), (64.0, 1e-8), (256.0, 2e-5), (1024.0, 2e-3)]
)
def test_accuracy_for_the_logistic_function(variance, tolerance):
    """Sixteen Gauss–Hermite nodes would be wrong by 0.16 at variance 256."""
    mean = np.concatenate([np.linspace(-40, 40, 65), [-1000.0, -200.0, -100.0, 100.0, 1000.0]])
    variances = np.full_like(mean, variance)
    expected_log, log_expected = references(mean, variances)
    place = double(mean), double(variances)
    np.testing.assert_allclose(average(logsigmoid, *place), expected_log, rtol=0, atol=tolerance)
    found = log_average(logsigmoid, *place, window(logsigmoid, falling, *place))
    np.testing.assert_allclose(found, log_expected, rtol=0, atol=tolerance)


def test_single_precision():
    mean = np.linspace(-40, 40, 33)
    for variance in (0.0, 1e-6, 1.0, 256.0):
        place = double(mean), torch.full((33,), variance, dtype=torch.float64)
        rounded = tuple(value.float() for value in place)
        expected = log_average(logsigmoid, *place, window(logsigmoid, falling, *place))
        found = log_average(logsigmoid, *rounded, window(logsigmoid, falling, *rounded))
        assert found.dtype == torch.float32
        np.testing.assert_allclose(found, expected, rtol=3e-6, atol=3e-6)
        np.testing.assert_allclose(average(logsigmoid, *rounded), average(logsigmoid, *place), rtol=3e-6, atol=3e-6)


def test_gradients():
    mean = double([-30.0, -2.0, 0.1, 3.0]).requires_grad_()
    variance = double([9.0, 0.01, 100.0, 1.0]).requires_grad_()

    def log_expected(mean: torch.Tensor, variance: torch.Tensor) -> torch.Tensor:
        return log_average(logsigmoid, mean, variance, window(logsigmoid, falling, mean, variance))

    assert torch.autograd.gradcheck(lambda m, v: average(logsigmoid, m, v), (mean, variance))
    assert torch.autograd.gradcheck(log_expected, (mean, variance), atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_gradients_without_latent_variance(dtype):
    """dE g/dvariance = ½ E g″, at zero too."""
    mean = torch.tensor([-2.0, 0.0, 1.0], dtype=dtype)
    variance = torch.zeros(3, dtype=dtype, requires_grad=True)
    average(logsigmoid, mean, variance).sum().backward()
    expected = -0.5 * torch.sigmoid(mean) * torch.sigmoid(-mean)
    torch.testing.assert_close(variance.grad, expected, rtol=0, atol=1e-3 if dtype == torch.float32 else 1e-6)
