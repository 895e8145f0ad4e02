from __future__ import annotations

import copy

import pytest
import torch

from candid.engines import Rows
from small_models import exact_problem, random_rows


@pytest.mark.parametrize("kernel", ["matern52", "rbf + matern32"])
def test_predictions_by_dense_algebra(kernel):
    """Also of kernels whose summands have amplitudes of their own, with weights."""
    rows, new = random_rows(20, n_outputs=2, seed=1, weighted=True), random_rows(6, seed=2).x
    problem = exact_problem(rows, kernel, mean="linear", seed=3)
    family, k = problem.family, problem.family.kernel
    with torch.no_grad():
        noise = problem.likelihood.noise.value.mT.unsqueeze(-1) * torch.diag_embed(1 / rows.weight)
        gain = k(new, rows.x) @ torch.linalg.inv(k(rows.x) + noise)
        mean = family.mean(new) + (gain @ (rows.y - family.mean(rows.x)).mT.unsqueeze(-1)).squeeze(-1).mT
        covariance = k(new) - gain @ k(rows.x, new)
    predictor = family.predictor()
    torch.testing.assert_close(predictor.joint(new).mean, mean)
    torch.testing.assert_close(predictor.joint(new).covariance, covariance)
    torch.testing.assert_close(predictor.marginal(new).variance, covariance.diagonal(dim1=-2, dim2=-1).mT)


def test_there_is_no_spread():
    rows = random_rows(10)
    assert (exact_problem(rows).family.predictor().marginal(rows.x).spread == 0).all()


def test_duplicate_rows_with_hardly_any_noise():
    rows = random_rows(10, seed=4)
    rows = Rows(rows.x.repeat(3, 1), rows.y.repeat(3, 1), rows.weight.repeat(3))
    problem = exact_problem(rows, "rbf", known=torch.full((30, 1), 1e-18, dtype=torch.float64), seed=5)
    assert torch.isfinite(problem.loss(rows.whole()))
    predictor = problem.family.predictor()
    assert problem.family.jitter > 0
    torch.testing.assert_close(predictor.marginal(rows.x).mean, rows.y, rtol=0, atol=1e-3)


def test_the_prior_is_joint():
    rows = random_rows(7, n_outputs=2, seed=6)
    family = exact_problem(rows, seed=7).family
    prior = family.prior(rows.whole())
    torch.testing.assert_close(prior.covariance, family.kernel(rows.x))
    torch.testing.assert_close(prior.mean, family.mean(rows.x))


def test_the_rows_are_not_part_of_the_state():
    """Checkpoints do not copy them, but copies in other precisions have them and predict."""
    rows = random_rows(10, seed=8)
    problem = exact_problem(rows, seed=9)
    state = problem.family.state_dict()
    assert not {"x", "weight"} & set(state)
    again = exact_problem(rows, seed=10)
    again.family.load_state_dict(state)
    copied = copy.deepcopy(again.family).float().double()
    for family in (again.family, copied):
        found, expected = family.predictor().marginal(rows.x), problem.family.predictor().marginal(rows.x)
        torch.testing.assert_close(found.mean, expected.mean, rtol=1e-3, atol=1e-3)
        torch.testing.assert_close(found.variance, expected.variance, rtol=1e-3, atol=1e-3)


def test_an_exact_family_has_no_row_marginals():
    rows = random_rows(10)
    with pytest.raises(TypeError, match="use it with an evidence"):
        exact_problem(rows).family.evaluate(rows.whole())
