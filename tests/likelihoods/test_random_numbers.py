"""Random numbers of rows: normal, and pure functions of their key."""

from __future__ import annotations

import torch

from candid.likelihoods.random_numbers import normal_numbers

ROWS = torch.arange(100_000)


def test_they_are_standard_normal_and_independent():
    one, other = (normal_numbers(ROWS, 2, 3, step) for step in (5, 6))
    # Of columns, of rows next to each other, and of steps
    together = torch.cat([one[:-1], one[1:], other[:-1]], dim=1)
    torch.testing.assert_close(torch.cov(together.T), torch.eye(6).double(), rtol=0, atol=0.02)
    quantiles = torch.tensor([0.001, 0.1, 0.5, 0.9, 0.999]).double()
    torch.testing.assert_close(one[:, 0].quantile(quantiles), torch.special.ndtri(quantiles), rtol=0, atol=0.1)


def test_rows_keep_their_numbers():
    every = normal_numbers(ROWS, 3, 7, 1)
    some = torch.tensor([99_999, 4, 4, 0])
    torch.testing.assert_close(normal_numbers(some, 3, 7, 1), every[some], rtol=0, atol=0)
    assert (normal_numbers(some, 3, 8, 1) != every[some]).all()
