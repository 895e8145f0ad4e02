"""Several classes."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.special import log_softmax

from candid.likelihoods.bernoulli import LogitRows
from candid.likelihoods.softmax import Softmax, SoftmaxRows, _log_shifted_average, _shift
from candid.marginal import Marginal
from candid.objectives import elbo, predictive

NAMES = ["expected_log_density", "log_expected_density"]
MEANS = {
    3: [[0.0, 0.0, 0.0], [-6.0, 0.5, 1.0], [4.0, -1.0, 2.0]],
    8: [[0.0, 1.0, -1.0, 2.0, -2.0, 0.5, 1.5, -0.5], [-5.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 3.0]],
}


def exact(mean: np.ndarray, variance: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """E log p and E p of every class by one-dimensional integrals.

    With S = Σ exp(f), log S = ∫ (exp(−e⁻ᵘ) − exp(−S e⁻ᵘ)) du and exp(f)/S = ∫ exp(f − u) exp(−S e⁻ᵘ) du. Given u, the
    classes are independent.
    """
    deviation, step = np.sqrt(variance), 0.05
    u = np.arange((mean - 9 * deviation).min() - 8, (mean + 9 * deviation).max() + 40, step)
    x = np.linspace(-9, 9, 401)
    weight = np.exp(-0.5 * x**2) / np.exp(-0.5 * x**2).sum()
    scaled = np.exp(np.minimum(mean[:, None, None] + deviation[:, None, None] * x - u[:, None], 50.0))
    survival, density = np.exp(-scaled) @ weight, (scaled * np.exp(-scaled)) @ weight
    all_survive = survival.prod(axis=0)
    normaliser = step * (np.exp(-np.exp(-u)) - all_survive).sum()
    others = [np.delete(survival, k, axis=0).prod(axis=0) for k in range(len(mean))]
    return mean - normaliser, step * (density * others).sum(axis=1)


def labels(n_classes: int) -> torch.Tensor:
    return torch.arange(n_classes, dtype=torch.float64).unsqueeze(1)


@pytest.mark.parametrize(("variance", "tolerance"), [(1e-4, 1e-6), (0.2, 1e-3), (1.0, 5e-3), (4.0, 0.03), (16.0, 0.1)])
@pytest.mark.parametrize("n_classes", MEANS)
def test_both_averages_by_numerical_integration(n_classes, variance, tolerance):
    for means in MEANS[n_classes]:
        variances = variance * np.linspace(0.4, 1.0, n_classes)
        expected_log, probability = exact(np.array(means), variances)
        assert probability.sum() == pytest.approx(1.0, abs=1e-6)
        # One row for each class that could have been observed.
        mean, spread = torch.tensor(means).double().repeat(n_classes, 1), torch.tensor(variances).repeat(n_classes, 1)
        rows, y = SoftmaxRows(), labels(n_classes)
        found = rows.expected_log_density(y, mean, spread).squeeze(-1)
        np.testing.assert_allclose(found, expected_log, rtol=0, atol=tolerance)
        found = rows.log_expected_density(y, mean, spread).squeeze(-1)
        np.testing.assert_allclose(found, np.log(probability), rtol=0, atol=tolerance)
        found = rows.log_class_probabilities(mean[:1], spread[:1]).exp()
        np.testing.assert_allclose(found[0], probability, rtol=0, atol=tolerance / 5)


def test_more_nodes_are_closer():
    mean, variance = torch.tensor(MEANS[3], dtype=torch.float64), torch.full((3, 3), 4.0, dtype=torch.float64)
    truth = np.array([exact(row, np.full(3, 4.0))[0][k] for k, row in enumerate(np.array(MEANS[3]))])
    errors = [
        np.abs(SoftmaxRows(n).expected_log_density(labels(3), mean, variance).squeeze(-1).numpy() - truth).max()
        for n in (64, 4096)
    ]
    assert errors[1] < 0.1 * errors[0]


@pytest.mark.parametrize("name", NAMES)
def test_without_latent_variance_both_are_the_density(name, draw):
    mean, y = 3 * draw(4, 4), labels(4)
    found = getattr(SoftmaxRows(), name)(y, mean, torch.zeros(4, 4, dtype=torch.float64))
    np.testing.assert_allclose(found.squeeze(-1), log_softmax(mean.numpy(), axis=1).diagonal(), rtol=0, atol=1e-7)


@pytest.mark.parametrize("name", NAMES)
def test_two_classes_are_the_logistic_function_of_the_difference(name, draw):
    y, mean, variance = (draw(30, 1) > 0).double(), 2 * draw(30, 2), draw(30, 2).square().clamp_max(2.0)
    found = getattr(SoftmaxRows(1024), name)(y, mean, variance)
    difference = mean[:, 1:] - mean[:, :1], variance.sum(1, keepdim=True)
    torch.testing.assert_close(found, getattr(LogitRows(), name)(y, *difference), rtol=0, atol=2e-3)


def test_a_surprising_class_keeps_its_probability():
    """Nodes around the mean would miss where the probability comes from."""
    mean, variance = torch.zeros(1, 5, dtype=torch.float64), torch.full((1, 5), 4.0, dtype=torch.float64)
    mean[0, 2] = -12.0
    _, probability = exact(mean[0].numpy(), variance[0].numpy())
    found = SoftmaxRows().log_expected_density(torch.full((1, 1), 2.0, dtype=torch.float64), mean, variance).item()
    assert found == pytest.approx(math.log(probability[2]), abs=0.01)


def test_class_probabilities_sum_to_one(draw):
    logs = SoftmaxRows().log_class_probabilities(draw(2, 7, 3), draw(2, 7, 3).square())
    assert logs.shape == (2, 7, 3)
    torch.testing.assert_close(logs.exp().sum(-1), torch.ones(2, 7, dtype=torch.float64))


def test_gradients_with_given_nodes(draw):
    """As functions of mean and variance both averages have the gradient of a sum over fixed nodes."""
    y, rows = labels(3), SoftmaxRows(16)
    mean, variance = draw(3, 3).requires_grad_(), (0.1 + draw(3, 3).square()).requires_grad_()
    assert torch.autograd.gradcheck(lambda m, v: rows.expected_log_density(y, m, v), (mean, variance))
    label, nodes = y.long(), rows._nodes(mean)
    shift = _shift(label, mean, variance.sqrt())
    assert torch.autograd.gradcheck(
        lambda m, v: _log_shifted_average(label, m, v.sqrt(), shift, nodes), (mean, variance)
    )


def test_gradients_are_those_of_the_integrals():
    mean, variance = np.array(MEANS[3][1]), np.array([0.5, 1.0, 2.0])
    place = [torch.tensor(value).unsqueeze(0).requires_grad_() for value in (mean, variance)]
    for number, name in enumerate(NAMES):
        value = getattr(SoftmaxRows(4096), name)(torch.zeros(1, 1, dtype=torch.float64), *place)
        found = torch.cat(torch.autograd.grad(value.sum(), place)).flatten()

        def truth(point: np.ndarray, number=number) -> float:
            average = exact(point[:3], point[3:])[number][0]
            return average if number == 0 else math.log(average)

        point, small = np.concatenate([mean, variance]), 1e-3
        expected = [(truth(point + small * e) - truth(point - small * e)) / (2 * small) for e in np.eye(6)]
        np.testing.assert_allclose(found, expected, rtol=0, atol=5e-3)


@pytest.mark.parametrize("name", NAMES)
def test_single_precision_is_finite_everywhere(name):
    mean = torch.tensor([[-1e3, 0.0, 1e3], [0.0, 0.0, 0.0], [30.0, -30.0, 5.0]]).requires_grad_()
    variance = torch.tensor([[0.0, 0.0, 0.0], [256.0, 0.0, 1e-8], [1.0, 1e3, 4.0]]).requires_grad_()
    value = getattr(Softmax().at(), name)(labels(3).float(), mean, variance)
    gradients = torch.autograd.grad(value.sum(), (mean, variance))
    assert value.dtype == torch.float32
    assert all(bool(part.isfinite().all()) for part in (value, *gradients))


@pytest.mark.parametrize("name", NAMES)
def test_rows_of_chains_and_sites(name, draw):
    y, mean, variance = labels(5), draw(2, 3, 5, 5), draw(2, 1, 5, 5).square()
    together = getattr(SoftmaxRows(), name)(y, mean, variance)
    assert together.shape == (2, 3, 5, 1)
    alone = getattr(SoftmaxRows(), name)(y, mean[1, 2], variance[1, 0])
    torch.testing.assert_close(together[1, 2], alone, rtol=1e-12, atol=1e-12)


def test_objectives_accept_it(draw):
    marginal = Marginal(draw(6, 4), draw(6, 4).square(), draw(6, 4).square())
    y, rows = torch.tensor([[0.0], [1], [2], [3], [0], [1]], dtype=torch.float64), Softmax().at(torch.arange(6))
    assert elbo(marginal, rows, y).shape == (6,)
    assert (elbo(marginal, rows, y) < predictive(marginal, rows, y)).all()


def test_repeatable_and_without_parameters():
    likelihood = Softmax(n_nodes=64).subset(torch.tensor([1]))
    assert likelihood.at(None) == SoftmaxRows(64)
    assert not list(likelihood.parameters())
    with pytest.raises(ValueError, match="power of two"):
        Softmax(n_nodes=100)
