"""A network in front of a family."""

from __future__ import annotations

import copy
import json
from dataclasses import replace

import pytest
import torch
from torch import nn

from candid.engines import Checkpoint, Plan, Problem, train
from candid.families import Embedded, EmbeddedPredictor, Exact, NetworkMean, make_mean, predictor_from_spec
from candid.kernels import Deep, Network, make_kernel, make_network, unfold
from fragile import FragileCheckpoint, Interrupted
from small_models import decoupled_problem, exact_problem, orthogonal_problem, random_rows, sparse_problem

PROBLEMS = {"inducing": sparse_problem, "decoupled": decoupled_problem, "orthogonal": orthogonal_problem}
NORMALISED = {"normalise": True, "scaled_output": True}


def embedded(problem: Problem, network) -> Problem:
    """The same problem with a network in front of its family."""
    problem = copy.deepcopy(problem)
    problem.family = Embedded(network, problem.family)
    return problem


def with_network(rows, seed: int = 0, weights: str = "full", **options) -> Problem:
    """A sparse model of two features that a network makes of the inputs."""
    network = make_network(Network((8, 2), seed=seed, **options), rows.x.shape[1]).double()
    inner = sparse_problem(random_rows(10, 2, rows.y.shape[1]), weights, "predictive", seed=seed)
    return embedded(inner, network)


@pytest.mark.parametrize("make", PROBLEMS.values(), ids=PROBLEMS)
def test_an_identity_in_front_changes_nothing(make):
    rows = random_rows(20, n_outputs=2, seed=1, weighted=True)
    inner = make(rows, mean="linear", seed=2)
    outer = embedded(inner, make_network(nn.Identity(), 2).double())
    found, expected = outer.family.evaluate(rows.whole()), inner.family.evaluate(rows.whole())
    for part in ("mean", "residual", "spread"):
        assert torch.equal(getattr(found.marginal, part), getattr(expected.marginal, part))
    assert torch.equal(found.penalties["kl"], expected.penalties["kl"])
    assert outer.loss(rows.whole()) == inner.loss(rows.whole())
    for kind in ("predictor", "draft_predictor"):
        predictors = [getattr(problem.family, kind)() for problem in (outer, inner)]
        marginals, joints = ([p.marginal(rows.x) for p in predictors], [p.joint(rows.x) for p in predictors])
        assert torch.equal(marginals[0].mean, marginals[1].mean)
        assert torch.equal(marginals[0].variance, marginals[1].variance)
        assert torch.equal(joints[0].mean, joints[1].mean)
        assert torch.equal(joints[0].covariance, joints[1].covariance)


def test_the_joint_prior_is_that_of_the_features():
    rows = random_rows(12, seed=3)
    inner = sparse_problem(rows, seed=4)
    outer = embedded(inner, make_network(nn.Identity(), 2).double())
    found, expected = outer.family.prior(rows.whole()), inner.family.prior(rows.whole())
    assert torch.equal(found.features, expected.features)
    assert torch.equal(found.mean, expected.mean)


def test_the_family_behind_sees_features():
    """Its mean function, too."""
    rows = random_rows(15, n_features=3, seed=5)
    family = with_network(rows).family
    family.mean = make_mean("linear", 2, 1).double()
    family.mean.slope.set(torch.tensor([[1.0], [-2.0]]))
    features = family.network(rows.x)
    found, expected = family.evaluate(rows.whole()), family.inner.evaluate(replace(rows.whole(), x=features))
    assert torch.equal(found.marginal.mean, expected.marginal.mean)
    assert torch.equal(found.marginal.variance, expected.marginal.variance)


def test_parts_are_those_of_the_family_behind():
    rows = random_rows(15, n_features=3, n_outputs=2, seed=6)
    family = with_network(rows).family
    assert family.mean is family.inner.mean
    assert family.jitter is family.inner.jitter
    assert [id(p) for p in family.weight_parameters()] == [id(p) for p in family.inner.weight_parameters()]
    assert "kernel.network.layers.0.weight" not in family.state_dict()


def test_the_kernel_is_one_of_inputs():
    rows = random_rows(15, n_features=3, seed=7)
    family = with_network(rows).family
    features = family.network(rows.x)
    torch.testing.assert_close(family.kernel(rows.x), family.inner.kernel(features))
    other = make_kernel(Deep((4, 2), 2.0 * make_kernel("rbf", 2).base), 3, batch_shape=(1,)).double()
    family.kernel = other
    assert family.network is other.network
    assert family.inner.kernel is other.base
    assert torch.equal(family.kernel(rows.x), other(rows.x))
    with pytest.raises(TypeError, match="a Deep one, got Scale"):
        family.kernel = make_kernel("rbf", 3)


@pytest.mark.parametrize("weights", ["full", "diagonal", "delta"])
def test_gradients_of_the_loss(weights):
    """By finite differences along random directions of all parameters, the network's among them."""
    rows = random_rows(12, n_features=3, seed=8)
    problem = with_network(rows, weights=weights, **NORMALISED)
    problem.loss(rows.whole()).backward()
    learned = [p for p in problem.parameters() if p.requires_grad]
    generator, step = torch.Generator().manual_seed(9), 1e-6
    for _ in range(3):
        directions = [torch.randn(p.shape, dtype=torch.float64, generator=generator) for p in learned]
        slope = sum((d * p.grad).sum() for d, p in zip(directions, learned, strict=True))
        ends = []
        for sign in (1, -1):
            moved = copy.deepcopy(problem)
            with torch.no_grad():
                for d, p in zip(directions, [p for p in moved.parameters() if p.requires_grad], strict=True):
                    p.add_(sign * step * d)
            ends.append(moved.loss(rows.whole()).item())
        assert (ends[0] - ends[1]) / (2 * step) == pytest.approx(slope.item(), rel=1e-5, abs=1e-6)


def test_weights_of_rows_count_in_the_statistics():
    """A row of weight two is the same as two rows."""
    rows = random_rows(9, n_features=3, seed=10, weighted=True)
    repeated = rows.subset(torch.arange(9).repeat_interleave(rows.weight.long()))
    repeated.weight.fill_(1.0)
    once, often = (with_network(rows, **NORMALISED) for _ in range(2))
    torch.testing.assert_close(once.loss(rows.whole()), often.loss(repeated.whole()))
    torch.testing.assert_close(
        once.family.predictor().marginal(rows.x).mean, often.family.predictor().marginal(rows.x).mean
    )


@pytest.mark.parametrize("options", [{}, NORMALISED])
def test_predictions_do_not_depend_on_the_rows_beside(options):
    rows = random_rows(30, n_features=3, seed=11)
    problem = with_network(rows, **options)
    problem.loss(rows.whole())
    predictor = problem.family.predictor()
    before = copy.deepcopy(predictor.state_dict())
    together, alone = predictor.marginal(rows.x), predictor.marginal(rows.x[7:8])
    torch.testing.assert_close(together.mean[7:8], alone.mean, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(together.variance[7:8], alone.variance, rtol=1e-10, atol=1e-10)
    x = rows.x.clone().requires_grad_()
    (slope,) = torch.autograd.grad(predictor.marginal(x).mean[7].sum(), x)
    assert slope[7].abs().max() > 0
    assert (slope[:7] == 0).all()
    assert all(torch.equal(tensor, before[name]) for name, tensor in predictor.state_dict().items())


def test_training_and_prediction_agree_where_the_batch_is_the_table():
    rows = random_rows(30, n_features=3, seed=12)
    problem = with_network(rows, **NORMALISED)
    marginal = problem.family.evaluate(rows.whole()).marginal
    predicted = problem.family.predictor().marginal(rows.x)
    torch.testing.assert_close(predicted.mean, marginal.mean)
    torch.testing.assert_close(predicted.variance, marginal.variance)


def test_a_look_at_the_loss_leaves_no_trace():
    rows = random_rows(30, n_features=3, seed=13)
    problem = with_network(rows, **NORMALISED)
    problem.loss(rows.whole())
    before = copy.deepcopy(problem.family.network.state_dict())
    problem.standing(rows)
    problem.held_out_nll(rows)
    assert all(torch.equal(tensor, before[name]) for name, tensor in problem.family.network.state_dict().items())


def test_prediction_in_float64_after_training_in_float32():
    rows = random_rows(30, n_features=3, seed=14)
    problem = with_network(rows, **NORMALISED).float()
    problem.loss(rows.to(torch.float32).whole())
    predictor = problem.family.predictor()
    assert predictor.dtype == predictor.marginal(rows.x).mean.dtype == torch.float64
    with torch.no_grad():
        marginal = problem.family.evaluate(rows.to(torch.float32).whole()).marginal
    torch.testing.assert_close(predictor.marginal(rows.x).mean.float(), marginal.mean, rtol=1e-3, atol=1e-3)


class Squares(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 2)

    def forward(self, x):
        return self.linear(x.square())


@pytest.mark.parametrize("own", [False, True])
def test_rebuilt_from_its_description(own):
    rows = random_rows(20, n_features=3, n_outputs=2, seed=15)
    problem = with_network(rows, **NORMALISED)
    if own:
        problem.family.network = make_network(Squares(), 3).double()
    predictor = problem.family.predictor()
    spec = json.loads(json.dumps(predictor.to_spec(), allow_nan=False))
    again = predictor_from_spec(spec, Squares() if own else None)
    again.load_state_dict(predictor.state_dict(), assign=True)
    assert isinstance(again, EmbeddedPredictor)
    assert again.dtype == torch.float64
    assert again.n_points == predictor.n_points
    assert torch.equal(again.marginal(rows.x).mean, predictor.marginal(rows.x).mean)
    assert torch.equal(again.joint(rows.x).covariance, predictor.joint(rows.x).covariance)
    assert not any(parameter.requires_grad for parameter in again.parameters())
    if own:
        with pytest.raises(ValueError, match="as features="):
            predictor_from_spec(spec)
    with pytest.raises(ValueError, match="an embedded predictor has the parts"):
        predictor_from_spec({**spec, "more": 1})


def run(dtype: torch.dtype, checkpoint=None):
    """A few steps of training on batches of different rows; returns all tensors and the history."""
    rows = random_rows(23, n_features=3, seed=16).to(dtype)
    problem = with_network(rows, **NORMALISED).to(dtype)
    problem.family.mean = NetworkMean(Network((4,), normalise=True), 2, 1).to(dtype)
    plan = Plan({"all": "adam"}, max_epochs=3, batch_size=6, lr=0.02, seed=17)
    history = train(problem, rows, plan, checkpoint=checkpoint)
    return problem.state_dict(), [record["loss"] for record in history]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_an_interrupted_run_goes_on_bit_for_bit(dtype, tmp_path):
    expected, losses = run(dtype)
    with pytest.raises(Interrupted):
        run(dtype, FragileCheckpoint(tmp_path / "run", last=7))
    found, again = run(dtype, Checkpoint(tmp_path / "run"))
    assert again == losses
    for name in expected:
        assert torch.equal(found[name], expected[name]), name
    assert found["family.network.layers.1.n_steps"] == 12


def test_families_that_hold_rows_need_a_deep_kernel():
    rows = random_rows(10)
    with pytest.raises(TypeError, match="Exact holds rows of the table"):
        Embedded(make_network((2,), 2), exact_problem(rows).family)


def test_an_exact_model_with_a_deep_kernel():
    """Its prediction is that of the base kernel at the features."""
    rows = random_rows(15, n_features=3, seed=18)
    problem = exact_problem(random_rows(15, n_features=2, seed=18), seed=19)
    network = make_network((4, 2), 3).double()
    features = network(rows.x).detach()
    sites, weight = problem.likelihood.sites(rows.y), rows.weight
    plain = Exact(problem.family.kernel, make_mean("zero", 2, 1).double(), features, sites, weight)
    deep = Exact(Deep(network, problem.family.kernel), make_mean("zero", 3, 1).double(), rows.x, sites, weight)
    found, expected = deep.predictor().marginal(rows.x), plain.predictor().marginal(features)
    torch.testing.assert_close(found.mean, expected.mean)
    torch.testing.assert_close(found.variance, expected.variance)


@pytest.mark.parametrize("make", PROBLEMS.values(), ids=PROBLEMS)
def test_inducing_points_that_are_inputs(make):
    """A deep kernel with points Z is a model of features with points h(Z)."""
    rows = random_rows(15, n_features=3, n_outputs=2, seed=20)
    deep = make(rows, mean="zero", seed=21).family
    network = make_network((4, 2), 3).double()
    base = make_kernel("matern52", 2, batch_shape=(2,)).double()
    deep.kernel = Deep(network, base)
    inner = copy.deepcopy(deep)
    inner.kernel, inner.mean = base, make_mean("zero", 2, 2).double()
    for points in ("points", "mean_points"):
        if hasattr(deep, points):
            setattr(inner, points, nn.Parameter(network(getattr(deep, points)).detach()))
    outer = Embedded(network, inner)
    found, expected = deep.evaluate(rows.whole()), outer.evaluate(rows.whole())
    torch.testing.assert_close(found.marginal.mean, expected.marginal.mean)
    torch.testing.assert_close(found.marginal.variance, expected.marginal.variance)
    torch.testing.assert_close(found.penalties["kl"], expected.penalties["kl"])
    torch.testing.assert_close(deep.predictor().marginal(rows.x).variance, outer.predictor().marginal(rows.x).variance)
    assert unfold(deep.kernel)[0] is base
