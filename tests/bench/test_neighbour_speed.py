"""The benchmark of nearest neighbours compares like with like."""

from __future__ import annotations

from functools import partial

import pytest
import torch

from candid.bench import neighbour_growth as growth_room
from candid.bench import neighbour_steps as steps_room
from candid.bench.neighbour_growth import measure_growth, sizes_up_to, table_of
from candid.bench.neighbour_steps import NeighbourModel, closed_moments, measure_steps, plain_moments, torch_moments
from candid.bench.timing import interleaved_medians


@pytest.mark.parametrize("moments", [closed_moments, torch_moments])
def test_contenders_have_one_loss_and_one_gradient(moments):
    model = NeighbourModel(n_features=3, batch_size=7, k=6).double()
    model.x, model.y = model.x.double(), model.y.double()
    found, expected = (model.loss(way) for way in (moments, plain_moments))
    torch.testing.assert_close(found, expected)
    learned = list(model.parameters())
    # Textbook distances of points to themselves are not exactly zero.
    gradients = (torch.autograd.grad(loss, learned) for loss in (found, expected))
    torch.testing.assert_close(*gradients, rtol=1e-4, atol=1e-6)


def test_step_times(monkeypatch):
    monkeypatch.setattr(steps_room, "interleaved_medians", partial(interleaved_medians, warm_up=0, turn=0.0))
    told = []
    first, second = measure_steps([3, 5], n_features=2, batch_size=4, repeats=1, tell=told.append)
    assert (first.k, second.k) == (3, 5)
    assert min(first.autograd, first.torch) > 0
    assert "3 neighbours" in told[0]
    monkeypatch.setattr(steps_room, "can_compile", lambda points: False)
    assert measure_steps([3], n_features=2, batch_size=4, repeats=1)[0].compiled is None


def test_growth(monkeypatch):
    monkeypatch.setattr(growth_room, "available", lambda source: [])
    x, y, origin = table_of(60)
    assert origin == "generated"
    assert x.shape == (60, 8)
    torch.testing.assert_close(y.mean(0), torch.zeros(1), atol=1e-5, rtol=0)
    found = list(measure_growth(x, y, [30, 60], k=4, batch_size=5, repeats=1))
    assert [(entry.n_rows, entry.search) for entry in found] == [
        (30, "exact"),
        (30, "hnsw"),
        (60, "exact"),
        (60, "hnsw"),
    ]
    assert all(min(entry.index, entry.step, entry.query) > 0 for entry in found)


def test_sizes():
    assert sizes_up_to(50) == [50]
    assert sizes_up_to(1000) == [1000]
    assert sizes_up_to(250_000) == [1000, 10_000, 100_000, 250_000]
