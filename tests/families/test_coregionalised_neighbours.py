"""Neighbours whose outputs are mixtures of latent functions, against dense algebra."""

from __future__ import annotations

import copy
import json
import math

import pytest
import torch
from torch.distributions import MultivariateNormal

from candid.engines import Problem, Rows
from candid.families import CoregionalisedNeighbours, Neighbours, make_mean, predictor_from_spec
from candid.kernels import make_kernel, make_network
from candid.kernels.deep import Deep
from candid.likelihoods import Coregionalised, Gaussian, PartlyObserved, make_sites
from small_models import random_rows, randomise

NEW = random_rows(5, seed=99).x
N_LATENTS, N_OUTPUTS = 2, 3


def with_gaps(rows, share=0.3):
    """Some entries are missing, and all of them are in one row."""
    missing = torch.rand(rows.y.shape, generator=torch.Generator().manual_seed(5)) < share
    missing[3] = True
    return Rows(rows.x, torch.where(missing, torch.nan, rows.y), rows.weight)


def mixed_problem(rows, k=100, likelihood=None, kernel="matern52", n_latents=N_LATENTS, seed=0, **options):
    n_features, n_outputs = rows.x.shape[1], rows.y.shape[1]
    if likelihood is None:
        likelihood = Coregionalised(rows.y.nan_to_num(), n_latents, Gaussian(n_outputs=n_outputs))
    kernel = make_kernel(kernel, n_features, batch_shape=(n_latents,)) if isinstance(kernel, str) else kernel
    width = kernel.network.width if isinstance(kernel, Deep) else n_features
    mean, sites = make_mean("constant", width, n_latents), make_sites(likelihood, rows.y)
    family = CoregionalisedNeighbours(kernel, mean, rows.x, sites, rows.weight, k, **options)
    problem = Problem(family, likelihood, "predictive").double()
    randomise(problem, torch.Generator().manual_seed(1000 + seed))
    problem.family.refresh(0)
    return problem


def dense_joint(problem, rows, x):
    """Mean and covariance of (outputs of all rows, latent functions at ``x``), and which outputs there are."""
    mixing, kernel, mean = problem.likelihood.mixing.value, problem.family.kernel, problem.family.mean
    every = torch.cat([rows.x, x])
    n, m = len(rows), len(x)
    latent = torch.block_diag(*kernel(every))
    # Outputs first, then latent functions
    outputs = torch.cat([torch.kron(a.unsqueeze(0), torch.eye(n, n + m).double()) for a in mixing.T.contiguous()])
    picked = torch.kron(torch.eye(len(mixing)).double(), torch.eye(n + m).double()[n:])
    projection = torch.cat([outputs, picked])
    covariance = projection @ latent @ projection.T
    noise = (problem.likelihood.noise.at().variance.expand_as(rows.y) / rows.weight.unsqueeze(-1)).mT.flatten()
    covariance[: len(noise), : len(noise)] += torch.diag(noise)
    means = projection @ mean(every).mT.flatten()
    return means, covariance, (~rows.y.isnan()).mT.flatten()


def conditioned(problem, rows, x):
    """Latent functions at ``x`` given all outputs that were observed: (latent · row) mean and covariance."""
    mean, covariance, observed = dense_joint(problem, rows, x)
    here = torch.cat([observed, torch.zeros(len(mean) - len(observed)).bool()]).nonzero().flatten()
    there = torch.arange(len(observed), len(mean))
    gain = torch.linalg.solve(covariance[here][:, here], covariance[here][:, there]).T
    y = rows.y.mT.flatten()[observed]
    return mean[there] + gain @ (y - mean[here]), covariance[there][:, there] - gain @ covariance[here][:, there]


@pytest.fixture(params=[False, True], ids=["complete", "gaps"])
def rows(request):
    rows = random_rows(12, n_outputs=N_OUTPUTS, seed=1)
    return with_gaps(rows) if request.param else rows


def test_the_objective_is_the_exact_leave_one_out_density(rows):
    problem = mixed_problem(rows)
    mixing, noise = problem.likelihood.mixing.value, problem.likelihood.noise.at().variance[0]
    losses = []
    for row in range(len(rows)):
        others = torch.arange(len(rows)) != row
        m, v = conditioned(problem, rows.subset(others.nonzero().flatten()), rows.x[row : row + 1])
        total, there = mixing.T @ v @ mixing + torch.diag(noise), ~rows.y[row].isnan()
        if there.any():
            density = MultivariateNormal((mixing.T @ m)[there], total[there][:, there])
            losses.append(density.log_prob(rows.y[row, there]))
    expected, found = -torch.stack(losses).sum() / len(rows), problem.loss(rows.whole())
    torch.testing.assert_close(found, expected)
    learned = [parameter for parameter in problem.parameters() if parameter.requires_grad]
    for ours, theirs in zip(*(torch.autograd.grad(loss, learned) for loss in (found, expected)), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-7, atol=1e-8)


def test_predictions_are_those_of_the_joint_gp(rows):
    problem = mixed_problem(rows)
    predictor = problem.family.predictor()
    marginal, joint = predictor.marginal(NEW), predictor.joint(NEW)
    mean, covariance = (part.detach() for part in conditioned(problem, rows, NEW))
    mean, covariance = mean.reshape(N_LATENTS, 5), covariance.reshape(N_LATENTS, 5, N_LATENTS, 5)
    torch.testing.assert_close(marginal.mean, mean.T)
    torch.testing.assert_close(marginal.cross, torch.einsum("wnvn->nwv", covariance))
    torch.testing.assert_close(marginal.variance, torch.einsum("wnwn->nw", covariance))
    torch.testing.assert_close(joint.mean, mean.T)
    torch.testing.assert_close(joint.cross, covariance)
    torch.testing.assert_close(joint.covariance, torch.einsum("wnwm->wnm", covariance))
    assert not predictor.marginal(NEW, mean_only=True).variance.any()


def test_without_mixing_outputs_are_independent():
    rows = random_rows(20, n_outputs=2, seed=2, weighted=True)
    likelihood = Coregionalised(rows.y, 2, Gaussian(n_outputs=2))
    mixed = mixed_problem(rows, k=6, likelihood=likelihood, with_copies=True)
    likelihood.mixing.set(torch.eye(2))
    plain = Problem(
        Neighbours(
            mixed.family.kernel,
            mixed.family.mean,
            rows.x,
            likelihood.noise.sites(rows.y),
            rows.weight,
            6,
            with_copies=True,
        ),
        likelihood.noise,
        "predictive",
    )
    plain.family.refresh(0)
    torch.testing.assert_close(mixed.loss(rows.whole()), plain.loss(rows.whole()))
    ours, theirs = (problem.family.predictor().marginal(NEW) for problem in (mixed, plain))
    torch.testing.assert_close(ours.mean, theirs.mean)
    torch.testing.assert_close(ours.variance, theirs.variance)
    assert ours.cross[:, 0, 1].abs().max() < 1e-12


def test_independent_outputs_may_be_partly_observed():
    """Each output is then a GP of the rows in which it was observed."""
    rows = with_gaps(random_rows(15, n_outputs=2, seed=3))
    likelihood = PartlyObserved(rows.y.nan_to_num(), Gaussian(n_outputs=2))
    problem = mixed_problem(rows, likelihood=likelihood)
    found = problem.family.predictor().marginal(NEW)
    for output in range(2):
        there = (~rows.y[:, output].isnan()).nonzero().flatten()
        k = copy.deepcopy(problem.family.kernel)
        noise = likelihood.at().variance[0, output]
        points = rows.x[there]
        cross = k(points, NEW)[output]
        gain = torch.linalg.solve(k(points)[output] + noise * torch.eye(len(there)).double(), cross).T
        residual = rows.y[there, output] - problem.family.mean(points)[:, output]
        torch.testing.assert_close(found.mean[:, output], problem.family.mean(NEW)[:, output] + gain @ residual)
        torch.testing.assert_close(found.variance[:, output], k.diagonal(NEW)[output] - (gain * cross.T).sum(-1))


def test_behind_a_network(rows):
    network = make_network((4, 2), 2, seed=0)
    kernel = Deep(network, make_kernel("rbf", 2, batch_shape=(N_LATENTS,)))
    problem = mixed_problem(rows, kernel=kernel)
    loss = problem.loss(rows.whole())
    learned = [parameter for parameter in problem.parameters() if parameter.requires_grad]
    assert all(gradient.isfinite().all() for gradient in torch.autograd.grad(loss, learned))
    predictor = problem.family.predictor()
    torch.testing.assert_close(predictor.marginal(NEW).mean, predictor.joint(NEW).mean)


def test_descriptions_and_more_rows(rows):
    problem = mixed_problem(rows, k=4)
    predictor = problem.family.predictor()
    again = predictor_from_spec(json.loads(json.dumps(predictor.to_spec())))
    again.load_state_dict(predictor.state_dict(), assign=True)
    torch.testing.assert_close(again.marginal(NEW).cross, predictor.marginal(NEW).cross, rtol=0, atol=0)
    first, rest = torch.arange(9), torch.arange(9, 12)
    fewer = mixed_problem(rows.subset(first))
    fewer.load_state_dict(mixed_problem(rows).state_dict())
    short = fewer.family.predictor()
    noise = fewer.likelihood.noise.at().variance.detach().expand(3, -1)
    short.append(rows.x[rest], rows.y[rest], noise)
    short.rows.metric.copy_(mixed_problem(rows).family.predictor().rows.metric)
    torch.testing.assert_close(short.marginal(NEW).mean, mixed_problem(rows).family.predictor().marginal(NEW).mean)


def test_a_single_row_has_no_neighbours():
    rows = random_rows(1, n_outputs=N_OUTPUTS)
    problem = mixed_problem(rows)
    marginal = problem.family.evaluate(rows.whole()).marginal
    torch.testing.assert_close(marginal.mean, problem.family.mean(rows.x))
    assert math.isfinite(problem.loss(rows.whole()).item())


def test_too_many_rows_together(rows, monkeypatch):
    monkeypatch.setattr("candid.families.mixed_predictor.MOST_TOGETHER", 20)
    with pytest.raises(ValueError, match="ask for fewer rows at a time"):
        mixed_problem(rows).family.predictor().joint(NEW)
