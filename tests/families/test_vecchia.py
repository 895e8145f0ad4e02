from __future__ import annotations

import pytest
import torch

from candid.engines import Checkpoint, Plan, train
from fragile import FragileCheckpoint, Interrupted
from small_models import exact_problem, neighbour_problem, random_rows


def order_of(n_rows: int, seed: int = 0) -> torch.Tensor:
    return torch.randperm(n_rows, generator=torch.Generator().manual_seed(seed))


def vecchia(rows, k=5, seed=0, **options):
    return neighbour_problem(rows, k, seed=seed, objective="chain_rule", order=order_of(len(rows)), **options)


def test_neighbours_are_the_nearest_of_the_rows_before():
    rows = random_rows(25, seed=1)
    family = vecchia(rows, 4, seed=2).family
    order = order_of(25).tolist()
    scale = family.rows.metric
    found = family.near(rows.whole())
    for row in range(25):
        earlier = order[: order.index(row)]
        distances = ((rows.x[earlier] - rows.x[row]) / scale).norm(dim=-1)
        expected = [earlier[position] for position in distances.argsort()[:4]]
        assert found[row].tolist() == expected + [-1] * (4 - len(expected))


@pytest.mark.parametrize("n_outputs", [1, 2])
def test_marginals_and_gradients_with_a_few_neighbours(n_outputs):
    """Row by row, with as many neighbours as each has."""
    rows = random_rows(15, n_outputs=n_outputs, seed=3, weighted=True)
    problem = vecchia(rows, 4, seed=4)
    terms = []
    for row, near in enumerate(problem.family.near(rows.whole())):
        before = near[near >= 0]
        # log p(y_n | …) = log p(y_n, …) − log p(…)
        with_row, without = torch.cat([torch.tensor([row]), before]), before
        for some, sign in ((with_row, 1.0), (without, -1.0)):
            if len(some):
                exact = exact_problem(rows.subset(some), seed=4)
                exact.family.kernel, exact.family.mean = problem.family.kernel, problem.family.mean
                exact.likelihood = problem.likelihood
                part = rows.subset(some)
                terms.append(-sign * part.total * exact.loss(part.whole()))
    expected = -torch.stack(terms).sum() / rows.total
    found = problem.loss(rows.whole())
    torch.testing.assert_close(found, expected)
    learned = problem.groups()["all"]
    torch.testing.assert_close(torch.autograd.grad(found, learned), torch.autograd.grad(expected, learned))


def test_batches_add_up():
    rows = random_rows(20, seed=5, weighted=True)
    problem = vecchia(rows, 4, seed=6)
    parts = [rows.batch(part) for part in torch.arange(20).split(7)]
    total = sum(problem.loss(part) * part.weight.sum() for part in parts)
    torch.testing.assert_close(total / rows.total, problem.loss(rows.whole()))


def test_new_rows_may_see_all_training_rows():
    rows, new = random_rows(20, seed=7), random_rows(5, seed=8).x
    ours = vecchia(rows, 4, seed=9).family.predictor()
    plain = neighbour_problem(rows, 4, seed=9).family.predictor()
    assert torch.equal(ours.marginal(new).mean, plain.marginal(new).mean)
    assert torch.equal(ours.marginal(new).variance, plain.marginal(new).variance)


def test_a_single_row():
    rows = random_rows(1, seed=10)
    problem = vecchia(rows, 3, seed=11)
    torch.testing.assert_close(problem.loss(rows.whole()), exact_problem(rows, seed=11).loss(rows.whole()))


def test_a_killed_run_goes_on_with_the_same_neighbours(tmp_path):
    rows, plan = random_rows(30, seed=12), Plan({"all": "adam"}, max_epochs=3, batch_size=8, lr=0.5)

    def run(checkpoint=None):
        problem = vecchia(rows, 3, seed=13, refresh_every=3)
        train(problem, rows, plan, checkpoint=checkpoint)
        return problem.state_dict()

    expected = run()
    with pytest.raises(Interrupted):
        run(FragileCheckpoint(tmp_path / "run", 4))
    found = run(Checkpoint(tmp_path / "run"))
    assert all(torch.equal(found[name], tensor) for name, tensor in expected.items())
    assert not any(tensor.shape[:1] == (30,) for tensor in expected.values())
