"""Counts as numbers with normal noise: what they show, and what is lost."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.stats import binom, nbinom, norm

from candid.likelihoods import Bernoulli, Binomial, NegativeBinomial, make_sites, new_observations
from candid.likelihoods.normal_sites import normal_observations
from candid.marginal import Batch, Marginal

Y = torch.tensor([[0.0], [3.0], [90.0], [7.0]]).double()
TRIALS = torch.tensor([[1.0], [4.0], [100.0], [7.0]]).double()
KINDS = {"binomial": Binomial(TRIALS), "negative binomial": NegativeBinomial(2.5).double()}
MEAN = torch.tensor([[0.3], [-1.0], [2.0], [0.1]]).double()
VARIANCE = torch.tensor([[0.5], [2.0], [0.2], [4.0]]).double()
ALL = torch.arange(4)


@pytest.fixture(params=KINDS)
def likelihood(request):
    return KINDS[request.param]


def batch(weight=(1.0, 1.0, 1.0, 1.0)) -> Batch:
    return Batch(torch.zeros(4, 1).double(), Y, torch.tensor(weight).double(), total=40.0, index=ALL)


def predicted() -> Marginal:
    return Marginal(MEAN, VARIANCE, torch.zeros_like(MEAN))


def log_density(likelihood, row: int, f: np.ndarray) -> np.ndarray:
    probability, y = 1 / (1 + np.exp(-f)), Y[row].item()
    if isinstance(likelihood, Binomial):
        return binom.logpmf(y, TRIALS[row].item(), probability)
    return nbinom.logpmf(y, likelihood.concentration.value.item(), 1 - probability)


def divergence_by_integration(likelihood, row: int, target: float, precision: float) -> float:
    """KL of N(f; μ, σ²) N(t; f, 1/λ), normalised, from N(f; μ, σ²) p(y|f), normalised."""
    prior = norm(MEAN[row].item(), VARIANCE[row].item() ** 0.5)
    f = np.linspace(prior.mean() - 12 * prior.std(), prior.mean() + 12 * prior.std(), 40_001)
    logs = [prior.logpdf(f) + log_density(likelihood, row, f), prior.logpdf(f) - 0.5 * precision * (f - target) ** 2]
    step = f[1] - f[0]
    true, q = (part - part.max() - np.log(np.exp(part - part.max()).sum() * step) for part in logs)
    return float((np.exp(q) * (q - true)).sum() * step)


def test_targets_and_noise_start_with_what_counts_say_by_themselves(likelihood):
    targets, variance = make_sites(likelihood, Y)(ALL)
    failures = TRIALS - Y if isinstance(likelihood, Binomial) else likelihood.concentration.value.detach()
    torch.testing.assert_close(targets, torch.log((Y + 0.5) / (failures + 0.5)))
    torch.testing.assert_close(variance, 1 / (Y + 0.5) + 1 / (failures + 0.5))


def test_penalty_is_a_divergence(likelihood):
    sites, weight = make_sites(likelihood, Y), (1.0, 3.0, 0.5, 2.0)
    with torch.no_grad():
        sites.shift.copy_(torch.tensor([[0.3], [-0.2], [0.5], [0.0]]))
        sites.log_ratio.copy_(torch.tensor([[0.1], [0.4], [-0.6], [0.2]]))
    targets, variance = (part.squeeze(-1).tolist() for part in sites(ALL))
    each = [divergence_by_integration(likelihood, n, targets[n], 1 / variance[n]) for n in range(4)]
    found = sites.penalties(batch(weight), predicted())["kl_aux"].item()
    assert found == pytest.approx(40.0 * np.average(each, weights=weight), rel=1e-5)


def test_it_is_least_where_new_observations_are(likelihood):
    sites, at_rows = make_sites(likelihood, Y), likelihood.at(ALL)
    with torch.no_grad():
        targets, precision = new_observations(likelihood, at_rows, Y, MEAN, VARIANCE)
        sites.shift.copy_((targets - sites.start) / sites.deviation)
        sites.log_ratio.copy_((precision * sites.deviation.square()).log())
    torch.testing.assert_close(sites(ALL), (targets, 1 / precision))
    gradients = torch.autograd.grad(sites.penalties(batch(), predicted())["kl_aux"], sites.own_parameters())
    assert all(gradient.is_sparse and gradient.to_dense().abs().max() < 1e-3 for gradient in gradients)


@pytest.mark.parametrize("trials", [1.0, 10.0, 100.0, 1e4])
def test_little_is_lost_however_many_trials_there_are(trials):
    likelihood = Binomial(torch.full_like(Y, trials))
    y = (trials * torch.tensor([[0.1], [0.5], [0.9], [0.98]]).double()).round()
    sites = make_sites(likelihood, y)
    with torch.no_grad():
        targets, precision = new_observations(likelihood, likelihood.at(ALL), y, MEAN, VARIANCE)
        sites.shift.copy_((targets - sites.start) / sites.deviation)
        sites.log_ratio.copy_((precision * sites.deviation.square()).log())
        rows = Batch(torch.zeros(4, 1).double(), y, torch.ones(4).double(), total=4.0, index=ALL)
        lost = sites.penalties(rows, predicted())["kl_aux"].item() / 4
    assert 0 < lost < 0.01


def test_what_others_predict_does_not_move_them(likelihood):
    targets, variance = make_sites(likelihood, Y)(ALL)
    assert not targets.requires_grad
    assert not variance.requires_grad


def test_normal_noise_is_found_exactly():
    """For a normal likelihood the best observation is the observation."""

    class Normal:
        def expected_log_density(self, y, mean, variance):
            return -0.5 * ((y - mean).square() + variance) / 0.3

    start = torch.zeros_like(Y), torch.ones_like(Y)
    targets, precision = normal_observations(Normal(), Y, MEAN, VARIANCE, start)
    torch.testing.assert_close(targets, Y, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(precision, torch.full_like(Y, 1 / 0.3), rtol=1e-6, atol=0)


def test_labels_of_new_rows_have_what_is_predicted():
    likelihood, y = Bernoulli(), torch.tensor([[1.0], [0.0], [1.0], [1.0]]).double()
    found = new_observations(likelihood, likelihood.at(), y, MEAN, VARIANCE)
    torch.testing.assert_close(found, likelihood.at().pseudo_observations(y, MEAN, VARIANCE))
