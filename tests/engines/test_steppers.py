from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from candid.engines import Plan, train
from candid.engines.steppers import LBFGS, Adam, DampedAdam, make_steppers, take_step
from candid.families import Embedded
from candid.kernels import make_network
from candid.linalg import NotPositiveDefinite
from small_models import exact_problem, random_rows, sparse_problem


def evaluator(loss, *parameters):
    """An evaluation as steppers want it, and how often it was asked for."""
    calls = []

    def evaluate() -> float:
        calls.append(1)
        for parameter in parameters:
            parameter.grad = None
        value = loss()
        value.backward()
        return value.item()

    return evaluate, calls


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_lbfgs_solves_a_quadratic(dtype, generator):
    """Ten variables with curvatures from 1 to 1000."""
    curvature = torch.logspace(0, 3, 10, dtype=dtype)
    target = torch.randn(10, generator=generator).to(dtype)
    x = nn.Parameter(torch.zeros(10, dtype=dtype))
    evaluate, _ = evaluator(lambda: 0.5 * (curvature * (x - target).square()).sum(), x)
    stepper = LBFGS([x], lr=0.01)
    losses = []
    while not stepper.converged and len(losses) < 40:
        losses.append(take_step([stepper], evaluate))
    assert stepper.converged
    assert losses == sorted(losses, reverse=True)
    torch.testing.assert_close(x.detach(), target, rtol=0, atol=1e-3 if dtype == torch.float32 else 1e-4)


@pytest.mark.parametrize("seed", range(6))
def test_lbfgs_stops_only_at_an_optimum(seed):
    """A line search that takes several evaluations is not convergence."""
    rows = random_rows(60, n_features=3, seed=seed)
    problem = exact_problem(rows, seed=seed)
    train(problem, rows, Plan({"all": "lbfgs"}, max_epochs=100, batch_size=60))
    problem.loss(rows.whole()).backward()
    assert max(parameter.grad.abs().max() for parameter in problem.parameters()) < 1e-3


@pytest.mark.parametrize("how", ["nan", "error", "bad gradient"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_lbfgs_backs_away_from_where_the_loss_does_not_exist(how, dtype):
    """10x − log x has its minimum at 0.1, and the first step from 0.5 goes to −0.5."""
    x = nn.Parameter(torch.tensor([0.5], dtype=dtype))
    outside = []

    def evaluate() -> float:
        x.grad = None
        if x.item() <= 0:
            outside.append(x.item())
            if how == "error":
                raise NotPositiveDefinite
            x.grad = torch.full_like(x, math.nan)
            return math.nan if how == "nan" else 1.0
        value = (10 * x - x.log()).sum()
        value.backward()
        return value.item()

    stepper = LBFGS([x], lr=0.01)
    for _ in range(10):
        take_step([stepper], evaluate)
    assert outside
    assert x.item() == pytest.approx(0.1, rel=1e-3)


def test_lbfgs_reports_a_start_at_which_the_loss_does_not_exist():
    x = nn.Parameter(torch.zeros(1))
    assert LBFGS([x], lr=0.01).advance(lambda: math.nan) == math.inf


def test_adam_is_adam():
    """Three steps against the published recursion."""
    x = nn.Parameter(torch.tensor([1.0, -2.0], dtype=torch.float64))
    evaluate, _ = evaluator(lambda: (x**4).sum(), x)
    stepper = Adam([x], lr=0.1)
    y, first, second = x.detach().clone(), torch.zeros(2).double(), torch.zeros(2).double()
    for step in range(1, 4):
        take_step([stepper], evaluate)
        gradient = 4 * y**3
        first, second = 0.9 * first + 0.1 * gradient, 0.999 * second + 0.001 * gradient**2
        y = y - 0.1 * (first / (1 - 0.9**step)) / ((second / (1 - 0.999**step)).sqrt() + 1e-8)
    torch.testing.assert_close(x.detach(), y)


@pytest.mark.parametrize("kind", [Adam, DampedAdam])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("decay", [0.0, 0.3])
def test_adam_takes_the_steps_of_torch(kind, dtype, decay, generator):
    """Bit for bit: also with rates that change, for parameters that sometimes have no gradient, and after a restart."""
    start = [torch.randn(size, generator=generator).to(dtype) for size in (3, 40, 1)]
    ours, theirs = ([nn.Parameter(value.clone()) for value in start] for _ in range(2))
    stepper = kind(ours, 0.1, decay)
    reference = torch.optim.Adam(theirs, 0.1, eps=kind.damping, weight_decay=decay, fused=True)
    for step in range(8):
        if step == 5:
            memory, stepper = stepper.state(), kind(ours, 0.1, decay)
            stepper.restore(memory)
        for place, (a, b) in enumerate(zip(ours, theirs, strict=True)):
            idle = place == 2 and step % 3 != 1
            a.grad = None if idle else torch.randn(a.shape, generator=generator).to(dtype)
            b.grad = None if a.grad is None else a.grad.clone()
        stepper.set_rate(0.1 / (step + 1))
        reference.param_groups[0]["lr"] = 0.1 / (step + 1)
        stepper.advance(lambda: 0.0)
        reference.step()
        assert all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))


def test_weight_decay_is_half_the_sum_of_squares():
    x, y = (nn.Parameter(torch.tensor([1.0, -2.0], dtype=torch.float64)) for _ in range(2))
    decayed, _ = evaluator(lambda: (x**4).sum(), x)
    penalised, _ = evaluator(lambda: (y**4).sum() + 0.5 * 0.7 * y.square().sum(), y)
    steppers = Adam([x], 0.1, weight_decay=0.7), Adam([y], 0.1)
    for _ in range(4):
        take_step([steppers[0]], decayed)
        take_step([steppers[1]], penalised)
    torch.testing.assert_close(x.detach(), y.detach())


def test_steppers_that_need_one_gradient_share_it():
    x, y = nn.Parameter(torch.ones(1)), nn.Parameter(torch.ones(1))
    evaluate, calls = evaluator(lambda: (x.square() + y.square()).sum(), x, y)
    loss = take_step([Adam([x], 0.1), Adam([y], 0.1)], evaluate)
    assert len(calls) == 1
    assert loss == 2.0
    assert x.item() == y.item() == pytest.approx(0.9)


def test_the_loss_before_the_step_is_returned_by_every_mixture():
    x, y = nn.Parameter(torch.ones(1)), nn.Parameter(torch.ones(1))
    evaluate, _ = evaluator(lambda: (x.square() + y.square()).sum(), x, y)
    # L-BFGS moves after Adam has moved x from 1 to 0.9.
    assert take_step([LBFGS([y], 0.1), Adam([x], 0.1)], evaluate) == pytest.approx(1.81)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_two_adams_are_one(dtype):
    """{"weights": "adam", "points": "adam", "rest": "adam"} and {"all": "adam"} give the same bits."""
    rows = random_rows(30, seed=1).to(dtype)
    states = []
    for steppers in ({"all": "adam"}, {"weights": "adam", "points": "adam", "rest": "adam"}):
        problem = sparse_problem(rows.to(torch.float64), seed=2).to(dtype)
        train(problem, rows, Plan(steppers, max_epochs=4, batch_size=8, lr=0.03))
        states.append(problem.state_dict())
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])


def test_only_the_named_group_moves():
    rows = random_rows(30, seed=3)
    problem, start = sparse_problem(rows, seed=4), sparse_problem(rows, seed=4)
    train(problem, rows, Plan({"weights": "adam"}, max_epochs=2, batch_size=8, lr=0.03))
    for (name, after), before in zip(problem.named_parameters(), start.parameters(), strict=True):
        assert torch.equal(after, before) != name.startswith("family.weights")


def test_a_group_without_parameters_has_no_stepper():
    problem = exact_problem(random_rows(10))
    assert (
        len(make_steppers({"weights": "adam", "rest": "lbfgs"}, problem.groups(), {"weights": 0.1, "rest": 0.1})) == 1
    )


def with_network(rows):
    problem = sparse_problem(random_rows(10, seed=5), seed=6)
    problem.family = Embedded(make_network((4, 2), rows.x.shape[1]).double(), problem.family)
    return problem


@pytest.mark.parametrize("steppers", [{"network": "adam", "rest": "adam"}, {"rest": "adam"}, {"all": "adam"}])
def test_a_network_learns_whether_or_not_it_is_named(steppers):
    rows = random_rows(30, seed=7)
    problem, start = with_network(rows), with_network(rows)
    train(problem, rows, Plan(steppers, max_epochs=2, batch_size=8, lr=0.03))
    pairs = zip(problem.family.network.parameters(), start.family.network.parameters(), strict=True)
    assert not any(torch.equal(after, before) for after, before in pairs)


def test_rate_and_decay_of_a_network_are_its_own():
    rows = random_rows(30, seed=8)
    problem, reference = with_network(rows), with_network(rows)
    steppers = {"network": "adam", "rest": "adam"}
    train(problem, rows, Plan(steppers, 1, 30, 0.01, rates={"network": 0.03}, decay={"network": 0.5}))
    network = reference.family.network
    theirs = [
        torch.optim.Adam(network.parameters(), lr=0.03, weight_decay=0.5),
        torch.optim.Adam(reference.groups()["rest"], lr=0.01),
    ]
    reference.loss(rows.whole()).backward()
    for optimizer in theirs:
        optimizer.step()
    for name in ("network", "rest"):
        for ours, expected in zip(problem.groups()[name], reference.groups()[name], strict=True):
            torch.testing.assert_close(ours.detach(), expected.detach())


def test_only_adam_decays():
    problem = exact_problem(random_rows(10))
    with pytest.raises(TypeError, match="weight_decay"):
        make_steppers({"rest": "lbfgs"}, problem.groups(), {"rest": 0.1}, {"rest": 0.1})
