"""Student's t likelihood."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.stats import t

from candid.likelihoods import GaussianRows
from candid.likelihoods.student_t import StudentT, StudentTRows

NAMES = ["expected_log_density", "log_expected_density"]


def entry(value: float) -> torch.Tensor:
    return torch.tensor([[value]], dtype=torch.float64)


@pytest.mark.parametrize(("scale", "freedom"), [(0.01, 2.0), (0.3, 4.0), (2.0, 2.5), (0.1, 60.0), (0.1, 1e3)])
@pytest.mark.parametrize("variance", [1e-4, 0.5, 256.0])
@pytest.mark.parametrize("distance", [0.0, 0.7, 6.0, 100.0])
def test_both_averages_by_numerical_integration(scale, freedom, variance, distance, integrals):
    """Also where the likelihood is a spike in a wide latent distribution, and far outside of both."""
    expected_log, log_expected = integrals(
        lambda f: t.logpdf((distance - f) / scale, freedom) - np.log(scale), 0.0, variance, distance
    )
    rows, values = StudentTRows(entry(scale), entry(freedom)), (entry(distance), entry(0.0), entry(variance))
    assert rows.expected_log_density(*values).item() == pytest.approx(expected_log, rel=1e-6, abs=1e-6)
    assert rows.log_expected_density(*values).item() == pytest.approx(log_expected, rel=1e-6, abs=1e-6)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("freedom", [2.0, 5.0, 40.0, 1e4])
def test_without_latent_variance_both_are_the_density(name, freedom, draw):
    y, mean, nothing = 4 * draw(20, 2), draw(20, 2), torch.zeros(20, 2, dtype=torch.float64)
    scale = np.array([[0.1, 0.9]])
    found = getattr(StudentTRows(torch.tensor(scale), entry(freedom)), name)(y, mean, nothing)
    expected = t.logpdf((y - mean).numpy() / scale, freedom) - np.log(scale)
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("name", NAMES)
def test_many_degrees_of_freedom_are_gaussian(name, draw):
    y, mean, variance = draw(20, 2), draw(20, 2), draw(20, 2).square()
    scale = torch.tensor([[0.3, 0.9]], dtype=torch.float64)
    found = getattr(StudentTRows(scale, entry(1e8)), name)(y, mean, variance)
    expected = getattr(GaussianRows(scale.square()), name)(y, mean, variance)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


def test_jensen(draw):
    y, mean, variance = 3 * draw(50, 2), draw(50, 2), draw(50, 2).square()
    rows = StudentTRows(entry(0.3), entry(3.0))
    assert (rows.expected_log_density(y, mean, variance) < rows.log_expected_density(y, mean, variance)).all()


def test_outliers_cost_little():
    """Twice the distance costs (ν + 1) log 2, and not four times as much."""
    rows = StudentTRows(entry(0.1), entry(4.0))
    near, far = (rows.log_expected_density(entry(d), entry(0.0), entry(0.01)).item() for d in (500.0, 1000.0))
    assert near - far == pytest.approx(5 * np.log(2), abs=1e-3)


@pytest.mark.parametrize("name", NAMES)
def test_gradients(name, draw):
    y, mean = (3 * draw(3, 1)).requires_grad_(), draw(3, 1).requires_grad_()
    variance = torch.tensor([[0.05], [2.0], [20.0]], dtype=torch.float64, requires_grad=True)
    scale, freedom = entry(0.4).requires_grad_(), entry(3.0).requires_grad_()
    assert torch.autograd.gradcheck(
        lambda s, n, *values: getattr(StudentTRows(s, n), name)(*values), (scale, freedom, y, mean, variance), atol=1e-6
    )


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("freedom", [2.1, 1e4])
def test_single_precision(name, freedom):
    y = torch.tensor([-1e3, -3.0, 0.0, 0.1, 30.0]).repeat(4, 1).requires_grad_()
    variance = torch.tensor([0.0, 1e-6, 1.0, 256.0]).unsqueeze(1).requires_grad_()
    rows = StudentTRows(torch.tensor([[0.5]]), torch.tensor([[freedom]]))
    found = getattr(rows, name)(y, torch.zeros(4, 5), variance)
    gradients = torch.autograd.grad(found.sum(), (y, variance))
    assert found.dtype == torch.float32
    assert all(bool(gradient.isfinite().all()) for gradient in gradients)
    expected = getattr(StudentTRows(entry(0.5), entry(freedom)), name)(y.double(), entry(0.0), variance.double())
    np.testing.assert_allclose(found.detach(), expected.detach(), rtol=2e-4, atol=2e-4)


@pytest.mark.parametrize("name", NAMES)
def test_chains_have_their_own_parameters(name, draw):
    likelihood = StudentT(n_outputs=2, batch_shape=(3,))
    likelihood.scale.set(torch.tensor([0.1, 0.5, 2.0]).view(3, 1, 1))
    y, mean, variance = draw(5, 2).float(), draw(5, 2).float(), draw(5, 2).square().float()
    together = getattr(likelihood.at(), name)(y, mean, variance)
    assert together.shape == (3, 5, 2)
    alone = getattr(StudentTRows(torch.tensor([[0.5]]), torch.tensor([[4.0]])), name)(y, mean, variance)
    torch.testing.assert_close(together[1], alone, rtol=1e-5, atol=1e-5)


def test_parameters_are_learned_within_their_domain():
    likelihood = StudentT(0.3, 4.0)
    assert [name for name, _ in likelihood.named_parameters()] == ["scale.raw", "freedom.raw"]
    rows = likelihood.subset(torch.tensor([0])).at(torch.tensor([0]))
    assert rows.scale.item() == pytest.approx(0.3)
    assert rows.freedom.item() == pytest.approx(4.0)
    with torch.no_grad():
        likelihood.scale.raw.fill_(-200.0)
        likelihood.freedom.raw.fill_(-200.0)
    assert likelihood.at().scale.item() == pytest.approx(1e-2)
    assert likelihood.at().freedom.item() == pytest.approx(2.0)
