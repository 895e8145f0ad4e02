"""Several classes by logistic models of one against all others."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.special import expit, log_expit

from candid.likelihoods import OneAgainstAll
from candid.likelihoods.bernoulli import LogitRows

MEAN = torch.tensor([[0.3, -2.0, 5.0], [0.0, 0.0, 0.0], [-30.0, 2.0, -1.0]]).double()
VARIANCE = torch.tensor([[0.1, 4.0, 30.0], [1.0, 1.0, 1.0], [9.0, 0.0, 0.5]]).double()
LABELS = torch.tensor([[2.0], [0.0], [1.0]]).double()
ROWS = OneAgainstAll(3).at()


def test_probabilities_are_normalised_averages(integrals):
    pairs = zip(MEAN.flatten().tolist(), VARIANCE.flatten().tolist(), strict=True)
    averages = np.array([integrals(log_expit, *pair)[1] for pair in pairs]).reshape(MEAN.shape)
    expected = averages - np.log(np.exp(averages).sum(-1, keepdims=True))
    found = ROWS.log_class_probabilities(MEAN, VARIANCE)
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(found.exp().sum(-1), 1.0, rtol=1e-12)


def test_density_is_the_probability_of_the_observed_class():
    logs = ROWS.log_class_probabilities(MEAN, VARIANCE)
    expected = logs[torch.arange(3), LABELS.squeeze(-1).long()].unsqueeze(-1)
    torch.testing.assert_close(ROWS.log_expected_density(LABELS, MEAN, VARIANCE), expected)
    # Further axes are left alone.
    twice = ROWS.log_expected_density(LABELS, torch.stack([MEAN, -MEAN]), VARIANCE)
    torch.testing.assert_close(twice[0], expected)
    assert twice.shape == (2, 3, 1)


def test_certain_values_of_f():
    nothing = torch.zeros_like(MEAN)
    p = expit(MEAN.numpy())
    np.testing.assert_allclose(
        ROWS.log_class_probabilities(MEAN, nothing).exp(), p / p.sum(-1, keepdims=True), rtol=1e-6
    )


def test_other_averages_are_those_of_the_models():
    signs = torch.tensor([[0.0, 0.0, 1.0], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]).double()
    for name in ("expected_log_density", "pseudo_observations"):
        found, expected = (getattr(rows, name)(y, MEAN, VARIANCE) for rows, y in ((ROWS, LABELS), (LogitRows(), signs)))
        torch.testing.assert_close(found, expected)


def test_gradient():
    mean, variance = MEAN[:2].clone().requires_grad_(), VARIANCE[:2].clone().requires_grad_()
    torch.autograd.gradcheck(lambda m, v: ROWS.log_expected_density(LABELS[:2], m, v), (mean, variance))


@pytest.mark.parametrize("n_classes", [2, 4])
def test_surrogate_has_a_column_for_each_class(n_classes):
    y = torch.arange(n_classes).double().unsqueeze(-1)
    surrogate = OneAgainstAll(n_classes).surrogate(y)
    torch.testing.assert_close(surrogate.targets, 4 * torch.eye(n_classes).double() - 2)
    assert surrogate.unit == 4.0
