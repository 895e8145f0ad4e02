"""Machine code and torch are two ways to the same marginals, and families do not know which was taken."""

from __future__ import annotations

import pytest
import torch

from candid.families import local as room
from candid.linalg import NotPositiveDefinite
from small_models import neighbour_problem, random_rows

pytest.importorskip("numba")

SETTINGS = {
    "plain": ({}, {}),
    "one neighbour": ({}, {"k": 1}),
    "one feature": ({"n_features": 1}, {"kernel": "rbf"}),
    "more neighbours than rows": ({}, {"k": 60}),
    "three outputs": ({"n_outputs": 3, "n_features": 5}, {"kernel": "matern32", "mean": "linear"}),
    "copies": ({"weighted": True, "n_outputs": 2}, {"with_copies": True, "kernel": "matern12"}),
    "known noise": ({"weighted": True}, {"known": torch.linspace(0.01, 0.5, 40).double().unsqueeze(-1)}),
    "jitter": ({}, {"jitter": 1e-2}),
    "earlier rows only": ({"n_outputs": 2}, {"order": torch.arange(39, -1, -1)}),
}


@pytest.fixture
def ways(monkeypatch):
    """Calls a function once for each way: machine code, torch. Notes what was taken."""
    taken = []
    for name in ("_by_machine_code", "_by_torch"):
        way = getattr(room, name)
        monkeypatch.setattr(room, name, lambda *given, name=name, way=way: taken.append(name) or way(*given))

    def both(function):
        results = []
        for can_compile, expected in ((room.can_compile, "_by_machine_code"), (lambda points: False, "_by_torch")):
            taken.clear()
            with monkeypatch.context() as patch:
                patch.setattr(room, "can_compile", can_compile)
                results.append(function())
            assert set(taken) == {expected}
        return results

    return both


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("setting", SETTINGS.values(), ids=SETTINGS)
def test_both_ways_agree(setting, dtype, ways):
    rows = random_rows(40, seed=1, **setting[0])
    problem = neighbour_problem(rows, seed=2, **setting[1]).to(dtype)
    batch = rows.to(dtype).batch(torch.tensor([39, 0, 3, 17, 5, 28])) if dtype == torch.float32 else rows.whole()

    def loss_and_gradients():
        loss = problem.loss(batch)
        return loss, torch.autograd.grad(loss, problem.groups()["all"])

    tolerance = {"rtol": 1e-3, "atol": 1e-4} if dtype == torch.float32 else {"rtol": 1e-9, "atol": 1e-11}
    torch.testing.assert_close(*ways(loss_and_gradients), **tolerance)


@pytest.mark.parametrize("kernel", ["rq", "rbf + linear", "rbf * matern32", "periodic"])
def test_other_kernels_take_torch(kernel, monkeypatch):
    rows = random_rows(20, seed=3)
    problem = neighbour_problem(rows, kernel=kernel)
    expected = problem.family.evaluate(rows.whole()).marginal.mean
    monkeypatch.setattr(room, "_by_machine_code", None)
    torch.testing.assert_close(problem.family.evaluate(rows.whole()).marginal.mean, expected, rtol=0, atol=0)


def test_groups_make_no_difference(ways, monkeypatch):
    rows = random_rows(20, seed=4, n_outputs=2)
    family = neighbour_problem(rows, seed=5).family
    together = ways(lambda: family.evaluate(rows.whole()).marginal)
    monkeypatch.setattr(room, "GROUP_ENTRIES", 100)
    monkeypatch.setattr(room, "INPUT_ENTRIES", 100)
    for one, other in zip(together, ways(lambda: family.evaluate(rows.whole()).marginal), strict=True):
        torch.testing.assert_close(one.mean, other.mean)
        torch.testing.assert_close(one.residual, other.residual)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_singular_rows_are_repaired_by_torch(dtype, monkeypatch):
    """Neighbours at one place, without noise: only the rows that see them need jitter, and it is told."""
    rows = random_rows(30, seed=6)
    rows.x[1:4] = rows.x[0]
    problem = neighbour_problem(rows, 4, known=torch.zeros(30, 1, dtype=torch.float64), seed=7).to(dtype)
    batch, learned = rows.to(dtype).whole(), problem.groups()["all"]

    def answer():
        marginal, jitter = problem.family.evaluate(batch).marginal, problem.family.jitter.clone()
        gradients = torch.autograd.grad(marginal.residual.sum(), learned, allow_unused=True, materialize_grads=True)
        return marginal.mean, marginal.residual, jitter, gradients

    found = answer()
    assert (found[2] > 0).all()
    monkeypatch.setattr(room, "can_compile", lambda points: False)
    expected = answer()
    torch.testing.assert_close(found[2], expected[2])
    tolerance = {"rtol": 1e-2, "atol": 1e-2} if dtype == torch.float32 else {"rtol": 1e-6, "atol": 1e-7}
    torch.testing.assert_close(found[:2], expected[:2], **tolerance)
    torch.testing.assert_close(found[3], expected[3], **tolerance)


def test_what_is_not_a_number_is_told():
    rows = random_rows(20, seed=8)
    family = neighbour_problem(rows).family
    with torch.no_grad():
        family.kernel.unit.lengthscale.raw.fill_(torch.nan)
    with pytest.raises(NotPositiveDefinite, match="NaN"):
        family.evaluate(rows.whole())
