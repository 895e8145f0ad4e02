"""Networks with dropout."""

from __future__ import annotations

import copy
import json
import math

import pytest
import torch
from torch import nn

from candid.engines import Checkpoint, Plan, train
from candid.families import Dropout, DropoutPredictor, HeadedNetwork, predictor_from_spec
from candid.families.dropout import PREDICTION, STANDING, TRAINING
from candid.kernels import Network, make_network
from candid.objectives import elbo
from fragile import FragileCheckpoint, Interrupted
from small_models import network_problem, random_rows

STEPPERS = {"network": "adam", "rest": "adam"}


def by_hand(family: Dropout, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """One pass of a network of widths (6, 4), for one mask of ten units (or one for each row)."""
    first, _, second = family.network.network.layers
    hidden = torch.relu(x @ first.weight.T + first.bias) * mask[..., :6]
    hidden = torch.relu(hidden @ second.weight.T + second.bias) * mask[..., 6:]
    return hidden @ family.network.heads.weight.T + family.network.heads.bias


@pytest.mark.parametrize("n_outputs", [1, 2])
def test_a_pass_in_training(n_outputs):
    rows = random_rows(9, n_features=3, n_outputs=n_outputs, seed=1)
    family = network_problem(rows, seed=2).family
    family.refresh(17)
    masks = family.masks(9, TRAINING, 17).double()
    evaluation = family.evaluate(rows.whole())
    torch.testing.assert_close(evaluation.marginal.mean, by_hand(family, rows.x, masks))
    assert not evaluation.marginal.variance.any()
    assert evaluation.marginal.log_weight is None
    assert evaluation.penalties == {}


def test_masks_are_a_function_of_seed_purpose_and_step():
    family = network_problem(random_rows(5), seed=3).family
    again = network_problem(random_rows(5), seed=3).family
    other = network_problem(random_rows(5), seed=4).family
    draws = [family.masks(40, *key) for key in ((TRAINING, 0), (TRAINING, 1), (STANDING, 0), (PREDICTION, 0))]
    draws.append(other.masks(40, TRAINING, 0))
    for position, draw in enumerate(draws):
        assert draw.shape == (40, 10)
        assert all(not torch.equal(draw, earlier) for earlier in draws[:position])
    assert torch.equal(draws[1], again.masks(40, TRAINING, 1))


@pytest.mark.parametrize("dropout", [0.05, 0.5])
def test_masks_keep_the_expectation(dropout):
    family = network_problem(random_rows(5), dropout=dropout).family
    masks = family.masks(20_000, TRAINING)
    assert set(masks.unique().tolist()) == {0.0, torch.tensor(1.0).div(1 - dropout).item()}
    assert float((masks == 0).double().mean()) == pytest.approx(dropout, abs=0.005)
    assert float(masks.double().mean()) == pytest.approx(1.0, abs=0.01)


def test_without_gradients_masks_stay_the_same():
    """So that a run can tell whether it stands better than it began."""
    rows = random_rows(20, seed=5)
    problem = network_problem(rows, seed=6)
    standing, losses = [], []
    for step in (0, 1):
        problem.family.refresh(step)
        losses.append(problem.loss(rows.whole()).item())
        with torch.no_grad():
            standing.append(problem.loss(rows.whole()).item())
    assert standing[0] == standing[1]
    assert losses[0] != losses[1]


def plain_network(problem) -> nn.Sequential:
    """The same weights in layers of torch."""
    network = problem.family.network
    return copy.deepcopy(nn.Sequential(*network.network.layers, nn.ReLU(), network.heads))


def test_without_dropout_it_is_a_plain_network():
    rows = random_rows(12, n_outputs=2, seed=7, weighted=True)
    problem = network_problem(rows, dropout=0.0, seed=8)
    plain = plain_network(problem)
    torch.testing.assert_close(problem.family.evaluate(rows.whole()).marginal.mean, plain(rows.x))
    predictor = problem.family.predictor()
    assert predictor.masks.shape == (1, 10)
    torch.testing.assert_close(predictor.marginal(rows.x).mean[0], plain(rows.x))
    torch.testing.assert_close(problem.family.network(rows.x), plain(rows.x))


def test_training_without_dropout_is_that_of_torch():
    """Ten steps against a loss, an optimizer and a noise that are written out."""
    rows = random_rows(12, seed=9)
    problem = network_problem(rows, dropout=0.0, seed=10)
    plain, noise = plain_network(problem), copy.deepcopy(problem.likelihood.noise)
    train(problem, rows, Plan(STEPPERS, 10, 12, 0.01, rates={"rest": 0.05}, decay={"network": 0.1}))
    optimizers = [torch.optim.Adam(plain.parameters(), 0.01, weight_decay=0.1), torch.optim.Adam([noise.raw], 0.05)]
    for _ in range(10):
        normal = torch.distributions.Normal(plain(rows.x), noise.value.sqrt())
        loss = -normal.log_prob(rows.y).mean()
        for optimizer in optimizers:
            optimizer.zero_grad()
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
    for ours, theirs in zip(plain_network(problem).parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs)
    torch.testing.assert_close(problem.likelihood.noise.raw, noise.raw)


def test_gradients_of_the_loss():
    rows = random_rows(7, n_outputs=2, seed=11, weighted=True)
    problem = network_problem(rows, seed=12)
    names, values = zip(*problem.named_parameters(), strict=True)

    def loss(*parameters):
        return torch.func.functional_call(_Loss(problem, rows), dict(zip(names, parameters, strict=True)))

    names = tuple(f"problem.{name}" for name in names)
    assert torch.autograd.gradcheck(loss, tuple(value.detach().requires_grad_() for value in values))


class _Loss(nn.Module):
    """The loss of all rows as a module."""

    def __init__(self, problem, rows) -> None:
        super().__init__()
        self.problem, self.rows = problem, rows

    def forward(self):
        return self.problem.loss(self.rows.whole())


def test_known_noise():
    rows = random_rows(8, seed=13)
    known = torch.full((8, 1), 0.3, dtype=torch.float64)
    problem = network_problem(rows, known=known, seed=14)
    mean = problem.family.evaluate(rows.whole()).marginal.mean
    expected = -torch.distributions.Normal(mean, math.sqrt(0.3)).log_prob(rows.y).mean()
    torch.testing.assert_close(problem.loss(rows.whole()), expected)
    assert problem.groups()["rest"] == []
    train(problem, rows, Plan(STEPPERS, 2, 8))


# Prediction


def test_each_pass_is_one_thinned_network():
    rows = random_rows(8, n_features=3, n_outputs=2, seed=15)
    family = network_problem(rows, n_passes=4, seed=16).family
    predictor = family.predictor()
    marginal = predictor.marginal(rows.x)
    expected = torch.stack([by_hand(family, rows.x, mask) for mask in predictor.masks])
    torch.testing.assert_close(marginal.mean, expected)
    assert len({tuple(mask.tolist()) for mask in predictor.masks}) > 1
    torch.testing.assert_close(marginal.log_weight, torch.full((4, 1), -math.log(4)).double())


def test_moments_of_the_mixture():
    rows = random_rows(8, n_outputs=2, seed=17)
    predictor = network_problem(rows, n_passes=7, seed=18).family.predictor()
    passes = predictor.marginal(rows.x).mean
    mean, variance = predictor.marginal(rows.x).moments()
    torch.testing.assert_close(mean, passes.mean(0))
    torch.testing.assert_close(variance, passes.var(0, correction=0))
    joint = predictor.joint(rows.x).mixed()
    torch.testing.assert_close(joint.mean, mean)
    assert joint.covariance.shape == (2, 8, 8)
    for output in range(2):
        torch.testing.assert_close(joint.covariance[output], passes[..., output].T.cov(correction=0))


def test_the_held_out_nll_is_that_of_the_mixture():
    rows, held_out = random_rows(10, n_outputs=2, seed=19), random_rows(6, n_outputs=2, seed=20, weighted=True)
    problem = network_problem(rows, seed=21)
    marginal = problem.family.predictor().marginal(held_out.x)
    noise = problem.likelihood.noise.value.sqrt().detach()
    terms = torch.distributions.Normal(marginal.mean, noise).log_prob(held_out.y).sum(-1)
    densities = terms.exp().mean(0)
    expected = -(held_out.weight * densities.log()).sum() / held_out.weight.sum()
    assert problem.held_out_nll(held_out) == pytest.approx(expected.item(), rel=1e-10)


def test_a_row_alone_and_among_others():
    rows = random_rows(30, seed=22)
    predictor = network_problem(rows, features=(64, 32), n_passes=20, seed=23).family.predictor()
    together = predictor.marginal(rows.x).mean
    alone = torch.cat([predictor.marginal(row[None]).mean for row in rows.x], dim=1)
    torch.testing.assert_close(alone, together, rtol=1e-12, atol=1e-12)


def test_predictions_are_differentiable_in_the_inputs():
    predictor = network_problem(random_rows(5), seed=24).family.predictor()
    x = random_rows(3, seed=25).x.requires_grad_()
    assert torch.autograd.gradcheck(lambda x: predictor.marginal(x).moments(), (x,))


@pytest.mark.parametrize("features", [(6, 4), Network((5, 3), normalise=True, scaled_output=True), "ppgpr"])
def test_a_predictor_from_its_description(features):
    rows = random_rows(12, n_outputs=2, seed=26)
    problem = network_problem(rows, features=features, seed=27)
    problem.loss(rows.whole())
    predictor = problem.family.predictor()
    again = predictor_from_spec(json.loads(json.dumps(predictor.to_spec())))
    assert isinstance(again, DropoutPredictor)
    again.load_state_dict(predictor.state_dict(), assign=True)
    assert torch.equal(again.marginal(rows.x).mean, predictor.marginal(rows.x).mean)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda spec: spec.pop("masks"), "a dropout predictor has the parts"),
        (lambda spec: spec.update(masks=[5, 11]), "masks of 11 units do not fit a network with 10"),
        (lambda spec: spec.update(masks=[0, 10]), "do not fit"),
        (lambda spec: spec["network"].update(heads=[1, 1]), "heads of 1 features do not fit a network with 4"),
        (lambda spec: spec["network"].pop("heads"), "a network with heads has the parts"),
    ],
)
def test_a_faulty_description(change, message):
    spec = network_problem(random_rows(5)).family.predictor().to_spec()
    change(spec)
    with pytest.raises(ValueError, match=message):
        predictor_from_spec(spec)


# Modules of torch


def test_hidden_units_of_a_module():
    module = nn.Sequential(
        nn.Linear(2, 5), nn.Sequential(nn.Tanh(), nn.Linear(5, 4), nn.Tanh()), nn.Linear(4, 3), nn.Tanh()
    )
    network = HeadedNetwork(make_network(module, 2), 1)
    assert network.hidden == [5, 4, 3]
    nn.init.ones_(network.heads.weight)
    x = random_rows(6).x.float()
    torch.testing.assert_close(network.passes(x, torch.ones(1, 1, 12))[0], network.heads(module(x)))
    mask = torch.tensor([1, 0, 1, 1, 1, 2, 1, 1, 0, 1, 0, 1]).float()
    hidden = torch.tanh(module[1][1](torch.tanh(module[0](x)) * mask[:5]))
    expected = network.heads(torch.tanh(module[2](hidden * mask[5:9])) * mask[9:])
    torch.testing.assert_close(network.passes(x, mask[None, None])[0], expected)


def test_a_module_that_is_no_chain_is_thinned_at_its_end():
    class Doubled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(2, 3)

        def forward(self, x):
            return torch.cat((self.inner(x), x), dim=-1)

    assert HeadedNetwork(make_network(Doubled(), 2), 1).hidden == [5]


def test_batch_normalisation_counts_the_rows_of_the_batch():
    """Statistics of weighted rows in training, running averages in prediction."""
    rows = random_rows(20, seed=28, weighted=True)
    problem = network_problem(rows, Network((4,), scaled_output=True), dropout=0.0, seed=29)
    layer, norm = problem.family.network.network.layers
    train(problem, rows, Plan(STEPPERS, 1, 20, lr=1e-9))
    values = layer(rows.x).detach()
    share = rows.weight / rows.weight.sum()
    torch.testing.assert_close(norm.running_mean, share @ values, rtol=1e-6, atol=1e-6)
    predictor = problem.family.predictor()
    torch.testing.assert_close(predictor.marginal(rows.x[:1]).mean, predictor.marginal(rows.x).mean[:, :1])


# Training


@pytest.mark.parametrize("normalise", [False, True])
@pytest.mark.parametrize("last", [1, 4, 11])
def test_an_interrupted_run_ends_with_the_same_tensors(tmp_path, last, normalise):
    rows, plan = random_rows(30, seed=30), Plan(STEPPERS, 4, 10, 0.01, decay={"network": 0.01}, seed=5, with_start=True)
    features = Network((6, 4), normalise=normalise)
    whole = network_problem(rows, features, seed=31)
    history = train(whole, rows, plan)
    with pytest.raises(Interrupted):
        train(network_problem(rows, features, seed=31), rows, plan, checkpoint=FragileCheckpoint(tmp_path / "c", last))
    resumed = network_problem(rows, features, seed=31)
    again = train(resumed, rows, plan, checkpoint=Checkpoint(tmp_path / "c"))
    assert [record["loss"] for record in again] == [record["loss"] for record in history]
    expected = whole.state_dict()
    assert all(torch.equal(tensor, expected[name]) for name, tensor in resumed.state_dict().items())
    assert torch.equal(resumed.family.predictor().masks, whole.family.predictor().masks)


def test_the_loss_is_the_expected_log_density():
    rows = random_rows(8, seed=32)
    problem = network_problem(rows, seed=33)
    marginal = problem.family.evaluate(rows.whole()).marginal
    torch.testing.assert_close(problem.loss(rows.whole()), -elbo(marginal, problem.likelihood.at(None), rows.y).mean())


@pytest.mark.parametrize("dropout", [-0.1, 1.0])
def test_a_probability_must_be_one(dropout):
    with pytest.raises(ValueError, match="at least 0 and below 1"):
        Dropout(make_network((3,), 2), 1, dropout)


def test_a_network_has_to_be_built():
    with pytest.raises(ValueError, match="call build"):
        HeadedNetwork(Network((3,)), 1)
