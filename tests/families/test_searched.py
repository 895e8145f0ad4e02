"""Rows among which neighbours are searched."""

from __future__ import annotations

import copy

import pytest
import torch

from candid.families.searched import SearchedRows, pick_search
from candid.kernels import Deep, Matern52, make_kernel, make_network
from candid.linalg import NeighbourIndex
from small_models import random_rows

X = random_rows(400, 3, seed=0).x


def kernel_of(*lengths: float):
    return Matern52(lengthscale=list(lengths)).build(3, batch_shape=(1,)).double()


def deep_kernel(seed: int) -> Deep:
    return Deep(make_network((5, 2), 3, seed), make_kernel("matern52", 2, batch_shape=(1,))).double()


def exactly(x, metric, k):
    return NeighbourIndex(x / metric).nearest(x / metric, k, torch.arange(len(x)))


def recall_of(found, expected) -> float:
    return float((found.unsqueeze(-1) == expected.unsqueeze(-2)).any(-1).double().mean())


@pytest.mark.parametrize(("search", "n_rows", "expected"), [("auto", 10**5, "exact"), ("auto", 10**6, "hnsw")])
def test_what_is_picked(search, n_rows, expected):
    assert pick_search(search, n_rows) == expected
    assert pick_search("hnsw", 10) == "hnsw"


def test_an_unknown_search():
    with pytest.raises(ValueError, match="choose one of exact, hnsw"):
        SearchedRows(X, torch.ones(3), persistent=False, search="auto")


@pytest.mark.parametrize("search", ["exact", "hnsw"])
def test_it_follows_the_lengthscales(search):
    rows = SearchedRows.of(kernel_of(1.0, 1.0, 1.0), X, search)
    itself = torch.arange(400)
    assert recall_of(rows.nearest(X, 5, itself), exactly(X, torch.ones(3), 5)) > 0.99
    rows.follow(kernel_of(1.0, 1.3, 5.0))
    assert recall_of(rows.nearest(X, 5, itself), exactly(X, torch.tensor([1.0, 1.3, 5.0]), 5)) > 0.99


def test_a_graph_keeps_its_units_until_they_are_far_behind():
    rows = SearchedRows.of(kernel_of(1.0, 1.0, 1.0), X, "hnsw")
    rows.nearest(X[:1], 5)
    graph = rows._graph
    rows.follow(kernel_of(2.0, 2.6, 2.2))
    found = rows.nearest(X, 5, torch.arange(400))
    assert rows._graph is graph
    assert torch.equal(rows.graph_metric, torch.ones(3).double())
    assert recall_of(found, exactly(X, torch.tensor([2.0, 2.6, 2.2]), 5)) > 0.99
    assert rows.recall(5) > 0.99
    rows.follow(kernel_of(1.0, 4.0, 1.0))
    rows.nearest(X[:1], 5)
    assert rows._graph is not graph
    assert torch.equal(rows.graph_metric, rows.metric)


def test_the_state_decides_which_graph_there_is():
    first = SearchedRows.of(kernel_of(1.0, 1.0, 1.0), X, "hnsw")
    first.follow(kernel_of(2.0, 2.6, 2.2))
    second = SearchedRows.of(kernel_of(9.0, 1.0, 1.0), X, "hnsw")
    second.nearest(X[:1], 5)
    second.load_state_dict(first.state_dict())
    for rows in (second, copy.deepcopy(second)):
        assert torch.equal(rows.nearest(X, 7), first.nearest(X, 7))


def test_a_graph_is_borrowed():
    rows = SearchedRows.of(kernel_of(1.0, 1.0, 1.0), X, "hnsw")
    rows.nearest(X[:1], 5)
    near = SearchedRows(X, torch.tensor([1.0, 1.2, 1.0]).double(), persistent=True, search="hnsw")
    far = SearchedRows(X, torch.tensor([1.0, 9.0, 1.0]).double(), persistent=True, search="hnsw")
    for other in (near, far):
        other.borrow(rows)
        other.nearest(X[:1], 5)
    assert near._graph is rows._graph
    assert far._graph is not rows._graph
    near.append(X[:1])
    assert 400 in near.nearest(X[:1], 2)


def test_rows_are_compared_by_the_features_of_the_last_renewal():
    kernel = deep_kernel(1)
    rows = SearchedRows.of(kernel, X)

    def by_features():
        with torch.no_grad():
            (features,) = kernel.network.settled(X)
        return exactly(features, kernel.base.base.lengthscale.value.detach()[0, 0], 6)

    before = by_features()
    itself = torch.arange(400)
    assert torch.equal(rows.nearest(X, 6, itself), before)
    with torch.no_grad():
        for weight in kernel.network.parameters():
            weight.add_(torch.randn(weight.shape, generator=torch.Generator().manual_seed(3)))
    assert torch.equal(rows.nearest(X, 6, itself), before)
    rows.follow(kernel)
    after = by_features()
    assert torch.equal(rows.nearest(X, 6, itself), after)
    assert not torch.equal(after, before)
    # The network of the renewal is part of the state, and does not learn.
    again = SearchedRows.of(deep_kernel(2), X)
    again.load_state_dict(rows.state_dict())
    assert torch.equal(again.nearest(X, 6, itself), after)
    assert not any(parameter.requires_grad for parameter in rows.parameters())
