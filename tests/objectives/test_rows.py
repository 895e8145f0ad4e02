from __future__ import annotations

import pytest
import torch

from candid.likelihoods import GaussianRows
from candid.marginal import Marginal
from candid.objectives import ROW_OBJECTIVES, elbo, predictive

NOISE = GaussianRows(torch.tensor([[0.3, 0.6]], dtype=torch.float64))


@pytest.fixture
def marginal(draw) -> Marginal:
    return Marginal(draw(5, 2), draw(5, 2).square(), draw(5, 2).square())


@pytest.mark.parametrize("objective", ROW_OBJECTIVES.values(), ids=ROW_OBJECTIVES)
def test_one_number_for_each_row(objective, marginal, draw):
    assert objective(marginal, NOISE, draw(5, 2)).shape == (5,)


@pytest.mark.parametrize("objective", ROW_OBJECTIVES.values(), ids=ROW_OBJECTIVES)
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


@pytest.mark.parametrize("objective", ROW_OBJECTIVES.values(), ids=ROW_OBJECTIVES)
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
    for objective in (elbo, predictive):
        torch.testing.assert_close(
            objective(Marginal(mean, variance, variance, log_weight), NOISE, y), objective(single, NOISE, y)
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
