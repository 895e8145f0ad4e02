from __future__ import annotations

import copy
from functools import partial

import pytest
import torch
from scipy.stats import norm

from candid.engines import problem as problem_module
from candid.families import Embedded
from candid.kernels import make_network
from candid.objectives import elbo
from small_models import (
    conditional_problem,
    decoupled_problem,
    exact_problem,
    layers_problem,
    random_rows,
    sparse_problem,
)


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


def test_the_parameters_of_networks_are_a_group():
    problem = decoupled_problem(random_rows(10), "diagonal")
    before = {name: [id(p) for p in parameters] for name, parameters in problem.groups().items()}
    network = problem.family = Embedded(make_network((4, 2), 2).double(), problem.family)
    network.network.layers[0].weight.requires_grad_(False)
    learned = [id(p) for p in network.network.parameters() if p.requires_grad]
    groups = {name: [id(p) for p in parameters] for name, parameters in problem.groups().items()}
    assert before["network"] == []
    assert len(learned) == 3
    assert groups["network"] == learned
    assert all(groups[name] == before[name] for name in ("weights", "points", "rest"))
    assert sorted(groups["all"]) == sorted([*before["all"], *learned])
    together = {name: [id(p) for p in parameters] for name, parameters in problem.groups(()).items()}
    assert together["network"] == []
    assert sorted(together["rest"]) == sorted([*before["rest"], *learned])


def test_mean_functions_between_layers_are_a_group_if_asked_for():
    problem = layers_problem(random_rows(10), (3, 2))
    *hidden, last = problem.family.layers
    expected = [id(p) for layer in hidden for p in layer.mean.parameters()]
    assert len(expected) == 4
    together, apart = problem.groups(), problem.groups(("hidden_means",))
    assert together["hidden_means"] == []
    assert [id(p) for p in apart["hidden_means"]] == expected
    rest = {id(p) for p in apart["rest"]}
    assert rest | set(expected) == {id(p) for p in together["rest"]}
    assert not rest & set(expected)
    assert {id(p) for p in last.mean.parameters()} <= rest
    problem.family = Embedded(make_network((4, 2), 2).double(), problem.family)
    assert [id(p) for p in problem.groups(("hidden_means",))["hidden_means"]] == expected


def test_fixed_parameters_are_in_no_group():
    problem = sparse_problem(random_rows(10))
    problem.likelihood.noise.fix()
    for parameters in problem.groups().values():
        assert all(parameter is not problem.likelihood.noise.raw for parameter in parameters)


@pytest.mark.parametrize("most_rows", [4096, 12])
@pytest.mark.parametrize("whiten", ["mean", "covariance"])
def test_where_a_run_stands_is_the_loss_of_batches_as_training_sees_them(whiten, most_rows, monkeypatch):
    """Ω depends on how many rows are together; neighbours in the table are in different batches."""
    monkeypatch.setattr(problem_module, "STANDING_ROWS", most_rows)
    rows = random_rows(23, seed=10, weighted=True)
    problem = conditional_problem(rows, whiten=whiten, seed=11)
    index = torch.arange(0, 23, 1 if most_rows == 4096 else 2)
    parts = [index[0::3], index[1::3], index[2::3]] if most_rows == 4096 else [index[0::2], index[1::2]]
    shares = [float(rows.weight[part].sum() / rows.weight[index].sum()) for part in parts]
    expected = sum(share * problem.loss(rows.batch(part)).item() for share, part in zip(shares, parts, strict=True))
    assert problem.standing(rows, 8) == pytest.approx(expected, rel=1e-12)
    assert problem.standing(rows, 100) == problem.standing(rows) == problem.loss(rows.batch(index)).item()
    behind_a_network = copy.deepcopy(problem)
    behind_a_network.family = Embedded(make_network((4, 2), 2).double(), behind_a_network.family)
    assert behind_a_network.standing(rows, 8) != behind_a_network.standing(rows)


@pytest.mark.parametrize("build", [sparse_problem, exact_problem, partial(conditional_problem, with_omega=False)])
def test_other_losses_do_not_depend_on_batches(build):
    rows = random_rows(23, seed=12, weighted=True)
    problem = build(rows, seed=13)
    assert problem.standing(rows, 8) == problem.loss(rows.whole()).item()


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
