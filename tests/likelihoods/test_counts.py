"""Binomial and negative binomial likelihoods."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.special import expit, log_expit
from scipy.stats import binom, nbinom, poisson

from candid.likelihoods.bernoulli import LogitRows
from candid.likelihoods.counts import Binomial, BinomialRows, NegativeBinomial, NegativeBinomialRows

NAMES = ["expected_log_density", "log_expected_density"]


def entry(value: float) -> torch.Tensor:
    return torch.tensor([[value]], dtype=torch.float64)


def log_powers(successes: float, failures: float):
    return lambda f: successes * log_expit(f) + failures * log_expit(-f)


@pytest.mark.parametrize(("y", "trials"), [(0.0, 1.0), (3.0, 10.0), (40.0, 40.0), (900.0, 1000.0)])
@pytest.mark.parametrize(("mean", "variance"), [(-40.0, 4.0), (-3.0, 1e-4), (0.2, 1.0), (6.0, 256.0)])
def test_binomial_averages_by_numerical_integration(y, trials, mean, variance, integrals):
    log_power, ways = log_powers(y, trials - y), binom.logpmf(y, trials, 0.5) + trials * np.log(2)
    mode = np.clip(np.log((y + 0.5) / (trials - y + 0.5)), -10, 10)
    expected_log, log_expected = integrals(log_power, mean, variance, mode)
    rows, values = BinomialRows(entry(trials)), (entry(y), entry(mean), entry(variance))
    assert rows.expected_log_density(*values).item() == pytest.approx(ways + expected_log, rel=2e-5, abs=1e-6)
    assert rows.log_expected_density(*values).item() == pytest.approx(ways + log_expected, rel=1e-7, abs=2e-5)


@pytest.mark.parametrize(("y", "concentration"), [(0.0, 0.3), (4.0, 1.0), (250.0, 7.5)])
@pytest.mark.parametrize(("mean", "variance"), [(-40.0, 4.0), (-3.0, 1e-4), (0.2, 1.0), (6.0, 256.0)])
def test_negative_binomial_averages_by_numerical_integration(y, concentration, mean, variance, integrals):
    ways = nbinom.logpmf(y, concentration, 0.5) + (y + concentration) * np.log(2)
    mode = np.log((y + 0.1) / concentration)
    expected_log, log_expected = integrals(log_powers(y, concentration), mean, variance, mode)
    rows, values = NegativeBinomialRows(entry(concentration)), (entry(y), entry(mean), entry(variance))
    assert rows.expected_log_density(*values).item() == pytest.approx(ways + expected_log, rel=2e-5, abs=1e-6)
    assert rows.log_expected_density(*values).item() == pytest.approx(ways + log_expected, rel=1e-7, abs=2e-5)


@pytest.mark.parametrize("name", NAMES)
def test_without_latent_variance_they_are_the_distributions_of_scipy(name, draw):
    f, nothing = draw(8, 2), torch.zeros(8, 2, dtype=torch.float64)
    y = torch.arange(16, dtype=torch.float64).reshape(8, 2)
    r = torch.tensor([[0.5, 3.0]], dtype=torch.float64)
    found = getattr(BinomialRows(torch.full_like(y, 20.0)), name)(y, f, nothing)
    np.testing.assert_allclose(found, binom.logpmf(y.numpy(), 20, expit(f.numpy())), rtol=1e-8)
    found = getattr(NegativeBinomialRows(r), name)(y, f, nothing)
    np.testing.assert_allclose(found, nbinom.logpmf(y.numpy(), r.numpy(), expit(-f.numpy())), rtol=1e-8)


@pytest.mark.parametrize("name", NAMES)
def test_one_trial_is_bernoulli(name, draw):
    y, mean, variance = (draw(20, 2) > 0).double(), 5 * draw(20, 2), 50 * draw(20, 2).square()
    one = BinomialRows(torch.ones(1, 1, dtype=torch.float64))
    expected = getattr(LogitRows(), name)(y, mean, variance)
    torch.testing.assert_close(getattr(one, name)(y, mean, variance), expected, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("name", NAMES)
def test_large_concentration_is_poisson(name, draw):
    y, log_rate, nothing = torch.arange(6, dtype=torch.float64).unsqueeze(1), draw(6, 1), torch.zeros(6, 1).double()
    rows = NegativeBinomialRows(entry(1e7))
    found = getattr(rows, name)(y, log_rate - np.log(1e7), nothing)
    np.testing.assert_allclose(found, poisson.logpmf(y.numpy(), log_rate.exp().numpy()), rtol=0, atol=1e-4)


def test_large_counts_in_single_precision():
    """The factorials are in the thousands, but their ratio is not."""
    y, trials, f = torch.tensor([[5000.0]]), torch.tensor([[10_000.0]]), torch.zeros(1, 1)
    found = BinomialRows(trials).log_expected_density(y, f, torch.full((1, 1), 0.01)).item()
    expected = BinomialRows(trials.double()).log_expected_density(y.double(), f.double(), entry(0.01)).item()
    assert found == pytest.approx(expected, abs=2e-3)


@pytest.mark.parametrize("name", NAMES)
def test_gradients(name, draw):
    y, trials = torch.tensor([[0.0], [3.0], [9.0]], dtype=torch.float64), entry(9.0)
    mean = (2 * draw(3, 1)).requires_grad_()
    variance = torch.tensor([[0.05], [2.0], [20.0]], dtype=torch.float64, requires_grad=True)
    r = entry(2.5).requires_grad_()
    assert torch.autograd.gradcheck(
        lambda m, v: getattr(BinomialRows(trials), name)(y, m, v), (mean, variance), atol=1e-6
    )
    assert torch.autograd.gradcheck(
        lambda r, m, v: getattr(NegativeBinomialRows(r), name)(y, m, v), (r, mean, variance), atol=1e-6
    )


@pytest.mark.parametrize("name", NAMES)
def test_chains_have_their_own_concentration(name, draw):
    likelihood = NegativeBinomial(2.0, n_outputs=2, batch_shape=(3,))
    likelihood.concentration.set(torch.tensor([0.5, 1.0, 8.0]).view(3, 1, 1))
    y, mean, variance = torch.arange(10.0).reshape(5, 2), draw(5, 2).float(), draw(5, 2).square().float()
    together = getattr(likelihood.at(), name)(y, mean, variance)
    assert together.shape == (3, 5, 2)
    alone = getattr(NegativeBinomialRows(torch.tensor([[8.0]])), name)(y, mean, variance)
    torch.testing.assert_close(together[2], alone, rtol=1e-5, atol=1e-5)


def test_trials_belong_to_training_rows():
    likelihood = Binomial(torch.tensor([[1.0], [5.0], [9.0]]))
    assert not list(likelihood.parameters())
    torch.testing.assert_close(likelihood.at(torch.tensor([2, 0])).trials, torch.tensor([[9.0], [1.0]]))
    torch.testing.assert_close(likelihood.at(None, torch.tensor([[4.0]])).trials, torch.tensor([[4.0]]))
    part = likelihood.subset(torch.tensor([2, 1]))
    torch.testing.assert_close(part.at(torch.tensor([0])).trials, torch.tensor([[9.0]]))
    assert likelihood.trials.shape == (3, 1)
    with pytest.raises(ValueError, match="numbers of trials"):
        likelihood.at(None)


def test_one_row_of_trials_holds_everywhere():
    likelihood = Binomial(torch.tensor([[12.0]]))
    for rows in (likelihood.at(None), likelihood.at(torch.tensor([7])), likelihood.subset(torch.tensor([3, 4])).at()):
        torch.testing.assert_close(rows.trials, torch.tensor([[12.0]]))


def test_concentration_is_learned():
    likelihood = NegativeBinomial(2.0)
    assert [name for name, _ in likelihood.named_parameters()] == ["concentration.raw"]
    part = likelihood.subset(torch.tensor([0]))
    part.concentration.set(5.0)
    assert likelihood.at().concentration.item() == pytest.approx(2.0)
