from __future__ import annotations

import json

import pytest
import torch

from candid.families import predictor_from_spec
from small_models import exact_problem, random_rows, sparse_problem

MODELS = {
    "full": lambda rows: sparse_problem(rows, "full", seed=1),
    "diagonal": lambda rows: sparse_problem(rows, "diagonal", seed=2),
    "delta": lambda rows: sparse_problem(rows, "delta", mean="linear", seed=3),
    "sum of kernels": lambda rows: sparse_problem(rows, "full", kernel="rbf + matern32", mean="zero", seed=4),
    "exact": lambda rows: exact_problem(rows, seed=5),
}
NEW = random_rows(7, n_features=2, seed=6).x


@pytest.fixture(params=MODELS.values(), ids=MODELS)
def predictor(request):
    return request.param(random_rows(12, n_features=2, n_outputs=2, seed=7)).family.predictor()


def test_a_family_and_its_predictor_agree():
    rows = random_rows(12, n_outputs=2, seed=8)
    for weights in ("full", "diagonal", "delta"):
        family = sparse_problem(rows, weights, seed=9).family
        trained, predicted = family.evaluate(rows.whole()).marginal, family.predictor().marginal(rows.x)
        torch.testing.assert_close(predicted.mean, trained.mean)
        torch.testing.assert_close(predicted.residual, trained.residual)
        torch.testing.assert_close(predicted.spread, trained.spread)


def test_marginals_are_the_diagonal_of_the_joint(predictor):
    marginal, joint = predictor.marginal(NEW), predictor.joint(NEW)
    torch.testing.assert_close(joint.mean, marginal.mean)
    torch.testing.assert_close(joint.covariance.diagonal(dim1=-2, dim2=-1).mT, marginal.variance)
    assert torch.equal(joint.covariance, joint.covariance.mT)
    assert torch.linalg.eigvalsh(joint.covariance).min() > -1e-10


def test_the_mean_alone(predictor):
    """The same mean, and no product with the M×M matrix."""
    alone = predictor.marginal(NEW, mean_only=True)
    assert torch.equal(alone.mean, predictor.marginal(NEW).mean)
    assert (alone.variance == 0).all()
    predictor.whitener.fill_(torch.nan)
    assert torch.equal(predictor.marginal(NEW, mean_only=True).mean, alone.mean)
    assert torch.isnan(predictor.marginal(NEW).variance).any()


def test_one_row_and_a_batch_agree(predictor):
    together = predictor.marginal(NEW)
    for position in range(len(NEW)):
        alone = predictor.marginal(NEW[position : position + 1])
        torch.testing.assert_close(alone.mean[0], together.mean[position], rtol=1e-10, atol=1e-10)
        torch.testing.assert_close(alone.variance[0], together.variance[position], rtol=1e-10, atol=1e-10)


def test_gradients_with_respect_to_inputs(predictor):
    x = NEW[:3].clone().requires_grad_()

    def numbers(x):
        marginal, joint = predictor.marginal(x), predictor.joint(x)
        return marginal.mean, marginal.residual, marginal.spread, joint.covariance

    assert torch.autograd.gradcheck(numbers, (x,))


def test_rebuilt_from_json_and_tensors(predictor):
    again = predictor_from_spec(json.loads(json.dumps(predictor.to_spec())))
    again.load_state_dict(predictor.state_dict(), assign=True)
    ours, theirs = again.marginal(NEW), predictor.marginal(NEW)
    assert torch.equal(ours.mean, theirs.mean)
    assert torch.equal(ours.residual, theirs.residual)
    assert torch.equal(ours.spread, theirs.spread)
    assert torch.equal(again.joint(NEW).covariance, predictor.joint(NEW).covariance)
    assert not any(parameter.requires_grad for parameter in again.parameters())


def test_an_unknown_kind_is_refused():
    with pytest.raises(ValueError, match="unknown kind of predictor 'crystal ball'"):
        predictor_from_spec({"type": "crystal ball"})


def test_a_predictor_shares_nothing_with_its_family():
    rows = random_rows(12, seed=10)
    problem = sparse_problem(rows, seed=11)
    predictor = problem.family.predictor()
    before = predictor.marginal(NEW)
    with torch.no_grad():
        for parameter in problem.parameters():
            parameter.add_(0.1)
    after = predictor.marginal(NEW)
    assert torch.equal(before.mean, after.mean)
    assert torch.equal(before.variance, after.variance)
    assert all(parameter.requires_grad for parameter in problem.parameters())


def test_predictors_are_double_whatever_the_family():
    predictor = sparse_problem(random_rows(12), seed=12).float().family.predictor()
    assert all(tensor.dtype == torch.float64 for tensor in predictor.state_dict().values())
    assert predictor.marginal(NEW).mean.dtype == torch.float64
