"""Many inducing points, of which a row sees those next to it."""

from __future__ import annotations

import json

import pytest
import torch

from candid.engines import Checkpoint, Plan, Problem, train
from candid.families import predictor_from_spec
from fragile import FragileCheckpoint, Interrupted
from small_models import random_rows, swsgp_problem

NEW = random_rows(7, seed=99).x


def problem_of(rows, k=4, **options) -> Problem:
    return swsgp_problem(rows, k, n_points=12, mean="linear", **options)


@pytest.fixture
def rows():
    return random_rows(25, n_outputs=2, seed=1, weighted=True)


def test_the_predictor_sees_what_training_sees(rows):
    family = problem_of(rows).family
    expected = family.evaluate(rows.whole()).marginal
    found = family.predictor().marginal(rows.x)
    torch.testing.assert_close(found.mean, expected.mean)
    torch.testing.assert_close(found.variance, expected.variance)
    assert (family.predictor().marginal(rows.x, mean_only=True).variance == 0).all()


def test_groups_make_no_difference(rows, monkeypatch):
    problem = problem_of(rows)
    together = problem.loss(rows.whole())
    monkeypatch.setattr("candid.families.subset.GROUP_ENTRIES", 100)
    torch.testing.assert_close(problem.loss(rows.whole()), together)


def test_divergences_count_with_the_weights_of_rows(rows):
    family = problem_of(rows).family
    apart = torch.stack([family.evaluate(rows.batch(torch.tensor([row]))).penalties["kl"] for row in range(25)])
    together = family.evaluate(rows.whole()).penalties["kl"]
    torch.testing.assert_close(together, rows.weight @ apart / rows.weight.sum())


def test_one_row_jointly_is_that_row_alone(rows):
    predictor = problem_of(rows).family.predictor()
    joint, marginal = predictor.joint(NEW[:1]), predictor.marginal(NEW[:1])
    torch.testing.assert_close(joint.mean, marginal.mean)
    torch.testing.assert_close(joint.covariance[:, 0, 0], marginal.variance[0])
    covariance = predictor.joint(NEW).covariance
    assert (torch.linalg.eigvalsh(covariance) > -1e-9).all()
    # Rows that see all points have the same moments together and alone.
    predictor = problem_of(rows, k=12).family.predictor()
    joint, marginal = predictor.joint(NEW), predictor.marginal(NEW)
    torch.testing.assert_close(joint.mean, marginal.mean)
    torch.testing.assert_close(joint.covariance.diagonal(dim1=-2, dim2=-1).mT, marginal.variance)


def test_too_many_rows_together(rows, monkeypatch):
    monkeypatch.setattr("candid.families.nearby_predictor.MOST_TOGETHER", 5)
    with pytest.raises(ValueError, match="ask for fewer rows at a time"):
        problem_of(rows).family.predictor().joint(NEW)


def test_files(rows):
    predictor = problem_of(rows).family.predictor()
    again = predictor_from_spec(json.loads(json.dumps(predictor.to_spec())))
    again.load_state_dict(predictor.state_dict(), assign=True)
    assert torch.equal(again.marginal(NEW).mean, predictor.marginal(NEW).mean)
    with pytest.raises(ValueError, match="is described by"):
        predictor_from_spec({"type": "subset"})


def test_points_are_searched_where_they_were(rows):
    family = problem_of(rows, refresh_every=10).family
    before = family.searched.nearest(rows.x, 4)
    with torch.no_grad():
        family.points.copy_(family.points.flip(0))
    family.refresh(3)
    assert torch.equal(family.searched.nearest(rows.x, 4), before)
    family.refresh(10)
    assert torch.equal(family.searched.nearest(rows.x, 4), 11 - before)


def test_values_are_assigned_around_the_mean_function(rows):
    family = problem_of(rows, k=1).family
    mean, variance = torch.randn(12, 2).double(), torch.rand(12, 2).double()
    family.assign(mean, variance)
    marginal = family.predictor().marginal(family.points.detach())
    torch.testing.assert_close(marginal.mean, mean)
    torch.testing.assert_close(marginal.variance, variance)


def test_a_killed_run_goes_on_bit_for_bit(rows, tmp_path):
    plan = Plan({"all": "adam"}, max_epochs=4, batch_size=8, lr=0.1, seed=0)

    def trained(checkpoint=None):
        problem = problem_of(rows, refresh_every=3)
        train(problem, rows, plan, checkpoint=checkpoint)
        return problem.state_dict()

    expected = trained()
    path = tmp_path / "run"
    with pytest.raises(Interrupted):
        trained(FragileCheckpoint(path, last=5))
    found = trained(Checkpoint(path))
    assert all(torch.equal(found[name], expected[name]) for name in expected)
    assert "family.searched.x" in expected
