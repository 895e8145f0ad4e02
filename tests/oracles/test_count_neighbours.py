"""Leave-one-out densities of counts on a few rows, beside numerical integration."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.stats import binom, nbinom

from candid.engines import Plan, Problem, Rows, train
from candid.likelihoods import Binomial, NegativeBinomial, new_observations
from small_models import count_problem

X = torch.tensor([[0.0], [0.4], [1.1]]).double()
R = 2.5
NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(60)
WEIGHTS = WEIGHTS / WEIGHTS.sum()


def problem_of(y, trials=None, k=2) -> tuple[Problem, Rows]:
    rows = Rows(X[: len(y)], torch.tensor(y).double().unsqueeze(-1), torch.ones(len(y)).double())
    likelihood = NegativeBinomial(R) if trials is None else Binomial(torch.full((1, 1), float(trials)))
    return count_problem(rows, likelihood, k), rows


def log_probability(y, trials, f) -> np.ndarray:
    probability = 1 / (1 + np.exp(-f))
    return binom.logpmf(y, trials, probability) if trials else nbinom.logpmf(y, R, 1 - probability)


def log_evidence(kernel: np.ndarray, y, trials) -> float:
    """log ∫ Π p(y_n|f_n) N(f; 0, K) df on a grid of whitened values."""
    lower = np.linalg.cholesky(kernel)
    grid = np.stack(np.meshgrid(*[NODES] * len(y), indexing="ij"), -1) @ lower.T
    logs = sum(log_probability(y[n], trials, grid[..., n]) for n in range(len(y)))
    top = logs.max()
    weight = WEIGHTS
    for _ in range(len(y) - 1):
        weight = weight[..., None] * WEIGHTS
    return top + np.log((weight * np.exp(logs - top)).sum())


@pytest.mark.parametrize(("y", "trials"), [([3.0, 1.0, 4.0], 5), ([18.0, 12.0, 3.0], 30), ([0.0, 4.0, 9.0], None)])
def test_leave_one_out_densities(y, trials):
    """With sites where the penalty is least, the data term is near the exact one."""
    problem, rows = problem_of(y, trials)
    for _ in range(10):
        _settle(problem, rows)
    kernel = problem.family.kernel(rows.x)[0].detach().numpy()
    everything = log_evidence(kernel, y, trials)
    exact = 0.0
    for n in range(3):
        others = [m for m in range(3) if m != n]
        exact += everything - log_evidence(kernel[np.ix_(others, others)], [y[m] for m in others], trials)
    average, penalties = problem._data_term(rows.whole())
    assert float(average.detach()) == pytest.approx(exact / 3, abs=0.02)
    assert 0 < float(penalties["kl_aux"].detach()) / 3 < 0.02


@torch.no_grad()
def _settle(problem: Problem, rows: Rows) -> None:
    """Every site where its own penalty is least, given the others as they are."""
    sites, likelihood = problem.family.sites, problem.likelihood
    marginal = problem.family.evaluate(rows.whole()).marginal
    at_rows = likelihood.at(torch.arange(len(rows)))
    targets, precision = new_observations(likelihood, at_rows, rows.y, marginal.mean, marginal.variance)
    sites.shift.copy_((targets - sites.start) / sites.deviation)
    sites.log_ratio.copy_((precision * sites.deviation.square()).log())


@pytest.mark.parametrize("trials", [20, None])
def test_gradients(trials):
    """Of kernel and concentration; the penalty is part of the loss."""
    problem, rows = problem_of([3.0, 9.0, 1.0], trials, k=1)
    batch = rows.batch(torch.tensor([0, 2]))
    problem.loss(batch).backward()
    for parameter in problem.groups()["rest"]:
        gradient = parameter.grad.to_dense() if parameter.grad is not None else torch.zeros_like(parameter)
        for place in np.ndindex(*parameter.shape):
            values = []
            for side in (1, -1):
                with torch.no_grad():
                    parameter[place] += side * 1e-5
                values.append(problem.loss(batch).item())
                with torch.no_grad():
                    parameter[place] -= side * 1e-5
            assert gradient[place].item() == pytest.approx((values[0] - values[1]) / 2e-5, abs=1e-6)


def test_training_finds_them():
    """With the kernel at rest, sites go where the penalty is least."""
    problem, rows = problem_of([3.0, 9.0, 1.0], 20, k=1)
    problem.family.kernel.requires_grad_(False)
    train(problem, rows, Plan({"sites": "rows"}, 100, batch_size=3, rates={"sites": 0.1}))
    found = problem.family.sites(torch.arange(3))
    _settle(problem, rows)
    torch.testing.assert_close(found, problem.family.sites(torch.arange(3)), rtol=0, atol=0.05)
