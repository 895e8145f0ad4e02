from __future__ import annotations

import copy

import pytest
import torch

from candid.families import Orthogonal, make_mean
from candid.families.orthogonal import LEAST_VARIANCE
from candid.kernels import make_kernel
from candid.marginal import Batch
from candid.weights import WEIGHTS
from small_models import orthogonal_problem, random_rows, separated_points, sparse_problem


@pytest.mark.parametrize("weights", ["full", "diagonal", "delta"])
def test_without_coefficients_it_is_the_family_of_its_inducing_points(weights):
    rows = random_rows(15, n_outputs=2, seed=1)
    problem = orthogonal_problem(rows, weights, "predictive", beta=0.3, mean="linear", seed=2)
    with torch.no_grad():
        problem.family.directions.zero_()
    plain = sparse_problem(rows, weights, "predictive", beta=0.3, mean="linear", points=problem.family.points.detach())
    plain.load_state_dict({name: problem.state_dict()[name] for name in plain.state_dict()})
    for ours, theirs in zip((problem, plain), (plain, problem), strict=True):
        ours.loss(rows.whole()).backward()
        torch.testing.assert_close(ours.loss(rows.whole()), theirs.loss(rows.whole()))
    for name, parameter in plain.named_parameters():
        torch.testing.assert_close(problem.get_parameter(name).grad, parameter.grad)
    found, expected = problem.family.predictor().marginal(rows.x), plain.family.predictor().marginal(rows.x)
    torch.testing.assert_close(found.mean, expected.mean)
    torch.testing.assert_close(found.variance, expected.variance)


def test_the_new_functions_vanish_at_the_points_of_the_variance():
    """They are orthogonal to k(Zσ, ·): whatever their coefficients, the mean at Zσ is that of q(v)."""
    rows = random_rows(6, seed=3)
    points = rows.x.unsqueeze(0)
    family = orthogonal_problem(rows, points=points, seed=4).family
    with_them = family.evaluate(rows.whole()).marginal.mean
    new = random_rows(6, seed=5)
    elsewhere = family.evaluate(new.whole()).marginal.mean
    with torch.no_grad():
        family.directions.zero_()
    torch.testing.assert_close(family.evaluate(rows.whole()).marginal.mean, with_them)
    assert (family.evaluate(new.whole()).marginal.mean - elsewhere).abs().max() > 1e-2


def test_the_model_does_not_depend_on_how_coefficients_are_learned(draw):
    rows = random_rows(12, n_outputs=2, seed=6)
    problem = orthogonal_problem(rows, seed=7)
    other = copy.deepcopy(problem)
    with torch.no_grad():
        wanted = problem.family.transform @ problem.family.directions.unsqueeze(-1)
        other.family.transform.copy_(draw(*other.family.transform.shape))
        other.family.directions.copy_(torch.linalg.solve(other.family.transform, wanted).squeeze(-1))
    torch.testing.assert_close(other.loss(rows.whole()), problem.loss(rows.whole()))


@torch.no_grad()
def test_where_training_starts_the_coordinates_are_those_of_the_prior():
    """TᵀQT = I − δTᵀT: ½ hᵀQh is ½‖g‖², but for directions in which the functions are hardly there."""
    rows = random_rows(12, seed=8)
    start = orthogonal_problem(rows, seed=9).family
    family = Orthogonal(start.kernel, start.mean, start.mean_points, start.points, start.weights, 0.0).double()
    without = family.evaluate(rows.whole()).penalties["kl"]
    for position in range(family.directions.shape[-1]):
        family.directions.zero_()
        family.directions[0, position] = 1.0
        extra = float(family.evaluate(rows.whole()).penalties["kl"] - without)
        loss = LEAST_VARIANCE * float(family.transform[0, :, position].square().sum())
        assert extra == pytest.approx(0.5 * (1 - loss), rel=1e-9)
        assert extra > 0.45


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_mean_points_that_are_points_of_the_variance(dtype):
    """There, the new functions are zero; nothing fails, and nothing is NaN."""
    rows = random_rows(20, seed=10)
    points = rows.x[:8].unsqueeze(0)
    problem = orthogonal_problem(rows, points=points, mean_points=points, kernel="rbf", jitter=1e-6, seed=11).to(dtype)
    problem.loss(rows.to(dtype).whole()).backward()
    assert all(torch.isfinite(parameter.grad).all() for parameter in problem.parameters())
    assert torch.isfinite(problem.family.predictor().marginal(rows.x).mean).all()


def test_weight_parameters_are_those_of_q_and_the_coefficients():
    family = orthogonal_problem(random_rows(10), seed=12).family
    expected = {id(family.directions), id(family.weights.mean), id(family.weights.lower)}
    assert {id(parameter) for parameter in family.weight_parameters()} == expected


def test_chains_are_models_side_by_side(draw):
    rows, generator = random_rows(9, 2, 2, seed=13), torch.Generator().manual_seed(14)

    def build(chains, mean_points, points):
        kernel = make_kernel("matern52", 2, batch_shape=(*chains, 2))
        mean, weights = make_mean("constant", 2, 2, chains), WEIGHTS["full"](5, (*chains, 2))
        return Orthogonal(kernel, mean, mean_points, points, weights, 0.0).double()

    mean_points, points = (
        torch.stack([separated_points(n, 2, 2, generator) + shift for _ in range(3)]) for n, shift in ((4, 0.2), (5, 0))
    )
    together = build((3,), mean_points, points)
    with torch.no_grad():
        for parameter in together.parameters():
            parameter.add_(0.3 * draw(*parameter.shape))
    for x in (rows.x, draw(3, 9, 2)):
        evaluation = together.evaluate(Batch(x, rows.y, rows.weight, rows.total))
        predicted = together.predictor().marginal(x)
        for chain in range(3):
            single = build((), mean_points[0], points[0])
            single.load_state_dict({name: tensor[chain] for name, tensor in together.state_dict().items()})
            row = x if x.dim() == 2 else x[chain]
            own = single.evaluate(Batch(row, rows.y, rows.weight, rows.total))
            for part in ("mean", "residual", "spread"):
                torch.testing.assert_close(getattr(evaluation.marginal, part)[chain], getattr(own.marginal, part))
            torch.testing.assert_close(evaluation.penalties["kl"][chain], own.penalties["kl"])
            torch.testing.assert_close(predicted.variance[chain], own.marginal.variance)
            torch.testing.assert_close(predicted.mean[chain], own.marginal.mean)
