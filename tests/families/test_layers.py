"""Deep GPs: what each layer sees, what comes out, and that nothing is computed twice."""

from __future__ import annotations

import json
import math

import pytest
import torch
from torch.autograd import gradcheck

from candid.engines import Plan, train
from candid.families import Layers, LayersPredictor, MonteCarlo, Wiring, make_rule, predictor_from_spec
from candid.linalg import whitening
from fragile import FragileCheckpoint, Interrupted
from small_models import layers_problem, random_rows, sparse_problem

TOPOLOGIES = ("chain", "input_mean", "both_mean", "both")


def by_hand(family: Layers, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Mean and variance at each site and row, one site after the other; for sites that are lined up."""
    n_sites, depth, means, variances = len(family.rule.log_weight()), len(family.layers), [], []
    for site in range(n_sites):
        below = None
        for number, layer in enumerate(family.layers):
            kernel_sees, mean_sees = family.wiring.sees(number)
            seen = {"inputs": x, "below": below, "both": None if below is None else torch.cat([below, x], -1)}
            marginal = layer.marginal(seen[kernel_sees], seen[mean_sees])
            if number < depth - 1:
                below = marginal.mean + family.rule.points(number)[site] * marginal.variance.sqrt()
        means.append(marginal.mean)
        variances.append(marginal.variance)
    return torch.stack(means), torch.stack(variances)


@pytest.mark.parametrize("n_outputs", [1, 2])
@pytest.mark.parametrize("widths", [(2,), (1,), (3, 2), (2, 2, 2)])
@pytest.mark.parametrize("topology", TOPOLOGIES)
def test_layers_by_hand(widths, topology, n_outputs):
    rows = random_rows(5, n_features=3, n_outputs=n_outputs)
    family = layers_problem(rows, widths, topology=topology, skip=topology == "both").family
    evaluation = family.evaluate(rows.whole())
    mean, variance = by_hand(family, rows.x)
    torch.testing.assert_close(evaluation.marginal.mean, mean)
    torch.testing.assert_close(evaluation.marginal.variance, variance)
    assert evaluation.marginal.log_weight.shape == (4, 1)
    expected = sum(layer.weights.penalty() for layer in family.layers)
    torch.testing.assert_close(evaluation.penalties["kl"], expected)


def test_what_layers_see():
    chain = Wiring(4)
    assert [chain.sees(layer) for layer in range(4)] == [("inputs", "inputs"), *[("below", "below")] * 3]
    assert Wiring(3, "both", skip=True).sees(2) == ("both", "both")
    assert Wiring(3, "both_mean").widths(1, 7, (3, 2)) == (3, 10)
    assert Wiring(3, "input_mean").widths(1, 7, (3, 2)) == (3, 7)
    assert Wiring(3, skip=True).widths(2, 7, (3, 2)) == (9, 9)
    with pytest.raises(ValueError, match="unknown topology 'ring'; choose one of chain"):
        Wiring(3, "ring")


@pytest.mark.parametrize("objective", ["predictive", "elbo"])
def test_one_layer_is_a_gp_with_inducing_points(objective):
    rows = random_rows(20, n_outputs=2, weighted=True)
    deep, plain = layers_problem(rows, (), objective=objective), sparse_problem(rows, "diagonal", objective, n_points=6)
    deep.coefficients = plain.coefficients = {"kl": 0.3}
    plain.load_state_dict(
        {name.replace("layers.0.", ""): value for name, value in deep.state_dict().items() if "rule" not in name}
    )
    batch = rows.whole()
    losses = [problem.loss(batch) for problem in (deep, plain)]
    assert losses[0] == losses[1]
    for loss in losses:
        loss.backward()
    for name, parameter in plain.named_parameters():
        twin = dict(deep.named_parameters())[name.replace("family.", "family.layers.0.", 1)]
        assert torch.equal(parameter.grad, twin.grad)


def test_the_predictive_objective_is_the_log_of_the_mixture():
    rows = random_rows(8, n_outputs=2)
    problem = layers_problem(rows, (2,), beta=0.0)
    with torch.no_grad():
        problem.family.rule.logits.copy_(torch.tensor([0.3, -1.0, 0.7, 0.1]))
    mean, variance = by_hand(problem.family, rows.x)
    total, density = variance + problem.likelihood.noise.value, 0.0
    for site, weight in enumerate(problem.family.rule.logits.softmax(0)):
        normal = torch.exp(-0.5 * (rows.y - mean[site]) ** 2 / total[site]) / torch.sqrt(2 * math.pi * total[site])
        density = density + weight * normal.prod(-1)
    torch.testing.assert_close(problem.loss(rows.whole()), -density.log().mean())


@pytest.mark.parametrize("width", [1, 2])
def test_gauss_hermite_agrees_with_many_random_sites(width):
    rows = random_rows(4)
    exact = layers_problem(rows, (width,), make_rule("gauss-hermite", 30, [width]))
    random = layers_problem(rows, (width,), MonteCarlo(40_000, [width], seed=1))
    moments = [problem.family.evaluate(rows.whole()).marginal.moments() for problem in (exact, random)]
    for found, expected in zip(*moments, strict=True):
        torch.testing.assert_close(found, expected, atol=0.01, rtol=0.01)
    losses = [problem.loss(rows.whole()) for problem in (exact, random)]
    torch.testing.assert_close(*losses, atol=0.005, rtol=0)


def test_each_kernel_matrix_is_factorised_once(monkeypatch):
    rows = random_rows(9, n_features=3)
    family = layers_problem(rows, (3, 2)).family
    sizes, real = [], whitening.cholesky

    def counted(matrix, jitter):
        sizes.append(tuple(matrix.shape))
        return real(matrix, jitter)

    monkeypatch.setattr(whitening, "cholesky", counted)
    family.evaluate(rows.whole())
    assert sizes == [(3, 6, 6), (2, 6, 6), (1, 6, 6)]


@pytest.mark.parametrize("rule", ["qr1", "qr2", "qr3", "gauss-hermite"])
@pytest.mark.parametrize("topology", ["chain", "both"])
def test_gradients_through_the_layers(rule, topology):
    rows = random_rows(3, n_features=1)
    widths = (1, 2) if topology == "both" else (2,)
    problem = layers_problem(
        rows, widths, make_rule(rule, 2, widths), topology=topology, skip=topology == "both", n_points=3
    )
    names, values = zip(
        *((name, parameter.detach().clone().requires_grad_()) for name, parameter in problem.named_parameters()),
        strict=True,
    )

    def loss(*values):
        return torch.func.functional_call(
            Wrapped(problem), {f"problem.{n}": v for n, v in zip(names, values, strict=True)}, ()
        )

    class Wrapped(torch.nn.Module):
        def __init__(self, problem):
            super().__init__()
            self.problem = problem

        def forward(self):
            return self.problem.loss(rows.whole())

    assert gradcheck(loss, values, fast_mode=True)


@pytest.mark.parametrize("rule", ["qr2", "qr3", "sampling"])
@pytest.mark.parametrize("topology", TOPOLOGIES)
def test_predictors_say_what_the_family_says(rule, topology):
    rows, widths = random_rows(6, n_features=2, n_outputs=2), (2, 1)
    sites = MonteCarlo(3, widths, n_settled=8) if rule == "sampling" else make_rule(rule, 2, widths)
    family = layers_problem(rows, widths, sites, "full", topology=topology, skip=True, jitter=1e-8).family
    settled = Layers(list(family.layers), sites.settled().double(), family.wiring)
    expected = settled.evaluate(rows.whole()).marginal
    for predictor in (family.predictor(), family.draft_predictor()):
        marginal = predictor.marginal(rows.x)
        torch.testing.assert_close(marginal.mean, expected.mean.detach())
        torch.testing.assert_close(marginal.variance, expected.variance.detach(), atol=1e-7, rtol=1e-6)
        torch.testing.assert_close(marginal.log_weight, expected.log_weight.detach())
        torch.testing.assert_close(predictor.marginal(rows.x, mean_only=True).mean, marginal.mean)
        joint = predictor.joint(rows.x)
        torch.testing.assert_close(joint.mean, marginal.mean)
        torch.testing.assert_close(joint.covariance.diagonal(dim1=-2, dim2=-1).mT, marginal.variance)


def test_a_predictor_is_rebuilt_from_its_description():
    rows, widths = random_rows(6), (2, 2)
    predictor = layers_problem(rows, widths, make_rule("qr1", 2, widths), topology="both_mean").family.predictor()
    again = predictor_from_spec(json.loads(json.dumps(predictor.to_spec())))
    again.load_state_dict(predictor.state_dict(), assign=True)
    assert isinstance(again, LayersPredictor)
    for name in ("mean", "variance", "log_weight"):
        assert torch.equal(getattr(again.marginal(rows.x), name), getattr(predictor.marginal(rows.x), name))
    assert again.n_points == predictor.n_points == 16 * 6
    broken = predictor.to_spec()
    del broken["sites"]["crossed"]
    with pytest.raises(ValueError, match="has the parts"):
        predictor_from_spec(broken)
    broken = {**predictor.to_spec(), "layers": predictor.to_spec()["layers"][1:]}
    with pytest.raises(ValueError, match="not those of one model"):
        predictor_from_spec(broken)


def test_predictions_have_gradients_with_respect_to_inputs():
    rows = random_rows(2)
    predictor = layers_problem(rows, (2,)).family.predictor()
    assert gradcheck(lambda x: predictor.marginal(x).moments(), rows.x.requires_grad_())


def test_several_chains_side_by_side():
    """Models with a leading dimension are so many models."""
    rows = random_rows(5)
    one, other = (layers_problem(rows, (2,), seed=seed).family for seed in (1, 2))
    both = layers_problem(rows, (2,), seed=1).family
    for layer, first, second in zip(both.layers, one.layers, other.layers, strict=True):
        pairs = zip(first.parameters(), second.parameters(), strict=True)
        for parameter, values in zip(layer.parameters(), pairs, strict=True):
            parameter.data = torch.stack([value.detach() for value in values])
        layer.jitter = torch.stack([first.jitter, second.jitter])
    other.rule.load_state_dict(one.rule.state_dict())
    marginal = both.evaluate(rows.whole()).marginal
    for chain, family in enumerate((one, other)):
        expected = family.evaluate(rows.whole())
        torch.testing.assert_close(marginal.mean[chain], expected.marginal.mean)
        torch.testing.assert_close(marginal.variance[chain], expected.marginal.variance)


@pytest.mark.parametrize("rule", ["sampling", "qr3"])
def test_a_resumed_run_ends_bit_for_bit_where_it_would_have_ended(tmp_path, rule):
    rows = random_rows(40, seed=3)
    plan = Plan({"weights": "damped", "points": "adam", "rest": "adam"}, 6, batch_size=16, lr=0.02, seed=5, limit=1.1)

    def problem():
        return layers_problem(rows, (2,), MonteCarlo(3, [2], seed=7) if rule == "sampling" else None, jitter=1e-6)

    whole, resumed = problem(), problem()
    history = train(whole, rows, plan)
    with pytest.raises(Interrupted):
        train(problem(), rows, plan, checkpoint=FragileCheckpoint(tmp_path / "run", 7))
    again = train(resumed, rows, plan, checkpoint=FragileCheckpoint(tmp_path / "run", 10**6))
    assert [record["loss"] for record in again] == [record["loss"] for record in history]
    for name, tensor in whole.state_dict().items():
        assert torch.equal(tensor, resumed.state_dict()[name]), name


def test_the_number_of_layers_must_fit():
    family = layers_problem(random_rows(3), (2,)).family
    with pytest.raises(ValueError, match="wiring is for 3 layers, got 2"):
        Layers(list(family.layers), family.rule, Wiring(3))
