"""Where a latent function is on average, beside closed forms."""

from __future__ import annotations

import pytest
import torch
from scipy.optimize import minimize_scalar

from candid.engines import Rows, level, likeliest_shift
from candid.likelihoods import Bernoulli, Binomial, NegativeBinomial


def rows_of(y, weight=None):
    y = torch.as_tensor(y, dtype=torch.float64)
    return Rows(torch.zeros(len(y), 1).double(), y, torch.ones(len(y)).double() if weight is None else weight)


def shift_of(likelihood, y, mean=0.0, variance=0.0, weight=None):
    rows = rows_of(y, weight)
    flat = torch.zeros_like(rows.y)
    return likeliest_shift(likelihood.double(), rows, flat + mean, flat + variance)


def test_without_variance_it_is_the_logit_of_the_share():
    labels = torch.zeros(50, 2)
    labels[:4, 0], labels[:30, 1] = 1, 1
    # Half a success and half a failure are added.
    expected = torch.logit(torch.tensor([4.5 / 51, 30.5 / 51]).double())
    torch.testing.assert_close(shift_of(Bernoulli(), labels), expected, atol=1e-6, rtol=0)
    # What the function has already need not be added.
    torch.testing.assert_close(shift_of(Bernoulli(), labels, mean=1.5), expected - 1.5, atol=1e-6, rtol=0)


@pytest.mark.parametrize("counts", [[[0.0]] * 20, [[0.0]] * 18 + [[1.0], [3.0]]])
def test_rare_counts(counts):
    total = sum(count for (count,) in counts)
    trials = torch.full((1, 1), 10.0).double()
    expected = torch.logit(torch.tensor([(total + 0.5) / (200 + 1)]).double())
    torch.testing.assert_close(shift_of(Binomial(trials), counts), expected, atol=1e-6, rtol=0)
    # mean = r·exp(f), with r failures of each row
    expected = torch.tensor([(total + 0.5) / (20 * 3.0 + 0.5)]).double().log()
    torch.testing.assert_close(shift_of(NegativeBinomial(3.0), counts), expected, atol=1e-6, rtol=0)


def test_a_weight_of_two_is_a_second_row():
    weight = torch.tensor([2.0, 1.0, 1.0]).double()
    weighted = shift_of(Bernoulli(), [[1.0], [0.0], [0.0]], variance=0.7, weight=weight)
    torch.testing.assert_close(weighted, shift_of(Bernoulli(), [[1.0], [1.0], [0.0], [0.0]], variance=0.7))


def test_variance_counts(monkeypatch):
    labels, mean = torch.zeros(30, 1).double(), torch.linspace(-1, 1, 30).double().unsqueeze(-1)
    labels[::7] = 1
    likelihood, variance = Bernoulli("probit"), torch.full_like(labels, 2.0)

    def loss(shift):
        fits = likelihood.at().log_expected_density(labels, mean + shift, variance).sum()
        both = torch.nn.functional.logsigmoid(torch.tensor([shift, -shift]).double()).sum()
        return -float(fits + 0.5 * both)

    best = minimize_scalar(loss, bracket=(-3, 0), options={"xtol": 1e-10}).x
    assert float(likeliest_shift(likelihood, rows_of(labels), mean, variance)) == pytest.approx(best, abs=1e-4)
    # Of a long table, rows from all over it are enough.
    monkeypatch.setattr(level, "MOST_ROWS", 20)
    some = likeliest_shift(likelihood, rows_of(labels), mean, variance)
    assert some == likeliest_shift(likelihood, rows_of(labels[::2]), mean[::2], variance[::2])
