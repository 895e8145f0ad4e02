"""Layers whose inducing values are drawn: what they evaluate, and what their predictors hold."""

from __future__ import annotations

import json

import pytest
import torch

from candid.families import BasisPredictor, DrawnPredictor, FixedSites, LayersPredictor, predictor_from_spec
from small_models import implicit_problem, layers_problem, random_rows

WIDTHS = [(), (2,), (2, 3)]


@pytest.fixture(scope="module", params=WIDTHS, ids=str)
def problem(request):
    """With networks that are not silent."""
    made = implicit_problem(random_rows(n_outputs=2), request.param)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in made.groups()["generator"]:
            parameter.add_(0.3 * torch.randn(parameter.shape, dtype=torch.float64, generator=generator))
    return made


def of_draw(predictor: DrawnPredictor, number: int) -> BasisPredictor | LayersPredictor:
    """One of the components: layers with certain coefficients, and one site."""
    layers = [
        BasisPredictor(layer.kernel, layer.mean, layer.points, layer.coefficients[number], layer.explained)
        for layer in predictor.layers
    ]
    if len(layers) == 1:
        return layers[0]
    own = slice(number, number + 1)
    points = [predictor.sites.points(layer).squeeze(-2)[own] for layer in range(len(layers) - 1)]
    return LayersPredictor(layers, FixedSites(points, torch.zeros(1, 1).double(), False), predictor.wiring)


def test_predictions_are_mixtures_over_draws(problem):
    predictor, x = problem.family.predictor(), random_rows(5, seed=1).x
    assert isinstance(predictor, DrawnPredictor)
    found, joint = predictor.marginal(x), predictor.joint(x)
    assert found.mean.shape == found.residual.shape == (8, 5, 2)
    assert found.mean.std(0).min() > 1e-4
    torch.testing.assert_close(found.log_weight.exp(), torch.full((8, 1), 1 / 8).double())
    for number in range(8):
        one = of_draw(predictor, number)
        expected, together = one.marginal(x), one.joint(x)
        torch.testing.assert_close(found.mean[number], expected.mean.reshape(5, 2))
        torch.testing.assert_close(found.residual[number], expected.residual.reshape(5, 2))
        torch.testing.assert_close(joint.mean[number], together.mean.reshape(5, 2))
        covariance = joint.covariance if joint.covariance.dim() == 3 else joint.covariance[number]
        torch.testing.assert_close(covariance, together.covariance.reshape(2, 5, 5))
    torch.testing.assert_close(predictor.marginal(x, mean_only=True).mean, found.mean)
    drafted = problem.family.draft_predictor().marginal(x)
    torch.testing.assert_close(drafted.residual, found.residual)


def test_draws_have_the_axis_of_sites(problem):
    batch = random_rows(7, n_outputs=2, seed=2).whole()
    evaluation = problem.family.evaluate(batch)
    assert evaluation.marginal.mean.shape == (6, 7, 2)
    torch.testing.assert_close(evaluation.marginal.log_weight.exp().sum(), torch.tensor(1.0).double())
    assert evaluation.penalties["kl"].shape == ()


@pytest.mark.parametrize("widths", WIDTHS, ids=str)
def test_with_silent_networks_it_is_a_deep_gp(widths):
    """Loss and gradients are those of a full q(u), to the digit: nothing is drawn of what can be integrated."""
    rows = random_rows()
    drawn = implicit_problem(rows, widths)
    plain = layers_problem(rows, widths, None, "full", "elbo", 4, 1.0, jitter=1e-8, n_draws=6 if widths else None)
    plain.family.rule.seed = drawn.family.rule.seed
    losses = [problem.loss(rows.whole()) for problem in (drawn, plain)]
    torch.testing.assert_close(*losses)
    for loss in losses:
        loss.backward()
    for layer, expected in zip(drawn.family.layers, plain.family.layers, strict=True):
        torch.testing.assert_close(layer.weights.normal.lower.grad, expected.weights.lower.grad)
        torch.testing.assert_close(layer.points.grad, expected.points.grad)
    assert all(parameter.grad is None for parameter in drawn.groups()["critic"])


def test_a_predictor_is_rebuilt_from_its_description(problem):
    predictor, x = problem.family.predictor(), random_rows(5, seed=1).x
    spec = json.loads(json.dumps(predictor.to_spec()))
    again = predictor_from_spec(spec)
    again.load_state_dict(predictor.state_dict(), assign=True)
    assert torch.equal(again.marginal(x).mean, predictor.marginal(x).mean)
    assert not any("generator" in name or "critic" in name for name in predictor.state_dict())
    spec["layers"][-1]["coefficients"] = spec["layers"][-1]["coefficients"][1:]
    with pytest.raises(ValueError, match="as many draws of each layer as sites"):
        predictor_from_spec(spec)


def test_a_step_has_draws_of_its_own(problem):
    batch = random_rows(7, n_outputs=2, seed=2).whole()
    losses = []
    for step in (0, 1, 0):
        problem.family.refresh(step)
        losses.append(problem.loss(batch).item())
    assert losses[0] == losses[2] != losses[1]
