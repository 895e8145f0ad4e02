"""Neighbours behind a network: found by features of the last renewal, conditioned on present ones."""

from __future__ import annotations

import json

import pytest
import torch

from candid.engines import Problem
from candid.families import EmbeddedPredictor, Neighbours, Vecchia, make_mean, predictor_from_spec
from candid.kernels import Deep, make_kernel, make_network
from candid.likelihoods import Gaussian
from small_models import random_rows, randomise

ROWS = random_rows(24, seed=1, weighted=True)
NEW = random_rows(6, seed=9).x
OBJECTIVES = {Neighbours: "predictive", Vecchia: "chain_rule"}


def deep_problem(kind=Neighbours, objective="predictive", features=(5, 3), k=6) -> Problem:
    network = make_network(features, 2, 0)
    likelihood = Gaussian(0.1)
    options = {"order": torch.arange(24).flip(0)} if kind is Vecchia else {}
    family = kind(
        Deep(network, make_kernel("matern52", network.width, batch_shape=(1,))),
        make_mean("linear", network.width, 1),
        ROWS.x,
        likelihood.sites(ROWS.y),
        ROWS.weight,
        n_neighbours=k,
        **options,
    )
    problem = Problem(family, likelihood, objective).double()
    randomise(problem, torch.Generator().manual_seed(2))
    family.refresh(0)
    return problem


def features_of(family, x):
    return family.kernel.network.settled(x)[0]


def dense(problem, x, near):
    """Mean and variance of rows given the training rows that each of them has; differentiable by autograd."""
    family = problem.family
    base, noise = family.kernel.base, problem.likelihood.noise.value[0, 0] / ROWS.weight
    every, means, variances = features_of(family, ROWS.x), [], []
    for row, others in zip(features_of(family, x).split(1), near, strict=True):
        points, g = every[others], noise[others]
        gain = torch.linalg.solve(base(points)[0] + g.diag(), base(points, row)[0]).mT
        means.append(family.mean(row) + gain @ (ROWS.y[others] - family.mean(points)))
        variances.append(base(row)[0] - gain @ base(points, row)[0])
    return torch.cat(means), torch.cat(variances)


def distances(family, x):
    scale = family.kernel.base.base.lengthscale.value[0]
    return torch.cdist(features_of(family, x) / scale, features_of(family, ROWS.x) / scale).detach()


def test_values_and_gradients_of_training_rows():
    problem = deep_problem()
    family, index = problem.family, torch.tensor([3, 0, 17])
    batch = ROWS.batch(index)
    far = distances(family, batch.x)
    far[torch.arange(3), index] = torch.inf
    mean, variance = dense(problem, batch.x, far.argsort(-1)[:, :6])
    marginal = family.evaluate(batch).marginal
    torch.testing.assert_close(marginal.mean, mean)
    torch.testing.assert_close(marginal.residual, variance)
    terms = problem.likelihood.at(index).log_expected_density(batch.y, mean, variance).sum(-1)
    expected = -(batch.weight @ terms) / batch.weight.sum()
    learned = problem.groups()["all"]
    assert problem.groups()["network"]
    # The network of the search does not learn.
    assert not any(parameter is other for parameter in learned for other in family.rows.parameters())
    ours, theirs = (torch.autograd.grad(loss, learned) for loss in (problem.loss(batch), expected))
    torch.testing.assert_close(ours, theirs)


def test_neighbours_are_those_of_the_last_renewal():
    problem = deep_problem()
    family = problem.family
    near = distances(family, NEW).argsort(-1)[:, :6]
    with torch.no_grad():
        for weight in family.kernel.network.parameters():
            weight.add_(0.5 * torch.randn(weight.shape, generator=torch.Generator().manual_seed(4)).to(weight))
    assert torch.equal(family.rows.nearest(NEW, 6), near)
    family.refresh(50)
    after = distances(family, NEW).argsort(-1)[:, :6]
    assert torch.equal(family.rows.nearest(NEW, 6), after)
    assert not torch.equal(after, near)


def test_predictions_from_features_of_all_rows():
    problem = deep_problem()
    predictor = problem.family.predictor()
    assert isinstance(predictor, EmbeddedPredictor)
    mean, variance = dense(problem, NEW, distances(problem.family, NEW).argsort(-1)[:, :6])
    marginal = predictor.marginal(NEW)
    torch.testing.assert_close(marginal.mean, mean)
    torch.testing.assert_close(marginal.variance, variance)
    again = predictor_from_spec(json.loads(json.dumps(predictor.to_spec())))
    again.load_state_dict(predictor.state_dict(), assign=True)
    assert torch.equal(again.marginal(NEW).mean, marginal.mean)


def test_groups_and_chains_of_rows():
    whole = ROWS.whole()
    noise = deep_problem().likelihood.noise.value[0, 0] / ROWS.weight
    problem = deep_problem(objective="marginal_likelihood", k=24)
    family = problem.family
    x = features_of(family, ROWS.x)
    prior = family.prior(family.groups(ROWS.batch(torch.tensor([0]))))
    order = family.groups(ROWS.batch(torch.tensor([0]))).index[0]
    torch.testing.assert_close(prior.covariance[0, 0], family.kernel.base(x)[0][order][:, order])
    # The chain rule, with all rows that came before
    chain = deep_problem(Vecchia, "chain_rule", k=24)
    last = chain.family.evaluate(ROWS.batch(torch.tensor([0]))).marginal
    mean, variance = dense(chain, ROWS.x[:1], [torch.arange(1, 24)])
    torch.testing.assert_close(last.mean, mean)
    torch.testing.assert_close(last.residual, variance)
    assert torch.isfinite(problem.loss(whole))
    assert noise.shape == (24,)


@pytest.mark.parametrize("features", ["dc", (4,)])
def test_networks_with_batch_normalisation(features):
    problem = deep_problem(features=features)
    loss = problem.loss(ROWS.batch(torch.arange(8)))
    gradients = torch.autograd.grad(loss, problem.groups()["network"])
    assert all(torch.isfinite(gradient).all() for gradient in gradients)
    assert any(gradient.abs().max() > 0 for gradient in gradients)
