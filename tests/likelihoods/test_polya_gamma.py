"""The density of PG(1, 0), and divergences of log-normal distributions from it."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.integrate import quad
from scipy.optimize import minimize

from candid.likelihoods.polya_gamma import BORDER, CLOSEST_LOCATION, CLOSEST_SCALE, LogNormal, log_density

OMEGAS = np.unique(np.concatenate([np.geomspace(1e-8, 1e3, 67), BORDER * np.array([1 - 1e-9, 1.0, 1 + 1e-9])]))
# Log-normal distributions between the closest ones to PG(1, 0) and to PG(1, 100), and beyond.
LOCATIONS, SCALES = np.linspace(-6.0, 1.0, 15), np.array([0.05, 0.2, 0.4, 0.77, 1.0])


def double(value) -> torch.Tensor:
    return torch.tensor(value, dtype=torch.float64)


def reference(omega: float, derivative: bool = False) -> float:
    """log PG(ω; 1, 0), or its derivative, from thirty terms of the better series with sixty digits."""
    mpmath = pytest.importorskip("mpmath")
    with mpmath.workdps(60):
        w, total, slope = mpmath.mpf(omega), mpmath.mpf(0), mpmath.mpf(0)
        for n in range(30):
            odd = 2 * n + 1
            if omega < 0.3:
                term = (-1) ** n * odd * mpmath.exp(-(odd**2 - 1) / (8 * w)) / mpmath.sqrt(2 * mpmath.pi * w**3)
                factor, rate = mpmath.mpf(-1) / (8 * w), odd**2 / (8 * w**2) - 3 / (2 * w)
            else:
                term = (-1) ** n * odd * 2 * mpmath.pi * mpmath.exp(-(odd**2 - 1) * mpmath.pi**2 * w / 2)
                factor, rate = -(mpmath.pi**2) * w / 2, -(odd**2) * mpmath.pi**2 / 2
            total, slope = total + term, slope + rate * term
        return float(slope / total) if derivative else float(factor + mpmath.log(total))


def test_density_to_machine_precision():
    expected = np.array([reference(omega) for omega in OMEGAS])
    np.testing.assert_allclose(log_density(double(OMEGAS)), expected, rtol=2e-15, atol=2e-15)


def test_derivative_to_machine_precision():
    omega = double(OMEGAS).requires_grad_()
    log_density(omega).sum().backward()
    expected = np.array([reference(value, derivative=True) for value in OMEGAS])
    np.testing.assert_allclose(omega.grad, expected, rtol=5e-14, atol=5e-14)


def test_density_and_derivative_in_single_precision():
    rounded = OMEGAS.astype(np.float32)
    omega = torch.tensor(rounded, requires_grad=True)
    found = log_density(omega)
    found.sum().backward()
    np.testing.assert_allclose(found.detach(), [reference(float(w)) for w in rounded], rtol=1e-6, atol=1e-6)
    expected = [reference(float(w), derivative=True) for w in rounded]
    np.testing.assert_allclose(omega.grad, expected, rtol=1e-5, atol=1e-5)


def test_derivatives_by_differences():
    omega = double([0.01, 0.1, 0.24, 0.26, 1.0, 5.0]).requires_grad_()
    assert torch.autograd.gradcheck(log_density, omega)
    assert torch.autograd.gradgradcheck(log_density, omega)


@pytest.mark.parametrize("f", [0.0, 0.5, 2.0, 10.0, 40.0])
def test_mixing_gives_the_logistic_function(f):
    """½ ∫ exp(f/2 − ωf²/2) PG(ω; 1, 0) dω = σ(f)."""

    def integrand(log_omega: float) -> float:
        omega = math.exp(log_omega)
        return 0.5 * math.exp(log_density(double(omega)).item() + log_omega + f / 2 - omega * f * f / 2)

    mass, _ = quad(integrand, -9.0, 4.0, points=[-6.0, -4.0, -2.0, 0.0], epsabs=1e-13, epsrel=1e-11, limit=200)
    assert mass == pytest.approx(1 / (1 + math.exp(-f)), rel=1e-10)


def test_density_of_pyro_where_its_series_converges():
    """Pyro sums seven terms of the series for small ω, which is right up to about 1.25."""
    distributions = pytest.importorskip("pyro.distributions")
    omega = torch.linspace(0.02, 1.25, 50, dtype=torch.float64)
    theirs = distributions.TruncatedPolyaGamma(torch.ones((), dtype=torch.float64)).log_prob(omega)
    torch.testing.assert_close(log_density(omega), theirs, rtol=1e-6, atol=1e-6)


def exact_divergence(location: float, scale: float) -> float:
    """By evenly spaced nodes in log ω, so close that nothing is left to converge."""
    x = np.linspace(-12, 12, 4001)
    weight = np.exp(-0.5 * x**2) / np.exp(-0.5 * x**2).sum()
    expected = weight @ log_density(double(np.exp(location + scale * x))).numpy()
    return -location - math.log(scale) - 0.5 * math.log(2 * math.pi * math.e) - expected


EXACT = np.array([[exact_divergence(location, scale) for location in LOCATIONS] for scale in SCALES])


def quadrature_error(n_nodes: int, scales=SCALES, exact=EXACT) -> np.ndarray:
    """Largest error over all locations, for each scale."""
    location, scale = np.broadcast_arrays(LOCATIONS, scales[:, None])
    found = LogNormal(double(location), double(scale)).divergence(n_nodes).numpy()
    return np.abs(found - exact).max(axis=1)


def test_how_many_nodes_the_divergence_needs():
    """For an error of 1e-6: 8 nodes up to scale 0.4, 20 at the start of training, 32 up to scale 1."""
    assert (quadrature_error(8) < 1e-6).tolist() == [True, True, True, False, False]
    assert (quadrature_error(20) < 1e-6).tolist() == [True, True, True, True, False]
    assert (quadrature_error(32) < 1e-6).all()
    assert (quadrature_error(64) < 1e-10).all()


def test_wide_distributions_need_more_nodes():
    scales = np.array([1.5, 2.0])
    exact = np.array([[exact_divergence(location, scale) for location in LOCATIONS] for scale in scales])
    assert (quadrature_error(32, scales, exact) < 3e-4).all()
    assert (quadrature_error(96, scales, exact) < 1e-6).all()


def test_the_start_is_closest_to_the_prior():
    def divergence(parameters: np.ndarray) -> float:
        return LogNormal(double(parameters[0]), double(math.exp(parameters[1]))).divergence(64).item()

    best = minimize(divergence, [-1.0, 0.0], method="Nelder-Mead", options={"xatol": 1e-6, "fatol": 1e-12})
    assert round(best.x[0], 2) == CLOSEST_LOCATION
    assert round(math.exp(best.x[1]), 2) == CLOSEST_SCALE
    assert 0 < best.fun < 0.011


def test_divergence_is_the_average_of_samples(generator):
    q = LogNormal(double(-2.0), double(0.6))
    draws = q.sampled_divergence(torch.randn(200_000, dtype=torch.float64, generator=generator))
    error = (draws.std() / len(draws) ** 0.5).item()
    assert draws.mean().item() == pytest.approx(q.divergence().item(), abs=4 * error)
    assert error < 2e-3


def test_samples_are_a_function_of_their_noise():
    noise = double([-1.0, 0.0, 2.0])
    sample = LogNormal(double(-1.0), double(0.5)).sample(noise)
    torch.testing.assert_close(sample.log(), -1.0 + 0.5 * noise)


def test_gradients_of_the_divergence():
    location, scale = double([[-4.0, -1.69], [0.5, -1.4]]).requires_grad_(), double([[0.3, 0.77], [1.0, 0.01]])
    scale.requires_grad_()
    noise = double([[0.3, -1.0], [2.0, 0.1]])
    assert torch.autograd.gradcheck(lambda m, s: LogNormal(m, s).divergence(), (location, scale))
    assert torch.autograd.gradcheck(lambda m, s: LogNormal(m, s).sampled_divergence(noise), (location, scale))


def test_divergence_in_single_precision():
    location, scale = np.broadcast_arrays(LOCATIONS, SCALES[:, None])
    single = LogNormal(torch.tensor(location, dtype=torch.float32), torch.tensor(scale, dtype=torch.float32))
    np.testing.assert_allclose(single.divergence(), EXACT, rtol=2e-6, atol=2e-6)
