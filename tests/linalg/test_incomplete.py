"""Moments of rows with gaps."""

from __future__ import annotations

import torch

from candid.linalg import incomplete_moments


def rows(n=4000):
    generator = torch.Generator().manual_seed(0)
    mixing = torch.tensor([[1.0, 0.5, 0.0], [0.0, 0.8, -0.6], [0.0, 0.0, 0.4]], dtype=torch.float64)
    return torch.randn(n, 3, generator=generator, dtype=torch.float64) @ mixing + torch.tensor([1.0, -2.0, 0.5])


def test_without_gaps_they_are_those_of_the_rows():
    y, weight = rows(50), torch.arange(1.0, 51.0, dtype=torch.float64)
    moments = incomplete_moments(y, weight)
    torch.testing.assert_close(moments.mean, weight @ y / weight.sum())
    torch.testing.assert_close(moments.covariance, y.T.cov(correction=0, aweights=weight))
    assert torch.equal(moments.expected(y), y)


def test_what_is_missing_where_another_entry_is_large():
    """Averages of what was observed would be far off."""
    whole = rows()
    y = whole.clone()
    y[whole[:, 0] > 1, 1] = torch.nan
    y[whole[:, 0] < 0, 2] = torch.nan
    moments = incomplete_moments(y)
    torch.testing.assert_close(moments.mean, whole.mean(0), rtol=0, atol=0.06)
    torch.testing.assert_close(moments.covariance, whole.T.cov(), rtol=0, atol=0.08)
    assert (y[:, 1].nanmean() - whole[:, 1].mean()).abs() > 0.2


def test_the_rest_is_expected_as_conditionals_of_a_normal_say():
    y = rows(6)
    moments = incomplete_moments(rows())
    mean, covariance = moments.mean, moments.covariance
    y[0, 1] = y[1] = torch.nan
    filled, errors = moments.expected(y), moments.errors(y)
    others = [0, 2]
    gain = covariance[1, others] @ covariance[others][:, others].inverse()
    torch.testing.assert_close(filled[0, 1], mean[1] + gain @ (y[0, others] - mean[others]))
    torch.testing.assert_close(filled[1], mean)
    torch.testing.assert_close(errors[2, 1], y[2, 1] - mean[1] - gain @ (y[2, others] - mean[others]))
    # An entry whose only company is one other.
    torch.testing.assert_close(
        errors[0, 2], y[0, 2] - mean[2] - covariance[2, 0] / covariance[0, 0] * (y[0, 0] - mean[0])
    )
    assert not errors[1].any()


def test_columns_that_tell_nothing():
    y = torch.zeros(5, 3, dtype=torch.float64)
    y[:, 1] = torch.nan
    y[0, 2] = torch.nan
    moments = incomplete_moments(y)
    assert moments.expected(y).isfinite().all()
    assert moments.errors(y).isfinite().all()
