from __future__ import annotations

import pytest
import torch
from scipy.stats import norm

from candid.engines import problem as problem_module
from candid.objectives import elbo
from small_models import decoupled_problem, exact_problem, random_rows, sparse_problem


@pytest.mark.parametrize("beta", [0.0, 0.3, 1.0])
def test_the_loss(beta):
    """−Σ w·term / Σ_batch w + β·KL / N."""
    rows = random_rows(20, n_outputs=2, seed=1, weighted=True)
    problem = sparse_problem(rows, beta=beta, seed=2)
    batch = rows.batch(torch.tensor([3, 4, 11]))
    evaluation = problem.family.evaluate(batch)
    terms = elbo(evaluation.marginal, problem.likelihood.at(None), batch.y)
    weight = rows.weight[[3, 4, 11]]
    expected = -(weight * terms).sum() / weight.sum() + beta * evaluation.penalties["kl"] / rows.weight.sum()
    torch.testing.assert_close(problem.loss(batch), expected)


def test_a_penalty_without_a_coefficient_counts_once():
    rows = random_rows(20, seed=3)
    problem = sparse_problem(rows, beta=1.0, seed=4)
    expected = problem.loss(rows.whole())
    problem.coefficients.clear()
    torch.testing.assert_close(problem.loss(rows.whole()), expected, rtol=0, atol=0)


def test_evidences_are_averaged_over_rows():
    rows = random_rows(20, seed=5, weighted=True)
    problem = exact_problem(rows, seed=6)
    prior = problem.family.prior(rows.whole())
    evidence = problem_module.EVIDENCES["marginal_likelihood"](prior, problem.likelihood.at(None), rows.y, rows.weight)
    torch.testing.assert_close(problem.loss(rows.whole()), -evidence / rows.weight.sum())


def test_groups_are_disjoint_and_complete():
    problem = decoupled_problem(random_rows(10), "diagonal")
    groups = {name: [id(p) for p in parameters] for name, parameters in problem.groups().items()}
    parts = groups["weights"] + groups["points"] + groups["rest"]
    assert sorted(parts) == sorted(groups["all"]) == sorted({id(p) for p in problem.parameters() if p.requires_grad})
    family = problem.family
    assert set(groups["weights"]) == {id(family.mean_weights.mean), id(family.weights.log_scale)}
    assert set(groups["points"]) == {id(family.mean_points), id(family.points)}


def test_fixed_parameters_are_in_no_group():
    problem = sparse_problem(random_rows(10))
    problem.likelihood.noise.fix()
    for parameters in problem.groups().values():
        assert all(parameter is not problem.likelihood.noise.raw for parameter in parameters)


@pytest.mark.parametrize("chunk", [8192, 7])
def test_held_out_nll_by_brute_force(chunk, monkeypatch):
    monkeypatch.setattr(problem_module, "HELD_OUT_CHUNK", chunk)
    rows, held_out = random_rows(20, n_outputs=2, seed=7), random_rows(17, n_outputs=2, seed=8, weighted=True)
    problem = sparse_problem(rows, seed=9)
    marginal = problem.family.predictor().marginal(held_out.x)
    std = (marginal.variance + problem.likelihood.noise.value).sqrt().detach()
    terms = norm.logpdf(held_out.y.numpy(), marginal.mean.numpy(), std.numpy()).sum(-1)
    expected = -(terms * held_out.weight.numpy()).sum() / held_out.weight.sum().item()
    assert problem.held_out_nll(held_out) == pytest.approx(expected, rel=1e-10)
