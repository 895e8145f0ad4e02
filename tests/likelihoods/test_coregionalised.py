from __future__ import annotations

import math

import pytest
import torch
from torch.distributions import MultivariateNormal

from candid.likelihoods import Gaussian, GaussianRows
from candid.likelihoods.coregionalised import Coregionalised, CoregionalisedRows


def some_rows(n_latents=2, n_outputs=3, n=5, seed=0):
    torch.manual_seed(seed)
    likelihood = CoregionalisedRows(torch.randn(n_latents, n_outputs).double(), torch.rand(1, n_outputs).double() + 0.2)
    mean, variance = torch.randn(n, n_latents).double(), torch.rand(n, n_latents).double() + 0.1
    return likelihood, torch.randn(n, n_outputs).double(), mean, variance


def dense(likelihood, mean, variance):
    """Mean and covariance of each row, one row at a time."""
    mixing, noise = likelihood.mixing, torch.diag(likelihood.variance[0])
    return [(mixing.T @ m, mixing.T @ torch.diag(v) @ mixing + noise) for m, v in zip(mean, variance, strict=True)]


def test_the_log_of_the_expectation_is_a_joint_normal_density():
    likelihood, y, mean, variance = some_rows()
    found = likelihood.log_expected_density(y, mean, variance)
    moments = dense(likelihood, mean, variance)
    expected = [MultivariateNormal(m, c).log_prob(row) for row, (m, c) in zip(y, moments, strict=True)]
    torch.testing.assert_close(found, torch.stack(expected).unsqueeze(-1))


def test_the_expectation_of_the_log_needs_only_the_diagonal():
    likelihood, y, mean, variance = some_rows()
    noise = torch.diag(likelihood.variance[0])
    expected = []
    for row, m, v in zip(y, mean, variance, strict=True):
        spread = likelihood.mixing.T @ torch.diag(v) @ likelihood.mixing
        # log N(y; Aᵀm, Σ) − ½ tr Σ⁻¹AᵀVA
        density = MultivariateNormal(likelihood.mixing.T @ m, noise).log_prob(row)
        expected.append(density - 0.5 * torch.linalg.solve(noise, spread).trace())
    torch.testing.assert_close(likelihood.expected_log_density(y, mean, variance).sum(-1), torch.stack(expected))


def test_without_mixing_outputs_are_independent():
    _, _, mean, variance = some_rows(n_latents=3)
    y, noise = torch.randn(5, 3).double(), torch.tensor([[0.3, 0.5, 0.9]]).double()
    mixed, plain = CoregionalisedRows(torch.eye(3).double(), noise), GaussianRows(noise)
    torch.testing.assert_close(
        mixed.expected_log_density(y, mean, variance), plain.expected_log_density(y, mean, variance)
    )
    torch.testing.assert_close(
        mixed.log_expected_density(y, mean, variance),
        plain.log_expected_density(y, mean, variance).sum(-1, keepdim=True),
    )


@pytest.mark.parametrize("average", ["expected_log_density", "log_expected_density", "robust_score"])
def test_missing_entries_leave_the_marginal_of_the_others(average):
    likelihood, y, mean, variance = some_rows()
    options = (1.05,) if average == "robust_score" else ()
    some = CoregionalisedRows(likelihood.mixing[:, [0, 2]], likelihood.variance[:, [0, 2]])
    expected = getattr(some, average)(y[:, [0, 2]], mean, variance, *options).sum(-1)
    y[:, 1] = math.nan
    torch.testing.assert_close(getattr(likelihood, average)(y, mean, variance, *options).sum(-1), expected)


@pytest.mark.parametrize("average", ["expected_log_density", "log_expected_density"])
def test_gradients(average):
    likelihood, y, mean, variance = some_rows(n=3)
    y[0, 1] = math.nan

    def evaluate(mixing, noise, mean, variance):
        return getattr(CoregionalisedRows(mixing, noise), average)(y, mean, variance)

    arguments = (likelihood.mixing, likelihood.variance, mean, variance)
    assert torch.autograd.gradcheck(evaluate, [a.clone().requires_grad_() for a in arguments])


def test_sites_come_first():
    likelihood, y, mean, variance = some_rows()
    several = likelihood.log_expected_density(y, torch.stack([mean, mean + 1]), variance)
    torch.testing.assert_close(several[1], likelihood.log_expected_density(y, mean + 1, variance))


def test_the_robust_score_by_quadrature():
    """(γ/g)(E[p^g] / (∫p^γ)^(g/γ) − 1) of two outputs that share one latent function."""
    torch.manual_seed(1)
    likelihood = CoregionalisedRows(torch.tensor([[1.0, -0.6]]).double(), torch.tensor([[0.3, 0.5]]).double())
    y, mean, variance = (
        torch.tensor([[0.4, 0.9]]).double(),
        torch.tensor([[0.2]]).double(),
        torch.tensor([[0.7]]).double(),
    )
    gamma, g = 1.1, 0.1
    f = torch.linspace(-8, 8, 4001).double()
    weight = torch.exp(-0.5 * (f - mean[0]).square() / variance[0])
    weight = weight / weight.sum()
    log_p = torch.distributions.Normal(f[:, None] * likelihood.mixing, likelihood.variance.sqrt()).log_prob(y).sum(-1)
    grid = torch.linspace(-12, 12, 8001).double()
    log_integral = 0.0
    for noise in likelihood.variance[0]:
        density = torch.distributions.Normal(torch.zeros(()).double(), noise.sqrt()).log_prob(grid).exp()
        log_integral += torch.trapezoid(density**gamma, grid).log()
    expected = (gamma / g) * ((weight @ torch.exp(g * log_p)) / torch.exp((g / gamma) * log_integral) - 1)
    torch.testing.assert_close(likelihood.robust_score(y, mean, variance, gamma).squeeze(), expected)
    near = likelihood.robust_score(y, mean, variance, 1 + 1e-7).squeeze()
    torch.testing.assert_close(near, likelihood.expected_log_density(y, mean, variance).sum(), rtol=1e-5, atol=1e-5)


def test_pseudo_observations_of_one_latent_function_give_its_posterior():
    likelihood, y, _, _ = some_rows(n_latents=1)
    y[0, 2] = math.nan
    target, precision = likelihood.pseudo_observations(y, torch.zeros(5, 1).double(), torch.ones(5, 1).double())
    for row, found, weight in zip(y, target, precision, strict=True):
        there = ~row.isnan()
        a, noise = likelihood.mixing[0, there], likelihood.variance[0, there]
        torch.testing.assert_close(weight[0], (a.square() / noise).sum())
        torch.testing.assert_close(found[0], (a * row[there] / noise).sum() / weight[0])


def test_latent_functions_start_as_principal_components():
    torch.manual_seed(2)
    mixing, latent = torch.tensor([[1.0, 0.5, -0.3], [0.0, 0.4, 0.8]]), torch.randn(300, 2)
    y = latent @ mixing
    y = y - y.mean(0)
    likelihood = Coregionalised(y, 2, Gaussian(n_outputs=3))
    scores = likelihood.surrogate(y).targets
    torch.testing.assert_close(scores @ likelihood.mixing.value, y, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(scores.square().mean(0), torch.ones(2), atol=1e-3, rtol=1e-3)
    # Where entries are missing, a guess takes their place.
    gaps = torch.where(torch.rand(y.shape) < 0.1, torch.nan, y)
    torch.testing.assert_close(likelihood.surrogate(gaps).targets, scores)
    # A row of weight two is two rows.
    twice = Coregionalised(torch.cat([y, y[:50]]), 2, Gaussian(n_outputs=3))
    weighted = Coregionalised(y, 2, Gaussian(n_outputs=3), 1 + (torch.arange(300) < 50).float())
    torch.testing.assert_close(weighted.mixing.value.abs(), twice.mixing.value.abs())


def test_smooth_components_and_noise_come_apart():
    """Of a smooth function and noise that two outputs mix, where principal components would be other mixtures."""
    torch.manual_seed(3)
    x = torch.linspace(0, 6, 400)
    parts, mixing = torch.stack([torch.sin(x), 0.7 * torch.randn(400)], 1), torch.tensor([[1.0, 0.8], [0.9, -0.2]])
    y = parts @ mixing
    changes = y[1:-1] - 0.5 * (y[2:] + y[:-2])
    first, principal, plain = Coregionalised(y, 2, Gaussian(n_outputs=2), changes=changes).candidates
    covariance = torch.cov(y.T, correction=0)
    torch.testing.assert_close(first.T @ first, covariance)
    torch.testing.assert_close(principal.T @ principal, covariance)
    torch.testing.assert_close(plain, torch.diag(covariance.diag().sqrt()))
    # One of the components is the smooth function, up to what noise happens to look like it.
    components = y @ torch.linalg.inv(first)
    likeness = torch.corrcoef(torch.cat([components, parts[:, :1]], 1).T)[2, :2].abs()
    assert likeness.max() > 0.99
    assert Coregionalised(y, 1, Gaussian(n_outputs=2), changes=changes).candidates[0].shape == (1, 2)


def test_the_noise_of_outputs_follows_from_that_of_the_start():
    """(A²)ᵀσ_f², and the mean square of what one latent function leaves out of two outputs."""
    y = torch.tensor([[1.0, 1.0], [-1.0, -1.0], [0.3, -0.3], [-0.3, 0.3]])
    likelihood = Coregionalised(y, 1, Gaussian(n_outputs=2))
    likelihood.adopt(torch.tensor([[0.2]]), y)
    torch.testing.assert_close(likelihood.noise.noise.value, torch.full((1, 2), 0.2 * 0.5 + 0.5 * 0.3**2))
    likelihood.noise.noise.fix()
    likelihood.adopt(torch.tensor([[5.0]]), y)
    torch.testing.assert_close(likelihood.noise.noise.value, torch.full((1, 2), 0.2 * 0.5 + 0.5 * 0.3**2))


def test_latent_functions_may_depend_on_each_other():
    likelihood, y, mean, variance = some_rows()
    diagonal = likelihood.log_expected_density(y, mean, torch.diag_embed(variance))
    torch.testing.assert_close(diagonal, likelihood.log_expected_density(y, mean, variance))
    root = torch.randn(5, 2, 2).double()
    covariance, noise = root @ root.mT, torch.diag(likelihood.variance[0])
    y[3, 1] = math.nan
    for found, row, m, v in zip(likelihood.log_expected_density(y, mean, covariance), y, mean, covariance, strict=True):
        there = ~row.isnan()
        total = (likelihood.mixing.T @ v @ likelihood.mixing + noise)[there][:, there]
        expected = MultivariateNormal((likelihood.mixing.T @ m)[there], total).log_prob(row[there])
        torch.testing.assert_close(found.squeeze(), expected)


def test_rounds_of_pseudo_observations_end_at_the_posterior():
    """Of latent functions that meet in all outputs, with a unit prior and entries missing."""
    likelihood, y, _, _ = some_rows(n_latents=3, seed=3)
    y[0, 0] = y[1, 1] = y[1, 2] = math.nan
    mean = torch.zeros(5, 3).double()
    for _ in range(4000):
        target, precision = likelihood.pseudo_observations(y, mean, torch.ones(5, 3).double())
        mean = precision * target / (1 + precision)
    for row, found in zip(y, mean, strict=True):
        there = ~row.isnan()
        a, weight = likelihood.mixing[:, there], torch.diag(1 / likelihood.variance[0, there])
        expected = torch.linalg.solve(torch.eye(3).double() + a @ weight @ a.T, a @ weight @ row[there])
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)


def test_parts_of_the_rows_share_what_is_learned():
    known = torch.rand(20, 3) + 0.1
    likelihood = Coregionalised(torch.randn(20, 3), 2, Gaussian(n_outputs=3, known=known))
    part = likelihood.subset(torch.tensor([4, 7]))
    assert part.mixing is likelihood.mixing
    torch.testing.assert_close(part.at(torch.tensor([1])).variance, known[7:8])
    torch.testing.assert_close(likelihood.at(torch.tensor([7])).variance, known[7:8])


def test_more_latent_functions_than_outputs_are_refused():
    with pytest.raises(ValueError, match="4 latent functions need as many outputs"):
        Coregionalised(torch.randn(20, 3), 4, Gaussian(n_outputs=3))
