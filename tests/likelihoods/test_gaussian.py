from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.integrate import quad
from scipy.stats import norm

from candid.likelihoods import Gaussian, GaussianRows


@pytest.mark.parametrize(("y", "mean", "variance", "noise"), [(0.3, -0.2, 0.5, 0.1), (2.0, 0.0, 1e-3, 0.7)])
def test_both_averages_by_numerical_integration(y, mean, variance, noise):
    """E log p(y|f) and log E p(y|f) for f ~ N(mean, variance)."""
    f, density = norm(mean, variance**0.5), lambda value: norm.pdf(y, value, noise**0.5)
    ends = f.ppf([1e-15, 1 - 1e-15])
    expected_log, _ = quad(lambda v: f.pdf(v) * np.log(density(v)), *ends, points=[mean], epsabs=1e-13, limit=200)
    expected, _ = quad(lambda v: f.pdf(v) * density(v), *ends, points=[mean], epsabs=1e-14, limit=200)
    row = [torch.tensor([[value]], dtype=torch.float64) for value in (y, mean, variance)]
    likelihood = GaussianRows(torch.tensor([[noise]], dtype=torch.float64))
    assert likelihood.expected_log_density(*row).item() == pytest.approx(expected_log, rel=1e-9)
    assert likelihood.log_expected_density(*row).item() == pytest.approx(np.log(expected), rel=1e-9)


def test_jensen(draw):
    y, mean, variance = draw(50, 2), draw(50, 2), draw(50, 2).square()
    rows = GaussianRows(torch.tensor([[0.1, 0.9]], dtype=torch.float64))
    assert (rows.expected_log_density(y, mean, variance) < rows.log_expected_density(y, mean, variance)).all()


def test_without_latent_variance_both_are_the_density(draw):
    y, mean, nothing = draw(6, 2), draw(6, 2), torch.zeros(6, 2, dtype=torch.float64)
    rows = GaussianRows(torch.tensor([[0.1, 0.9]], dtype=torch.float64))
    expected = norm.logpdf(y.numpy(), mean.numpy(), np.sqrt([[0.1, 0.9]]))
    np.testing.assert_allclose(rows.expected_log_density(y, mean, nothing), expected, rtol=1e-12)
    np.testing.assert_allclose(rows.log_expected_density(y, mean, nothing), expected, rtol=1e-12)


def test_gradients(draw):
    y, mean = draw(3, 1).requires_grad_(), draw(3, 1).requires_grad_()
    variance = (0.1 + draw(3, 1).square()).requires_grad_()
    noise = torch.tensor([[0.4]], dtype=torch.float64, requires_grad=True)
    for name in ("expected_log_density", "log_expected_density"):
        assert torch.autograd.gradcheck(
            lambda s, *values, name=name: getattr(GaussianRows(s), name)(*values), (noise, y, mean, variance)
        )


def test_blurring_is_an_average_over_the_blur(draw):
    """p(y|g) = ∫ p(y|g + e) N(e; 0, blur) de, for noise of each row and output."""
    y, g, noise = draw(3, 2), draw(3, 2), torch.tensor([[0.1, 0.9]], dtype=torch.float64)
    blur = draw(3, 2).square().clamp_max(0.5)
    nodes, weights = np.polynomial.hermite_e.hermegauss(120)
    places = g[..., None].numpy() + np.sqrt(blur[..., None].numpy()) * nodes
    densities = norm.pdf(y[..., None].numpy(), places, np.sqrt(noise[..., None].numpy()))
    expected = np.log(densities @ weights / weights.sum())
    found = GaussianRows(noise).blurred(blur).expected_log_density(y, g, torch.zeros(3, 2, dtype=torch.float64))
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_robust_score_of_certain_values_is_that_of_their_density(draw):
    """Without latent variance: (γ/g)(p^g γ^(g/2γ) (2πσ²)^(g²/2γ) − 1)."""
    y, mean, nothing = draw(6, 2), draw(6, 2), torch.zeros(6, 2, dtype=torch.float64)
    noise, gamma = np.array([[0.1, 0.9]]), 1.4
    g = gamma - 1
    density = norm.pdf(y.numpy(), mean.numpy(), np.sqrt(noise))
    norm_power = gamma ** (-0.5) * (2 * np.pi * noise) ** (-g / 2)
    expected = gamma / g * (density**g / norm_power ** (g / gamma) - 1)
    found = GaussianRows(torch.tensor(noise)).robust_score(y, mean, nothing, gamma)
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_learned_noise_is_one_number_for_each_output():
    likelihood = Gaussian(0.25, n_outputs=3)
    for index in (None, torch.tensor([4, 1])):
        torch.testing.assert_close(likelihood.at(index).variance.detach(), torch.full((1, 3), 0.25))
    assert len(list(likelihood.parameters())) == 1


def test_noise_has_a_floor():
    likelihood = Gaussian(0.25)
    with torch.no_grad():
        likelihood.noise.raw.fill_(-200.0)
    assert likelihood.at().variance.item() == pytest.approx(1e-4)


def test_known_noise_belongs_to_training_rows():
    known = torch.tensor([[0.1], [0.2], [0.6]])
    likelihood = Gaussian(known=known)
    assert not list(likelihood.parameters())
    torch.testing.assert_close(likelihood.at(torch.tensor([2, 0])).variance, torch.tensor([[0.6], [0.1]]))
    torch.testing.assert_close(likelihood.at(None).variance, torch.tensor([[0.3]]))
    part = likelihood.subset(torch.tensor([2, 1]))
    torch.testing.assert_close(part.at(torch.tensor([0])).variance, torch.tensor([[0.6]]))
    assert likelihood.known is not None
    assert likelihood.known.shape == (3, 1)


def test_a_subset_with_learned_noise_is_a_copy():
    likelihood = Gaussian(0.25)
    part = likelihood.subset(torch.tensor([0]))
    part.noise.set(0.5)
    assert likelihood.noise.value.item() == pytest.approx(0.25)


def test_sites_are_targets_and_noise_of_training_rows():
    y = torch.arange(6.0).reshape(3, 2)
    targets, noise = Gaussian(0.25, n_outputs=2).sites(y)(torch.tensor([2, 1]))
    torch.testing.assert_close(targets, torch.tensor([[4.0, 5.0], [2.0, 3.0]]))
    torch.testing.assert_close(noise.detach(), torch.full((2, 2), 0.25))
    known = torch.tensor([[0.1, 0.2], [0.3, 0.4], [0.5, 0.6]])
    _, noise = Gaussian(known=known).sites(y)(torch.tensor([2, 1]))
    torch.testing.assert_close(noise, torch.tensor([[0.5, 0.6], [0.3, 0.4]]))
