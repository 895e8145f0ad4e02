"""Chains of layers of GPs: each is what it would be alone."""

from __future__ import annotations

import copy
import json

import pytest
import torch

from candid.families import FixedSites, MonteCarlo, Rule, predictor_from_spec
from small_models import chained, layers_problem, random_rows, sparse_problem

ROWS = random_rows(9, n_features=2, n_outputs=2, seed=4)
NEW = random_rows(5, n_features=2, seed=5).x
N_CHAINS, N_DRAWS, WIDTHS = 2, 3, (2, 3)


class Given(Rule):
    """One site for each row, at given places."""

    crossed = False

    def __init__(self, points: list[torch.Tensor]) -> None:
        super().__init__()
        self._points = points

    def points(self, layer, n_rows=1):
        return self._points[layer]

    def log_weight(self):
        return torch.zeros(1, 1).double()

    def settled(self): ...


@pytest.fixture
def single():
    return layers_problem(ROWS, WIDTHS, MonteCarlo(1, WIDTHS, n_settled=1, seed=3), weights="delta", jitter=1e-8)


@pytest.fixture
def chains(single, draw):
    """Chains that have moved apart."""
    problem = chained(copy.deepcopy(single), N_CHAINS)
    with torch.no_grad():
        for parameter in problem.family.parameters():
            parameter.add_(0.2 * draw(*parameter.shape))
    return problem


def at(single, tensors, rule, *place):
    """A single model with one sample of the chains' parameters, and a rule of its own."""
    problem = copy.deepcopy(single)
    own = problem.family.state_dict()
    problem.family.load_state_dict({name: tensors[f"inner.{name}"][place] for name in own})
    problem.family.rule = rule
    return problem


def test_losses_and_gradients_are_those_of_each_model_alone(single, chains):
    batch, rule = ROWS.whole(), chains.family.inner.rule
    chains.family.refresh(7)
    points = [rule.points(layer, len(ROWS)) for layer in range(len(WIDTHS))]
    assert [p.shape for p in points] == [(N_CHAINS, 1, len(ROWS), width) for width in WIDTHS]
    assert not torch.equal(points[0][0], points[0][1])
    losses = chains.losses(batch)
    losses.sum().backward()
    tensors = chains.family.state_dict()
    for chain in range(N_CHAINS):
        alone = at(single, tensors, Given([p[chain] for p in points]), chain)
        loss = alone.loss(batch)
        loss.backward()
        torch.testing.assert_close(losses[chain], loss, rtol=1e-10, atol=1e-10)
        together = dict(chains.family.inner.named_parameters())
        for name, parameter in alone.family.named_parameters():
            torch.testing.assert_close(together[name].grad[chain], parameter.grad, rtol=1e-7, atol=1e-9)


def test_hidden_values_follow_from_the_step(chains):
    def loss(step):
        chains.family.refresh(step)
        return chains.loss(ROWS.whole()).item()

    assert loss(1) == loss(1) != loss(2)
    with torch.no_grad():
        assert loss(1) == loss(2)


@pytest.fixture
def sampled(chains, draw):
    """Samples of some parameters of all layers; samples and what stays, (draw, chain, …)."""
    tensors = {
        name: tensor.detach().expand(N_DRAWS, *tensor.shape).clone()
        for name, tensor in chains.family.state_dict().items()
    }
    moved = [name for name in tensors if name.endswith(("weights.mean", "points"))]
    for name in moved:
        tensors[name] = tensors[name] + 0.2 * draw(*tensors[name].shape)
    chains.keep({f"family.{name}": tensors[name] for name in moved})
    return chains, tensors


def test_predictions_are_mixtures_over_all_samples_with_one_site_each(single, sampled):
    chains, tensors = sampled
    predictor = chains.family.predictor()
    sites = predictor.inner.sites
    n_models = N_DRAWS * N_CHAINS
    marginal, joint = predictor.marginal(NEW), predictor.joint(NEW)
    torch.testing.assert_close(marginal.log_weight.exp(), torch.full((n_models, 1), 1 / n_models).double())
    assert marginal.mean.shape == joint.mean.shape == (n_models, 5, 2)
    assert len(torch.unique(sites.points(0))) == n_models * WIDTHS[0]
    for draw in range(N_DRAWS):
        for chain in range(N_CHAINS):
            model = draw * N_CHAINS + chain
            own = [sites.points(layer)[model].squeeze(-2) for layer in range(len(WIDTHS))]
            problem = at(single, tensors, single.family.rule, draw, chain)
            problem.family.rule = FixedSites(own, torch.zeros(1, 1).double(), crossed=False)
            alone = problem.family.predictor()
            expected, together = alone.marginal(NEW), alone.joint(NEW)
            torch.testing.assert_close(marginal.mean[model], expected.mean[0], rtol=1e-8, atol=1e-8)
            torch.testing.assert_close(marginal.variance[model], expected.variance[0], rtol=1e-6, atol=1e-8)
            torch.testing.assert_close(joint.mean[model], together.mean[0], rtol=1e-8, atol=1e-8)
            torch.testing.assert_close(joint.covariance[model], together.covariance[0], rtol=1e-6, atol=1e-8)
    assert torch.equal(predictor.marginal(NEW, mean_only=True).mean, marginal.mean)


def test_several_sites_of_each_model(chains):
    chains.family.inner.rule.n_settled = 3
    predictor = chains.family.predictor()
    marginal, joint = predictor.marginal(NEW), predictor.joint(NEW)
    assert marginal.mean.shape == joint.mean.shape == (3 * N_CHAINS, 5, 2)
    torch.testing.assert_close(marginal.log_weight.exp().sum(), torch.ones(()).double())
    diagonal = joint.covariance.diagonal(dim1=-2, dim2=-1).mT
    torch.testing.assert_close(marginal.variance, diagonal, rtol=1e-6, atol=1e-8)


def test_descriptions(sampled):
    predictor = sampled[0].family.predictor()
    rebuilt = predictor_from_spec(json.loads(json.dumps(predictor.to_spec())))
    rebuilt.load_state_dict(predictor.state_dict(), assign=True)
    assert torch.equal(rebuilt.marginal(NEW).mean, predictor.marginal(NEW).mean)
    assert torch.equal(rebuilt.joint(NEW).covariance, predictor.joint(NEW).covariance)
    assert rebuilt.n_points == predictor.n_points


def test_the_middle_is_one_model_at_the_averages(sampled):
    chains, tensors = sampled
    middle = chains.family.middle()
    for name, tensor in middle.state_dict().items():
        torch.testing.assert_close(tensor, tensors[f"inner.{name}"].mean((0, 1)))
    assert middle.evaluate(ROWS.whole()).marginal.mean.shape == (1, 9, 2)
    assert chains.family.hidden_inputs == middle.hidden_inputs == 3


def test_one_layer_is_a_gp_with_inducing_points():
    deep = layers_problem(ROWS, (), weights="delta", beta=1.0)
    plain = sparse_problem(ROWS, "delta", "predictive", n_points=6)
    plain.load_state_dict(
        {name.replace("layers.0.", ""): value for name, value in deep.state_dict().items() if "rule" not in name}
    )
    deep, plain = (chained(problem, N_CHAINS) for problem in (deep, plain))
    assert torch.equal(deep.losses(ROWS.whole()), plain.losses(ROWS.whole()))
    first, second = (problem.family.predictor().marginal(NEW) for problem in (deep, plain))
    assert torch.equal(first.mean, second.mean)
    assert torch.equal(first.variance, second.variance)
