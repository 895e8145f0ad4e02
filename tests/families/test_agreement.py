"""Pólya–Gamma variables that agree with the latent function, beside mean-field equations of all rows."""

from __future__ import annotations

import pytest
import torch

from candid.families import Neighbours, agreement, make_mean
from candid.kernels import make_kernel
from candid.likelihoods import Gaussian
from candid.likelihoods.auxiliary import PolyaGammaSites

N_ROWS = 25


@pytest.fixture
def family(monkeypatch):
    """In which every other row is a neighbour; agreed to all digits, and a few rows at a time."""
    monkeypatch.setattr(agreement, "TOLERANCE", 1e-12)
    monkeypatch.setattr(agreement, "MOST_ROUNDS", 500)
    monkeypatch.setattr(agreement, "CHUNK", 10)
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(N_ROWS, 2, generator=generator, dtype=torch.float64)
    labels = torch.stack([(x[:, 0] > 0.8).double(), (x[:, 1] > -0.5).double()], -1)
    kernel = make_kernel("rbf", 2, batch_shape=(2,)).double()
    kernel.amplitude.set(torch.tensor([4.0, 0.5]))
    mean = make_mean("zero", 2, 2).double()
    weight = torch.ones(N_ROWS, dtype=torch.float64)
    return Neighbours(kernel, mean, x, PolyaGammaSites(labels), weight, N_ROWS - 1).double()


def mean_field(gram, labels):
    """ω of q(f) q(ω) for all rows together: S = (K⁻¹ + Ω)⁻¹, m = S(y − ½), ω = tanh(c/2)/(2c), c² = m² + S_ii."""
    omega = torch.full_like(labels, 0.25)
    for _ in range(2000):
        covariance = torch.linalg.inv(torch.linalg.inv(gram) + torch.diag(omega))
        c = ((covariance @ (labels - 0.5)).square() + covariance.diagonal()).sqrt()
        omega = torch.tanh(c / 2) / (2 * c)
    return omega


def test_they_solve_the_equations_of_the_mean_field(family):
    every = torch.arange(N_ROWS)
    labels, gram = family.sites.targets, family.kernel(family.rows.x).detach() + 1e-9 * torch.eye(N_ROWS)
    targets, noise = agreement.agreed_sites(family)(every)
    for output in range(2):
        omega = mean_field(gram[output], labels[:, output])
        torch.testing.assert_close(1 / noise[:, output], omega, rtol=1e-5, atol=0)
        torch.testing.assert_close(targets[:, output], (labels[:, output] - 0.5) / omega, rtol=1e-5, atol=0)


def test_training_keeps_its_own(family):
    """Predictors have the agreed ones; the family, and drafts of a predictor, those that were learned."""
    new = torch.zeros(1, 2, dtype=torch.float64)
    final, draft = family.predictor().marginal(new).mean, family.draft_predictor().marginal(new).mean
    assert isinstance(family.sites, PolyaGammaSites)
    assert (final - draft).abs().max() > 0.01


def test_what_predicts_left_out_rows_much_better_stays(family, monkeypatch):
    every = torch.arange(N_ROWS)
    learned = family.sites.settled(every)
    monkeypatch.setattr(agreement, "MUCH_BETTER", 1e9)
    assert all(torch.equal(*pair) for pair in zip(agreement.agreed_sites(family)(every), learned, strict=True))


def test_real_numbers_are_what_they_are():
    x, y = torch.randn(5, 2).double(), torch.randn(5, 1).double()
    sites = Gaussian(0.3).double().sites(y)
    kernel, mean = make_kernel("rbf", 2, batch_shape=(1,)).double(), make_mean("zero", 2, 1).double()
    family = Neighbours(kernel, mean, x, sites, torch.ones(5).double(), 3)
    targets, noise = agreement.agreed_sites(family)(torch.arange(5))
    assert torch.equal(targets, y)
    assert torch.allclose(noise, torch.tensor(0.3, dtype=torch.float64))
