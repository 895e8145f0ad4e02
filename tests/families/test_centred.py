"""Inducing points for the variance alone."""

from __future__ import annotations

import pytest
import torch

from candid.families import Centred, Inducing
from candid.weights import optimal_weights
from small_models import random_rows, sparse_problem


def without_mean(problem):
    with torch.no_grad():
        problem.family.weights.mean.zero_()
    return problem


@pytest.mark.parametrize("weights", ["full", "diagonal"])
@pytest.mark.parametrize("objective", ["elbo", "predictive"])
def test_it_is_inducing_points_with_a_mean_of_zero(weights, objective):
    rows = random_rows(25, n_features=3, n_outputs=2)
    ours, theirs = (
        without_mean(sparse_problem(rows, weights, objective, kind=kind, mean="linear")) for kind in (Centred, Inducing)
    )
    ours.load_state_dict(theirs.state_dict())
    batch = rows.whole()
    torch.testing.assert_close(ours.loss(batch), theirs.loss(batch))
    torch.testing.assert_close(ours.family.evaluate(batch).marginal.mean, ours.family.mean(rows.x))


def test_the_penalty_is_that_of_the_spread():
    rows = random_rows()
    family = without_mean(sparse_problem(rows, kind=Centred)).family
    covariance = family.weights.lower.tril() @ family.weights.lower.tril().mT
    # KL(N(0, S) ‖ N(0, I)) = ½(tr S − M − log det S)
    expected = 0.5 * (torch.trace(covariance[0]) - 8 - torch.logdet(covariance[0]))
    torch.testing.assert_close(family.evaluate(rows.whole()).penalties["kl"], expected)


def test_the_mean_stays_zero():
    rows = random_rows()
    family = without_mean(sparse_problem(rows, kind=Centred)).family
    assert not any(parameter is family.weights.mean for parameter in family.weight_parameters())
    features = family.regression()(rows.x).mean
    coefficients, precision = optimal_weights(features @ features.mT, (features @ rows.y).squeeze(-1))
    family.assign(coefficients, precision)
    torch.testing.assert_close(family.weights.mean, torch.zeros(1, 8).double())
    spread = family.weights.lower.tril()
    torch.testing.assert_close(spread @ spread.mT @ precision, torch.eye(8).double().expand(1, 8, 8))


def test_predictions_are_those_of_the_mean_function():
    rows = random_rows()
    family = without_mean(sparse_problem(rows, kind=Centred, mean="linear")).family
    torch.testing.assert_close(family.predictor().marginal(rows.x).mean, family.mean(rows.x).detach())
