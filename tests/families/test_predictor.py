from __future__ import annotations

import copy
import json
import pickle
from functools import partial

import pytest
import torch

from candid.families import predictor_from_spec
from small_models import (
    conditional_problem,
    decoupled_problem,
    exact_problem,
    orthogonal_problem,
    random_rows,
    sparse_problem,
)

MODELS = {
    "full": lambda rows: sparse_problem(rows, "full", seed=1),
    "diagonal": lambda rows: sparse_problem(rows, "diagonal", seed=2),
    "delta": lambda rows: sparse_problem(rows, "delta", mean="linear", seed=3),
    "sum of kernels": lambda rows: sparse_problem(rows, "full", kernel="rbf + matern32", mean="zero", seed=4),
    "exact": lambda rows: exact_problem(rows, seed=5),
    "decoupled": lambda rows: decoupled_problem(rows, "diagonal", seed=13),
    "decoupled full": lambda rows: decoupled_problem(rows, "full", n_mean_points=9, n_points=4, seed=14),
    "orthogonal": lambda rows: orthogonal_problem(rows, "full", seed=15),
    "orthogonal sum of kernels": lambda rows: orthogonal_problem(rows, "diagonal", kernel="rbf + matern32", seed=16),
    "conditional": lambda rows: conditional_problem(rows, "full", whiten="covariance", seed=17),
    "conditional diagonal": lambda rows: conditional_problem(rows, "diagonal", kernel="rbf + matern32", seed=18),
    "conditional delta": lambda rows: conditional_problem(rows, "delta", mean="linear", seed=19),
}
NEW = random_rows(7, n_features=2, seed=6).x
# Of a description, to one that fits no predictor
CHANGES = [{"root": None}, {"explained": None}, {"explained": {"shape": [1, 2]}}, {"spread": None}]


@pytest.fixture(params=MODELS.values(), ids=MODELS)
def predictor(request):
    return request.param(random_rows(12, n_features=2, n_outputs=2, seed=7)).family.predictor()


@pytest.mark.parametrize("weights", ["full", "diagonal", "delta"])
@pytest.mark.parametrize(
    "build",
    [
        sparse_problem,
        decoupled_problem,
        orthogonal_problem,
        conditional_problem,
        partial(conditional_problem, whiten="covariance"),
    ],
)
def test_a_family_and_its_predictors_agree(build, weights):
    rows = random_rows(12, n_outputs=2, seed=8)
    family = build(rows, weights, mean="linear", seed=9).family
    trained = family.evaluate(rows.whole()).marginal
    for predictor in (family.predictor(), family.draft_predictor()):
        predicted = predictor.marginal(rows.x)
        torch.testing.assert_close(predicted.mean, trained.mean, rtol=1e-9, atol=1e-9)
        torch.testing.assert_close(predicted.variance, trained.residual + trained.spread, rtol=1e-9, atol=1e-9)
        assert (predicted.spread == 0).all()


def test_an_uncertain_mean_costs_one_product_in_a_predictor_and_two_in_a_draft():
    family = sparse_problem(random_rows(12, seed=10), "full", n_points=6, seed=11).family
    assert family.predictor().explained.matrix.shape == (1, 6, 6)
    assert family.draft_predictor().explained.matrix.shape == (1, 12, 6)


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
    predictor.explained.matrix.fill_(torch.nan)
    assert torch.equal(predictor.marginal(NEW, mean_only=True).mean, alone.mean)
    assert torch.isnan(predictor.marginal(NEW).variance).any()


def test_one_row_and_a_batch_agree(predictor):
    together = predictor.marginal(NEW)
    for position in range(len(NEW)):
        alone = predictor.marginal(NEW[position : position + 1])
        torch.testing.assert_close(alone.mean[0], together.mean[position], rtol=1e-10, atol=1e-10)
        torch.testing.assert_close(alone.variance[0], together.variance[position], rtol=1e-10, atol=1e-10)


def test_gradients_and_values_come_from_the_same_function(predictor):
    """Values without gradients come from what the predictor has derived from its kernel, gradients from the kernel."""
    plain, tracked = predictor.marginal(NEW), predictor.marginal(NEW.clone().requires_grad_())
    torch.testing.assert_close(plain.mean, tracked.mean.detach(), rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(plain.variance, tracked.variance.detach(), rtol=1e-10, atol=1e-10)
    with torch.inference_mode():
        assert torch.equal(predictor.marginal(NEW).variance, plain.variance)


def test_a_predictor_that_was_first_used_in_inference_mode_is_differentiable(predictor):
    x = NEW.clone().requires_grad_()
    with torch.inference_mode():
        predictor.marginal(NEW)
    predictor.marginal(x).variance.sum().backward()
    assert x.grad.isfinite().all()


def test_gradients_with_respect_to_inputs(predictor):
    x = NEW[:3].clone().requires_grad_()

    def numbers(x):
        marginal, joint = predictor.marginal(x), predictor.joint(x)
        return marginal.mean, marginal.variance, joint.covariance

    assert torch.autograd.gradcheck(numbers, (x,))


def test_rebuilt_from_json_and_tensors(predictor):
    again = predictor_from_spec(json.loads(json.dumps(predictor.to_spec())))
    again.load_state_dict(predictor.state_dict(), assign=True)
    ours, theirs = again.marginal(NEW), predictor.marginal(NEW)
    assert torch.equal(ours.mean, theirs.mean)
    assert torch.equal(ours.variance, theirs.variance)
    assert torch.equal(again.joint(NEW).covariance, predictor.joint(NEW).covariance)
    assert not any(parameter.requires_grad for parameter in again.parameters())


def test_nothing_derived_outlives_its_tensors(predictor):
    """A predictor that has been used predicts as one that has not, whatever happens to its tensors."""
    state, other = predictor.state_dict(), copy.deepcopy(predictor)
    for tensor in other.state_dict().values():
        tensor.mul_(1.1)
    predictor.marginal(NEW)
    assert predictor.state_dict().keys() == state.keys()
    single = copy.deepcopy(predictor).float()
    assert torch.equal(predictor.float().marginal(NEW.float()).variance, single.marginal(NEW.float()).variance)
    assert predictor.marginal(NEW.float()).mean.dtype == torch.float32
    predictor.double().load_state_dict(other.state_dict())
    assert torch.equal(predictor.marginal(NEW).variance, other.marginal(NEW).variance)
    again = pickle.loads(pickle.dumps(predictor))
    assert torch.equal(again.marginal(NEW).variance, other.marginal(NEW).variance)
    assert not torch.equal(again.marginal(NEW).mean, predictor.float().marginal(NEW.float()).mean.double())


@pytest.mark.parametrize("change", CHANGES)
def test_a_description_that_does_not_fit_is_refused(predictor, change):
    with pytest.raises((ValueError, KeyError, TypeError)):
        predictor_from_spec(predictor.to_spec() | change)


def test_an_unknown_kind_is_refused():
    with pytest.raises(ValueError, match="unknown kind of predictor 'crystal ball'"):
        predictor_from_spec({"type": "crystal ball"})


@pytest.mark.parametrize("build", [sparse_problem, conditional_problem])
def test_a_predictor_shares_nothing_with_its_family(build):
    rows = random_rows(12, seed=10)
    problem = build(rows, seed=11)
    predictor = problem.family.predictor()
    before = predictor.marginal(NEW)
    with torch.no_grad():
        for parameter in problem.parameters():
            parameter.add_(0.1)
    after = predictor.marginal(NEW)
    assert torch.equal(before.mean, after.mean)
    assert torch.equal(before.variance, after.variance)
    assert all(parameter.requires_grad for parameter in problem.parameters())


@pytest.mark.parametrize("build", [sparse_problem, conditional_problem])
def test_predictors_are_double_whatever_the_family(build):
    predictor = build(random_rows(12), seed=12).float().family.predictor()
    assert all(tensor.dtype == torch.float64 for tensor in predictor.state_dict().values())
    assert predictor.marginal(NEW).mean.dtype == torch.float64
