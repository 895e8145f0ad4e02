"""Normal observations in the place of others, and what a model starts from."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.integrate import quad
from scipy.stats import norm

from candid.likelihoods import Bernoulli, Binomial, Gaussian, NegativeBinomial, Softmax, StudentT
from candid.likelihoods.bernoulli import LogitRows
from candid.likelihoods.counts import BinomialRows, NegativeBinomialRows
from candid.likelihoods.polya_gamma import expected_log_bound, mean_precision


def entry(value: float) -> torch.Tensor:
    return torch.full((1, 1), value, dtype=torch.float64)


def test_mean_of_a_polya_gamma_variable():
    c = np.array([1e-9, 1e-3, 0.9e-3, 1.1e-3, 0.5, 3.0, 40.0])
    np.testing.assert_allclose(mean_precision(torch.from_numpy(c)), np.tanh(c / 2) / (2 * c), rtol=1e-12)
    assert mean_precision(torch.zeros(())) == 0.25


@pytest.mark.parametrize(
    ("rows", "y"),
    [
        (LogitRows(), 1.0),
        (LogitRows(), 0.0),
        (BinomialRows(entry(7.0)), 5.0),
        (NegativeBinomialRows(entry(2.5)), 4.0),
    ],
)
def test_bounds_touch_at_no_variance_and_their_gradients_are_those_of_pseudo_observations(rows, y):
    y, mean = entry(y), entry(0.7).requires_grad_()
    variance = entry(0.4).requires_grad_()
    exact, bound = (getattr(rows, name)(y, mean, variance) for name in ("expected_log_density", "expected_log_bound"))
    assert bound < exact
    bound.sum().backward()
    target, precision = rows.pseudo_observations(y, mean.detach(), variance.detach())
    # ∂/∂mean = precision·(target − mean), ∂/∂variance = −½ precision
    torch.testing.assert_close(mean.grad, precision * (target - mean.detach()))
    torch.testing.assert_close(variance.grad, -0.5 * precision)
    nothing = torch.zeros_like(variance)
    torch.testing.assert_close(
        rows.expected_log_bound(y, mean, nothing), rows.expected_log_density(y, mean, nothing), rtol=1e-6, atol=1e-7
    )


def test_the_bound_is_the_best_in_its_c():
    power, slope, mean, variance = entry(3.0), entry(0.5), entry(1.2), entry(0.8)
    best = expected_log_bound(power, slope, mean, variance).item()
    square = 1.2**2 + 0.8

    def bound(c):
        omega = np.tanh(c / 2) / (2 * c)
        return 3 * (-np.log1p(np.exp(-c)) - c / 2 - 0.5 * omega * (square - c**2)) + 0.5 * 1.2

    assert best == pytest.approx(bound(np.sqrt(square)), abs=1e-12)
    assert all(bound(c) < best for c in (0.1, 1.0, 1.3, 1.8, 4.0))


def test_students_precision_is_that_of_the_best_gamma():
    """E λ of q(λ) ∝ p(λ) exp E log N(y; f, s²/λ)."""
    likelihood = StudentT(0.5, 5.0)
    y, mean, variance = entry(2.0), entry(0.3), entry(0.2)
    target, precision = likelihood.double().at().pseudo_observations(y, mean, variance)
    misfit = ((2.0 - 0.3) ** 2 + 0.2) / 0.5**2

    def weight(lam):
        return lam ** (0.5 * 5 - 1) * np.exp(-0.5 * 5 * lam) * np.sqrt(lam) * np.exp(-0.5 * lam * misfit)

    expected = quad(lambda lam: lam * weight(lam), 0, 20)[0] / quad(weight, 0, 20)[0]
    assert target.item() == 2.0
    assert precision.item() == pytest.approx(expected / 0.5**2, rel=1e-6)


def test_softmax_observations_are_those_of_a_bound(draw):
    """log Σ exp(f) ≤ a + Σ [log(1 + exp(c)) + ½(x − c) + ½ E[ω](x² − c²)] with x = f − a; a and c are the best ones."""
    mean, variance, y = draw(1, 4), 0.3 * draw(1, 4).square() + 0.1, torch.tensor([[2.0]], dtype=torch.float64)
    target, precision = Softmax().at().pseudo_observations(y, mean, variance)
    chosen = torch.tensor([[0.0, 0.0, 1.0, 0.0]], dtype=torch.float64)
    shifts = target - (chosen - 0.5) / precision
    shift = shifts[0, 0]
    torch.testing.assert_close(shifts, shift.expand_as(shifts))

    def bound(f, a, c):
        x = f - a
        omega = torch.tanh(c / 2) / (2 * c)
        each = torch.log1p(torch.exp(c)) + 0.5 * (x - c) + 0.5 * omega * (x.square() - c.square())
        return a + each.sum(-1)

    def width(a):
        return torch.sqrt((mean - a).square() + variance)

    torch.testing.assert_close(precision, torch.tanh(width(shift) / 2) / (2 * width(shift)))
    f = 3 * draw(500, 4)
    assert (bound(f, shift, width(shift)) >= torch.logsumexp(f, -1)).all()
    # On average over f, no other a is better; the bound is linear in the second moments.
    root = torch.sqrt(mean.square() + variance)
    averages = [
        bound(mean, a, width(a))
        + 0.5 * (torch.tanh(width(a) / 2) / (2 * width(a)) * (root.square() - mean.square())).sum()
        for a in (shift, shift - 0.3, shift + 0.3)
    ]
    assert averages[0] < averages[1]
    assert averages[0] < averages[2]


def test_gaussian_observations_are_themselves(draw):
    y = draw(5, 2)
    target, precision = Gaussian(0.3, 2).double().at().pseudo_observations(y, draw(5, 2), draw(5, 2).square())
    assert torch.equal(target, y)
    torch.testing.assert_close(precision, torch.full((5, 2), 1 / 0.3, dtype=torch.float64), rtol=1e-6, atol=0)


def test_surrogates_of_labels():
    y = torch.tensor([[0.0], [1.0]], dtype=torch.float64)
    surrogate = Bernoulli().surrogate(y)
    torch.testing.assert_close(surrogate.targets, torch.tensor([[-2.0], [2.0]], dtype=torch.float64))
    assert surrogate.unit == 4
    # The same as the slope and curvature of log Φ at zero, nearly.
    probit = Bernoulli("probit").surrogate(y)
    slope = norm.pdf(0) / norm.cdf(0)
    assert probit.targets[1, 0].item() == pytest.approx(1 / slope, rel=0.1)
    assert probit.unit == pytest.approx(1 / slope**2, rel=0.2)
    both = Softmax(2).surrogate(y)
    torch.testing.assert_close(both.targets, torch.tensor([[2.0, -2.0], [-2.0, 2.0]], dtype=torch.float64))
    assert Softmax(5).surrogate(y).targets.shape == (2, 5)


def test_surrogates_of_counts():
    counts = torch.tensor([[0.0], [3.0], [10.0]], dtype=torch.float64)
    binomial = Binomial(entry(10.0)).surrogate(counts)
    assert binomial.targets[0] == -binomial.targets[2]
    assert binomial.variance[1] < binomial.variance[0]
    likelihood = NegativeBinomial(2.0).double()
    np.testing.assert_allclose(likelihood.surrogate(counts).targets, np.log((counts.numpy() + 0.5) / 2))


def test_a_concentration_starts_from_what_noise_is_left():
    """log y of counts with mean 100 and concentration 4 has a variance of about 1/4."""
    y = torch.as_tensor(np.random.default_rng(0).negative_binomial(4, 4 / 104, size=(4000, 1)).astype(float))
    likelihood = NegativeBinomial().double()
    likelihood.adopt(torch.log(y + 0.5).var(0, keepdim=True), y)
    assert likelihood.concentration.value.item() == pytest.approx(4.0, rel=0.25)


def test_outliers_come_closer_before_a_start():
    y = torch.cat([torch.linspace(-1, 1, 101, dtype=torch.float64), torch.tensor([1e6], dtype=torch.float64)])
    targets = StudentT().surrogate(y.unsqueeze(-1)).targets
    torch.testing.assert_close(targets[:101, 0], y[:101])
    assert targets[101] < 10
    likelihood = StudentT(freedom=4.0)
    likelihood.adopt(torch.tensor([[0.5]]), y)
    assert likelihood.scale.value.item() == pytest.approx(0.5)
