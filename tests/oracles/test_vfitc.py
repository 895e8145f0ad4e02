"""The FITC objectives against numerical integration.

vfitc      E_{v~q} log N(y; mu + aᵀv, c + σ²)
fitc_elbo  E_{f~q} log N(y; f, c + σ²), where f has the variance c + s
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.stats import norm

from candid.likelihoods import GaussianRows
from candid.marginal import Marginal
from candid.objectives import elbo, fitc_elbo, predictive, vfitc
from small_models import random_rows, sparse_problem

# Exact for polynomials of degree below 20; the integrands are of degree two.
NODES, NODE_WEIGHTS = np.polynomial.hermite_e.hermegauss(10)
NODE_WEIGHTS = NODE_WEIGHTS / NODE_WEIGHTS.sum()


def average(function, mean, variance):
    nodes = zip(NODES, NODE_WEIGHTS, strict=True)
    return sum(weight * function(mean + np.sqrt(variance) * node) for node, weight in nodes)


@pytest.fixture
def parts(draw):
    marginal = Marginal(draw(6, 2), draw(6, 2).square(), draw(6, 2).square())
    return marginal, GaussianRows(torch.tensor([[0.3, 0.05]], dtype=torch.float64)), draw(6, 2)


def test_vfitc_by_quadrature(parts):
    marginal, noise, y = parts
    c, s, scale = marginal.residual.numpy(), marginal.spread.numpy(), noise.variance.numpy()
    expected = average(lambda f: norm.logpdf(y, f, np.sqrt(c + scale)), marginal.mean.numpy(), s).sum(-1)
    np.testing.assert_allclose(vfitc(marginal, noise, y), expected, rtol=1e-10)


def test_fitc_elbo_by_quadrature(parts):
    marginal, noise, y = parts
    c, s, scale = marginal.residual.numpy(), marginal.spread.numpy(), noise.variance.numpy()
    expected = average(lambda f: norm.logpdf(y, f, np.sqrt(c + scale)), marginal.mean.numpy(), c + s).sum(-1)
    np.testing.assert_allclose(fitc_elbo(marginal, noise, y), expected, rtol=1e-10)
    # vfitc − c/(2(c+σ²))
    np.testing.assert_allclose(expected, vfitc(marginal, noise, y).numpy() - (c / (2 * (c + scale))).sum(-1))


def test_a_whole_model():
    """aᵀv ~ N(aᵀm, aᵀSa), with a, m, S and c as the family has them, and β KL."""
    rows = random_rows(9, n_outputs=2, seed=1)
    problem = sparse_problem(rows, "full", "vfitc", n_points=3, beta=0.7, seed=2)
    family, batch = problem.family, rows.whole()
    with torch.no_grad():
        prior = family.prior(batch)
        mean, covariance = family.weights.mean.numpy(), (family.weights.root() @ family.weights.root().mT).numpy()
        noise = problem.likelihood.at().variance.numpy()[0]
        total = 0.0
        for k in range(2):
            features = prior.features[k].numpy()
            for i in range(9):
                a, c = features[:, i], prior.residual[i, k].item()
                density = lambda f, i=i, k=k, c=c: norm.logpdf(rows.y[i, k].item(), f, np.sqrt(c + noise[k]))  # noqa: E731
                total += average(density, prior.mean[i, k].item() + a @ mean[k], a @ covariance[k] @ a)
        expected = (-total + 0.7 * family.weights.penalty().item()) / 9
    assert problem.loss(batch).item() == pytest.approx(expected, rel=1e-10)


def test_order_of_the_objectives(parts):
    """Jensen: elbo ≤ vfitc ≤ predictive. fitc_elbo is below vfitc."""
    marginal, noise, y = parts
    assert (elbo(marginal, noise, y) < vfitc(marginal, noise, y)).all()
    assert (vfitc(marginal, noise, y) < predictive(marginal, noise, y)).all()
    assert (fitc_elbo(marginal, noise, y) < vfitc(marginal, noise, y)).all()


def test_without_residual_all_are_the_elbo_and_without_spread_vfitc_is_predictive(parts):
    marginal, noise, y = parts
    nothing = torch.zeros_like(marginal.mean)
    explained = Marginal(marginal.mean, nothing, marginal.spread)
    torch.testing.assert_close(vfitc(explained, noise, y), elbo(explained, noise, y))
    torch.testing.assert_close(fitc_elbo(explained, noise, y), elbo(explained, noise, y))
    certain = Marginal(marginal.mean, marginal.residual, nothing)
    torch.testing.assert_close(vfitc(certain, noise, y), predictive(certain, noise, y))
