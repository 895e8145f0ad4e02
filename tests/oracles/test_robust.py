"""The γ-robust objective against numerical integration of its definition, and the properties that it is used for.

With p = N(y; f, σ²), g = γ − 1 and f ~ q:   (γ/g) (E_q[p^g] / (∫p^γ dy)^(g/γ) − 1).
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from scipy.integrate import quad
from scipy.optimize import minimize_scalar
from scipy.stats import norm

from candid.likelihoods import GaussianRows
from candid.marginal import Marginal
from candid.objectives import elbo, robust
from small_models import random_rows, sparse_problem

GAMMAS = [1.01, 1.07, 1.5, 2.0]
# y, mean, residual, spread, noise variance
ROWS = [(0.3, -0.2, 0.3, 0.2, 0.1), (2.0, 0.0, 1e-3, 0.0, 0.7), (-4.0, 1.0, 0.0, 0.0, 0.2), (0.1, 0.0, 2.0, 5.0, 0.01)]
NODES, NODE_WEIGHTS = np.polynomial.hermite_e.hermegauss(80)


def ours(y, mean, residual, spread, noise, gamma) -> float:
    row = [torch.tensor([[value]], dtype=torch.float64) for value in (y, mean, residual, spread, noise)]
    return robust(Marginal(*row[1:4]), GaussianRows(row[4]), row[0], gamma=gamma).item()


def by_integration(y, mean, variance, noise, gamma) -> float:
    g, scale = gamma - 1, np.sqrt(noise)
    average = np.exp(g * norm.logpdf(y, mean, scale))
    if variance:
        reach = 9 * np.sqrt(variance)
        average, _ = quad(
            lambda f: np.exp(norm.logpdf(f, mean, np.sqrt(variance)) + g * norm.logpdf(y, f, scale)),
            mean - reach,
            mean + reach,
            points=[mean, float(np.clip(y, mean - reach, mean + reach))],
            limit=200,
        )
    integral, _ = quad(lambda v: norm.pdf(v, 0.0, scale) ** gamma, -12 * scale, 12 * scale, points=[0.0])
    return gamma / g * (average / integral ** (g / gamma) - 1)


@pytest.mark.parametrize("gamma", GAMMAS)
@pytest.mark.parametrize("row", ROWS)
def test_numerical_integration(row, gamma):
    y, mean, residual, spread, noise = row
    expected = by_integration(y, mean, residual + spread, noise, gamma)
    assert ours(*row, gamma) == pytest.approx(expected, rel=1e-7)


def expected_score(noise: float, truth: float, variance: float, gamma: float, multiply: bool = False) -> float:
    """Average over y ~ N(0, truth) of the score at f ~ N(0, variance), by Gauss–Hermite quadrature.

    With ``multiply`` the integral multiplies, as in public code.
    """
    y = np.sqrt(truth) * NODES
    scores = np.array([ours(value, 0.0, 0.4 * variance, 0.6 * variance, noise, gamma) for value in y])
    if multiply:
        g = gamma - 1
        log_integral = -0.5 * g * np.log(2 * np.pi * noise) - 0.5 * np.log(gamma)
        # From E_q[p^g] / I^(g/γ) − 1 to E_q[p^g] · I^(g/γ) − 1
        scores = gamma / g * ((g / gamma * scores + 1) * np.exp(2 * g / gamma * log_integral) - 1)
    return float(NODE_WEIGHTS @ scores / NODE_WEIGHTS.sum())


def best_noise(truth: float, variance: float, gamma: float, multiply: bool = False) -> float:
    found = minimize_scalar(
        lambda log_noise: -expected_score(np.exp(log_noise), truth, variance, gamma, multiply),
        bounds=(np.log(truth) - 2, np.log(truth + variance) + 2),
        method="bounded",
        options={"xatol": 1e-7},
    )
    return float(np.exp(found.x))


@pytest.mark.parametrize("gamma", [1.03, 1.3])
def test_the_score_is_proper(gamma):
    """Its expectation is largest at the true noise, to which uncertainty of f adds."""
    assert best_noise(0.3, 0.0, gamma) == pytest.approx(0.3, rel=1e-4)
    assert best_noise(0.3, 0.2, gamma) == pytest.approx(0.5, rel=1e-4)


def test_with_a_multiplying_integral_it_is_not_proper():
    """Then the best noise is γ/(2γ−1) − (γ−1) times the true one."""
    for gamma in (1.03, 1.3):
        share = gamma / (2 * gamma - 1) - (gamma - 1)
        assert share < 0.95
        assert best_noise(0.3, 0.0, gamma, multiply=True) / 0.3 == pytest.approx(share, rel=1e-4)


@pytest.mark.parametrize("row", ROWS)
def test_the_limit_is_the_elbo(row):
    """The error is proportional to γ − 1, without a constant that diverges."""
    tensors = [torch.tensor([[value]], dtype=torch.float64) for value in row]
    limit = elbo(Marginal(*tensors[1:4]), GaussianRows(tensors[4]), tensors[0]).item()
    errors = [ours(*row, 1 + g) - limit for g in (1e-5, 1e-6, 1e-7)]
    assert abs(errors[2]) < 1e-4 * max(1.0, limit**2)
    for larger, smaller in itertools.pairwise(errors):
        assert smaller / larger == pytest.approx(0.1, rel=0.1)


def test_outliers_cost_a_bounded_amount():
    gamma = 1.05
    costs = [ours(y, 0.0, 0.1, 0.1, 0.1, gamma) for y in (5.0, 50.0, 5000.0)]
    assert costs[0] > costs[1] >= costs[2] == pytest.approx(-gamma / (gamma - 1))


def test_single_precision(draw):
    """At γ − 1 = 0.01 nearly everything cancels before the factor γ/g; float32 keeps five digits."""
    mean, residual, spread = draw(200, 2), draw(200, 2).square(), draw(200, 2).square()
    noise, y = torch.tensor([[0.05, 0.5]], dtype=torch.float64), draw(200, 2)

    def loss(dtype):
        parts = [part.to(dtype).requires_grad_() for part in (mean, residual, spread, noise)]
        value = robust(Marginal(*parts[:3]), GaussianRows(parts[3]), y.to(dtype), gamma=1.01)
        return value.detach().double(), [grad.double() for grad in torch.autograd.grad(value.sum(), parts)]

    (single, single_grads), (double, double_grads) = loss(torch.float32), loss(torch.float64)
    torch.testing.assert_close(single, double, rtol=1e-5, atol=1e-5)
    for ours_, theirs in zip(single_grads, double_grads, strict=True):
        torch.testing.assert_close(ours_, theirs, rtol=1e-4, atol=1e-4)


def test_gamma_reaches_the_loss():
    """A whole problem: −Σ score/N + β KL/N, with γ from the options; without them it is 1.03."""
    rows = random_rows(12, n_outputs=2, seed=1)
    problem = sparse_problem(rows, "full", "robust", n_points=4, beta=0.5, seed=2)
    marginal = problem.family.evaluate(rows.whole()).marginal
    noise = problem.likelihood.at().variance.detach().numpy()[0]
    for options, gamma in (({}, 1.03), ({"gamma": 1.2}, 1.2)):
        problem.options = options
        scores = [
            by_integration(y.item(), mean.item(), v.item(), noise[k], gamma)
            for k in range(2)
            for y, mean, v in zip(rows.y[:, k], marginal.mean[:, k], marginal.variance[:, k], strict=True)
        ]
        expected = -sum(scores) / 12 + 0.5 * problem.family.weights.penalty().item() / 12
        assert problem.loss(rows.whole()).item() == pytest.approx(expected, rel=1e-7)
