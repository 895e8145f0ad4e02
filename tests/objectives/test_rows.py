from __future__ import annotations

import pytest
import torch

from candid.likelihoods import GaussianRows
from candid.likelihoods.bernoulli import LogitRows
from candid.marginal import Marginal
from candid.objectives import ROW_OBJECTIVES, elbo, fitc_elbo, polya_gamma, predictive, robust, vfitc

# Those that normal noise has.
GAUSSIAN = {name: objective for name, objective in ROW_OBJECTIVES.items() if name != "polya_gamma"}
NOISE = GaussianRows(torch.tensor([[0.3, 0.6]], dtype=torch.float64))


@pytest.fixture
def marginal(draw) -> Marginal:
    return Marginal(draw(5, 2), draw(5, 2).square(), draw(5, 2).square())


@pytest.mark.parametrize("objective", GAUSSIAN.values(), ids=GAUSSIAN)
def test_one_number_for_each_row(objective, marginal, draw):
    assert objective(marginal, NOISE, draw(5, 2)).shape == (5,)


@pytest.mark.parametrize("objective", GAUSSIAN.values(), ids=GAUSSIAN)
def test_outputs_are_summed(objective, marginal, draw):
    y = draw(5, 2)
    parts = [
        objective(
            Marginal(*(part[:, k : k + 1] for part in (marginal.mean, marginal.residual, marginal.spread))),
            GaussianRows(NOISE.variance[:, k : k + 1]),
            y[:, k : k + 1],
        )
        for k in range(2)
    ]
    torch.testing.assert_close(objective(marginal, NOISE, y), parts[0] + parts[1])


@pytest.mark.parametrize("objective", GAUSSIAN.values(), ids=GAUSSIAN)
def test_equal_sites_are_one(objective, marginal, draw):
    y = draw(5, 2)
    sites = Marginal(
        *(part.expand(3, 5, 2) for part in (marginal.mean, marginal.residual, marginal.spread)),
        torch.tensor([[0.2], [0.5], [0.3]], dtype=torch.float64).log(),
    )
    torch.testing.assert_close(objective(sites, NOISE, y), objective(marginal, NOISE, y))


def test_one_certain_site_decides(draw):
    """A site of weight one among sites of weight zero."""
    mean, variance, y = draw(3, 5, 2), draw(3, 5, 2).square(), draw(5, 2)
    log_weight = torch.tensor([[-torch.inf], [0.0], [-torch.inf]], dtype=torch.float64)
    single = Marginal(mean[1], variance[1], variance[1])
    for objective in GAUSSIAN.values():
        torch.testing.assert_close(
            objective(Marginal(mean, variance, variance, log_weight), NOISE, y), objective(single, NOISE, y)
        )


@pytest.mark.parametrize("objective", [elbo, vfitc, fitc_elbo, robust])
def test_sites_are_averaged(objective, draw):
    """In each of three chains, each site with its weight."""
    mean, residual, spread, y = draw(3, 4, 5, 2), draw(3, 4, 5, 2).square(), draw(3, 4, 5, 2).square(), draw(5, 2)
    log_weight = torch.log_softmax(draw(4, 1), dim=0)
    found = objective(Marginal(mean, residual, spread, log_weight), NOISE, y)
    for chain in range(3):
        alone = [Marginal(*(part[chain, site] for part in (mean, residual, spread))) for site in range(4)]
        expected = sum(w.exp() * objective(m, NOISE, y) for w, m in zip(log_weight, alone, strict=True))
        torch.testing.assert_close(found[chain], expected)


@pytest.mark.parametrize("objective", GAUSSIAN.values(), ids=GAUSSIAN)
def test_gradients(objective, marginal, draw):
    parts = [marginal.mean, 0.1 + marginal.residual, 0.1 + marginal.spread, NOISE.variance.clone()]
    y = draw(5, 2)
    assert torch.autograd.gradcheck(
        lambda *parts: objective(Marginal(*parts[:3]), GaussianRows(parts[3]), y),
        [part.requires_grad_() for part in parts],
    )


def test_the_bound_is_below_the_predictive_density(marginal, draw):
    y = draw(5, 2)
    assert (elbo(marginal, NOISE, y) < predictive(marginal, NOISE, y)).all()


def test_far_rows_underflow_nowhere(draw):
    """The mixture of densities as small as 10⁻⁵⁰⁰⁰ is computed in logarithms."""
    mean = 100 + draw(4, 5, 2)
    marginal = Marginal(mean, torch.zeros_like(mean), torch.zeros_like(mean), torch.full((4, 1), 0.25).log().double())
    value = predictive(marginal, NOISE, torch.zeros(5, 2, dtype=torch.float64))
    assert torch.isfinite(value).all()
    assert (value < -5000).all()


def test_polya_gamma_bounds_the_elbo(draw):
    """Sites are averaged, outputs summed, as they are there."""
    mean, variance = 3 * draw(4, 3, 20, 2), draw(4, 3, 20, 2).square()
    log_weight = torch.log_softmax(draw(3, 1), 0)
    y = (draw(20, 2) > 0).double()
    sites = Marginal(mean, variance, 0.5 * variance, log_weight)
    bound, exact = polya_gamma(sites, LogitRows(), y), elbo(sites, LogitRows(), y)
    assert bound.shape == (4, 20)
    assert (bound < exact).all()
    assert (exact - bound).max() < 3


def test_polya_gamma_is_exact_without_variance(draw):
    y, mean, nothing = (draw(20, 1) > 0).double(), 3 * draw(20, 1), torch.zeros(20, 1, dtype=torch.float64)
    point = Marginal(mean, nothing, nothing)
    torch.testing.assert_close(polya_gamma(point, LogitRows(), y), elbo(point, LogitRows(), y), rtol=1e-6, atol=1e-6)
