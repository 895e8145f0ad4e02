from __future__ import annotations

import math

import pytest
import torch

from candid.families import Decoupled, make_mean
from candid.kernels import make_kernel
from candid.marginal import Batch
from candid.weights import WEIGHTS
from small_models import decoupled_problem, random_rows, separated_points


@pytest.mark.parametrize("kernel", ["matern52", "rbf + matern32"])
@pytest.mark.parametrize(("n_mean_points", "n_points"), [(3, 7), (7, 3), (5, 5), (1, 1)])
@pytest.mark.parametrize("weights", ["full", "diagonal"])
def test_marginals_and_penalty(weights, n_mean_points, n_points, kernel):
    """Mean from Zμ, variances from Zσ, by dense algebra with the amplitude left in."""
    rows = random_rows(15, n_features=3, n_outputs=2, seed=1)
    options = {"n_mean_points": n_mean_points, "n_points": n_points, "kernel": kernel, "mean": "linear"}
    family = decoupled_problem(rows, weights, **options, seed=2).family
    evaluation, k = family.evaluate(rows.whole()), family.kernel
    m, root = family.mean_weights.mean, family.weights.root()
    root = root if root.dim() == 3 else torch.diag_embed(root)

    own = torch.linalg.solve(torch.linalg.cholesky(k(family.mean_points)), k(family.mean_points, rows.x))
    features = torch.linalg.solve(torch.linalg.cholesky(k(family.points)), k(family.points, rows.x))
    mean = family.mean(rows.x) + (own.mT @ m.unsqueeze(-1)).squeeze(-1).mT
    torch.testing.assert_close(evaluation.marginal.mean, mean)
    torch.testing.assert_close(evaluation.marginal.residual, (k.diagonal(rows.x) - features.square().sum(-2)).mT)
    torch.testing.assert_close(evaluation.marginal.spread, (root.mT @ features).square().sum(-2).mT)

    covariance = root @ root.mT
    point = 0.5 * (m.square().sum() + 2 * n_mean_points * math.log(2 * math.pi))
    trace = covariance.diagonal(dim1=-2, dim2=-1).sum()
    normal = 0.5 * (trace - 2 * n_points - torch.logdet(covariance).sum())
    torch.testing.assert_close(evaluation.penalties["kl"], point + normal)


def test_all_weights_are_learned_but_the_mean_of_the_spread():
    rows = random_rows(10, seed=3)
    problem = decoupled_problem(rows, "diagonal", seed=4)
    family = problem.family
    expected = {id(family.mean_weights.mean), id(family.weights.log_scale)}
    assert {id(parameter) for parameter in family.weight_parameters()} == expected
    assert not family.weights.mean.requires_grad
    assert (family.weights.mean == 0).all()
    names = {name for name, parameter in family.named_parameters() if parameter.requires_grad}
    assert {"mean_points", "points", "mean_weights.mean", "weights.log_scale"} <= names


def test_each_factorisation_has_its_own_jitter():
    """Also each output; what one step needed, the next one and the predictor start from."""
    rows = random_rows(20, n_outputs=2, seed=5)
    points = rows.x[:6].expand(2, 6, 2)
    mean_points = torch.stack([rows.x[:6], rows.x[:3].repeat(2, 1)])
    problem = decoupled_problem(rows, kernel="rbf", points=points, mean_points=mean_points, seed=6)
    problem.loss(rows.whole()).backward()
    assert torch.equal(problem.family.jitter > 0, torch.tensor([[False, False], [False, True]]))
    before = problem.family.jitter.clone()
    problem.loss(rows.whole())
    assert torch.equal(problem.family.jitter, before)
    learned = [parameter for parameter in problem.parameters() if parameter.requires_grad]
    assert all(torch.isfinite(parameter.grad).all() for parameter in learned)
    assert torch.isfinite(problem.family.predictor().marginal(rows.x).mean).all()


def test_chains_are_models_side_by_side(draw):
    rows, generator = random_rows(9, 2, 2, seed=7), torch.Generator().manual_seed(8)

    def build(chains, mean_points, points):
        kernel = make_kernel("matern52", 2, batch_shape=(*chains, 2))
        mean, weights = make_mean("constant", 2, 2, chains), WEIGHTS["full"](5, (*chains, 2))
        return Decoupled(kernel, mean, mean_points, points, weights, 0.0).double()

    mean_points, points = (torch.stack([separated_points(n, 2, 2, generator) for _ in range(3)]) for n in (4, 5))
    together = build((3,), mean_points, points)
    with torch.no_grad():
        for parameter in together.parameters():
            parameter.add_(0.3 * draw(*parameter.shape) * parameter.requires_grad)
    for x in (rows.x, draw(3, 9, 2)):
        batch = Batch(x, rows.y, rows.weight, rows.total)
        evaluation, predicted = together.evaluate(batch), together.predictor().marginal(x)
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


def test_there_is_no_joint_prior():
    rows = random_rows(10)
    with pytest.raises(TypeError, match="use it with a row objective"):
        decoupled_problem(rows).family.prior(rows.whole())
