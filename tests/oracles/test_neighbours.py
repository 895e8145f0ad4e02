"""Neighbours against dense formulas: with all rows as neighbours nothing is approximated."""

from __future__ import annotations

import pytest
import torch
from torch.distributions import MultivariateNormal, Normal

from candid.engines import Problem, Rows
from dense_models import assert_same_gradients, dense_kernel, noise_of
from small_models import neighbour_problem, random_rows

N = 60


def density(problem: Problem, rows: Rows) -> MultivariateNormal:
    """p(y) of all rows."""
    covariance = dense_kernel(problem)(rows.x, rows.x) + noise_of(problem) * torch.eye(len(rows)).double()
    return MultivariateNormal(problem.family.mean(rows.x)[:, 0], covariance)


@pytest.fixture
def rows() -> Rows:
    return random_rows(N, 3, seed=1)


@pytest.mark.parametrize("k", [N - 1, N + 40])
def test_leave_one_out_densities_in_closed_form(rows, k):
    """With α = C⁻¹(y − mu): log N(y_i; y_i − α_i/[C⁻¹]_ii, 1/[C⁻¹]_ii)."""
    problem = neighbour_problem(rows, k, seed=2)
    joint = density(problem, rows)
    alpha, precision = joint.precision_matrix @ (rows.y[:, 0] - joint.loc), joint.precision_matrix.diagonal()
    terms = Normal(rows.y[:, 0] - alpha / precision, precision.rsqrt()).log_prob(rows.y[:, 0])
    ours = problem.loss(rows.whole())
    torch.testing.assert_close(ours, -terms.mean(), rtol=1e-10, atol=1e-10)
    assert_same_gradients(problem, ours, -terms.mean())


ORDERS = {
    "as they come": torch.arange(N),
    "backwards": torch.arange(N).flip(0),
    "at random": torch.randperm(N, generator=torch.Generator().manual_seed(3)),
}


@pytest.mark.parametrize("order", ORDERS.values(), ids=ORDERS)
def test_the_chain_rule_gives_the_marginal_likelihood(rows, order):
    problem = neighbour_problem(rows, N - 1, seed=4, objective="chain_rule", order=order)
    evidence = density(problem, rows).log_prob(rows.y[:, 0])
    ours = problem.loss(rows.whole())
    torch.testing.assert_close(-N * ours, evidence, rtol=1e-10, atol=1e-10)
    assert_same_gradients(problem, ours, -evidence / N)


def test_one_group_of_all_rows_is_the_marginal_likelihood(rows):
    problem = neighbour_problem(rows, N, seed=5, objective="marginal_likelihood")
    for batch in (rows.whole(), rows.batch(torch.tensor([7, 3]))):
        ours, evidence = problem.loss(batch), density(problem, rows).log_prob(rows.y[:, 0])
        torch.testing.assert_close(-N * ours, evidence, rtol=1e-10, atol=1e-10)
        assert_same_gradients(problem, ours, -evidence / N)


@pytest.mark.parametrize("objective", ["chain_rule", "marginal_likelihood"])
def test_weights_are_repetitions(objective):
    rows = random_rows(12, seed=6, weighted=True)
    index = torch.repeat_interleave(torch.arange(12), rows.weight.long())
    repeated = Rows(rows.x[index], rows.y[index], torch.ones(len(index)).double())
    options = {"order": torch.arange(12)} if objective == "chain_rule" else {}
    problem = neighbour_problem(rows, 12, seed=7, objective=objective, **options)
    evidence = density(problem, repeated).log_prob(repeated.y[:, 0])
    torch.testing.assert_close(-rows.total * problem.loss(rows.whole()), evidence)


@pytest.mark.parametrize("k", [5, 20])
def test_a_few_neighbours_are_less_than_all(rows, k):
    """Vecchia's density is one of its own: on average over y it cannot be above the true one."""
    problem = neighbour_problem(rows, k, seed=8, objective="chain_rule", order=torch.arange(N))
    true = density(problem, rows)
    gaps = []
    with torch.no_grad():
        torch.manual_seed(0)
        for y in true.sample((40,)):
            problem.family.sites.targets.copy_(y.unsqueeze(-1))
            table = Rows(rows.x, y.unsqueeze(-1), rows.weight)
            gaps.append(true.log_prob(y) + N * problem.loss(table.whole()))
    assert torch.stack(gaps).mean() > 0
