from __future__ import annotations

import math

import pytest
import torch

from candid.likelihoods import Gaussian, GaussianRows, PartlyObserved

TERMS = {"expected_log_density": (), "log_expected_density": (), "robust_score": (1.05,)}


@pytest.fixture
def rows():
    torch.manual_seed(0)
    y, mean, variance = torch.randn(6, 2).double(), torch.randn(6, 2).double(), torch.rand(6, 2).double() + 0.1
    return y, mean, variance, torch.tensor([[0.3, 0.6]]).double()


@pytest.mark.parametrize(("term", "options"), TERMS.items(), ids=TERMS)
def test_entries_that_are_there_count_as_ever(term, options, rows):
    y, mean, variance, noise = rows
    expected = getattr(GaussianRows(noise), term)(y, mean, variance, *options)
    expected[2, 1] = expected[4, 0] = 0.0
    gaps = y.clone()
    gaps[2, 1] = gaps[4, 0] = math.nan
    partly = PartlyObserved(y, Gaussian(n_outputs=2, known=noise.expand(6, 2))).at(torch.arange(6))
    leaves = [mean.requires_grad_(), variance.requires_grad_()]
    found = getattr(partly, term)(gaps, *leaves, *options)
    torch.testing.assert_close(found, expected)
    assert all(gradient.isfinite().all() for gradient in torch.autograd.grad(found.sum(), leaves))


def test_an_unobserved_entry_has_no_precision(rows):
    y, mean, variance, noise = rows
    gaps = y.clone()
    gaps[2, 1] = math.nan
    partly = PartlyObserved(y, Gaussian(n_outputs=2, known=noise.expand(6, 2))).at(None)
    targets, precision = partly.blurred(torch.ones(1, 2).double()).pseudo_observations(gaps, mean, variance)
    assert targets.isfinite().all()
    expected = (1 / (1 + noise)).expand(6, 2).clone()
    expected[2, 1] = 0.0
    torch.testing.assert_close(precision, expected)


def test_a_start_sees_guesses(rows):
    y = rows[0]
    gaps = torch.where(torch.rand(y.shape) < 0.3, torch.nan, y)
    likelihood = PartlyObserved(y, Gaussian(n_outputs=2))
    torch.testing.assert_close(likelihood.surrogate(gaps).targets, y)
    likelihood.adopt(torch.tensor([[0.4, 1e-9]]), gaps)
    torch.testing.assert_close(likelihood.at().variance, torch.tensor([[0.4, 2e-4]]))
