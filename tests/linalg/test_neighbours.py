from __future__ import annotations

import faiss
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from candid.linalg import ApproximateIndex, NeighbourIndex, nearest


def by_sorting(points, queries, k, exclude=None):
    """The first k points in the order of (distance, index)."""
    squares = (points.double().unsqueeze(0) - queries.double().unsqueeze(1)).square().sum(-1)
    if exclude is not None:
        squares[torch.arange(len(queries)), exclude] = torch.inf
    return squares.sort(dim=-1, stable=True).indices[:, : min(k, len(points) - (exclude is not None))]


def by_products(queries, points, k):
    """The fast search at its least precise: float32 norms and products, and nothing found beyond the largest float."""
    with np.errstate(over="ignore", invalid="ignore"):
        squares = (queries**2).sum(1)[:, None] + (points**2).sum(1) - 2 * queries @ points.T
    squares = np.where(np.isfinite(squares), squares, np.finfo(np.float32).max)
    order = squares.argsort(1)[:, :k]
    found = np.take_along_axis(squares, order, 1)
    return found, np.where(found == np.finfo(np.float32).max, -1, order)


@pytest.fixture(params=["as it is", "by products"])
def any_precision(request, monkeypatch):
    if request.param == "by products":
        monkeypatch.setattr(faiss, "knn", by_products)


@pytest.fixture
def compared_with_all(monkeypatch):
    """How many queries are compared with every point."""
    counts = []
    original = NeighbourIndex._compare
    monkeypatch.setattr(
        NeighbourIndex, "_compare", lambda self, q, *rest: counts.append(len(q)) or original(self, q, *rest)
    )
    return counts


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("n", "d", "k"), [(300, 3, 5), (300, 1, 5), (200, 12, 40), (20, 2, 5), (300, 2, 1)])
def test_against_sorting(n, d, k, dtype, draw, any_precision, compared_with_all):
    points, queries = draw(n, d).to(dtype), draw(25, d).to(dtype)
    assert torch.equal(nearest(points, queries, k), by_sorting(points, queries, k))
    index = torch.arange(n)
    found = nearest(points, points, k, index)
    assert torch.equal(found, by_sorting(points, points, k, index))
    assert not (found == index.unsqueeze(-1)).any()
    # The fast search is right about nearly all rows; of a short table it is not asked.
    assert len(compared_with_all) == 2 if n == 20 else sum(compared_with_all) < 10


@settings(max_examples=40)
@given(st.integers(1, 120), st.integers(1, 3), st.integers(1, 130), st.integers(1, 4), st.integers(0, 1000))
def test_points_on_a_grid(n, d, k, levels, seed):
    """Many points at the same place and at the same distance: of equals the first ones, and never the row itself."""
    points = torch.randint(0, levels, (n, d), generator=torch.Generator().manual_seed(seed)).double()
    index = torch.arange(n)
    found = nearest(points, points, k, index)
    assert found.shape == (n, min(k, n - 1))
    assert torch.equal(found, by_sorting(points, points, k, index))
    assert torch.equal(nearest(points, points[:3] + 0.5, k), by_sorting(points, points[:3] + 0.5, k))


def test_twins_are_neighbours_but_the_row_itself_is_not(draw):
    points = draw(100, 2)
    points = torch.cat([points, points])
    index = torch.arange(200)
    found = nearest(points, points, 1, index)
    assert torch.equal(found[:, 0], (index + 100) % 200)


def test_more_twins_than_neighbours():
    """The fast search does not see the row itself among its 300 twins."""
    points, index = torch.ones(300, 2), torch.tensor([0, 1, 299])
    assert nearest(points, points[index], 3, index).tolist() == [[1, 2, 3], [0, 2, 3], [0, 1, 2]]


def test_far_from_the_origin_and_far_from_everything(draw, any_precision, compared_with_all):
    """Float32 has no digits left for these distances; the result is exact all the same."""
    points = draw(200, 3)
    points[:, 0] *= 1e-6
    points[:, 1:] = 1e3 * points[:, 1:].sign()
    queries = torch.cat([points[:20] + 1e-9, points[:2] * 1e15, points[:2] * 1e60])
    found = nearest(points, queries, 4)
    assert torch.equal(found, by_sorting(points, queries, 4))
    assert sum(compared_with_all) == len(queries)


@pytest.mark.parametrize("apart", [10.0, 100.0, 300.0, 1e3, 1e4])
def test_clusters_far_from_each_other(apart, draw, any_precision):
    """The farther, the fewer digits float32 has for the distances inside a cluster."""
    points = draw(400, 3)
    points[200:] += apart
    assert torch.equal(nearest(points, points, 3), by_sorting(points, points, 3))


def test_beyond_float32(draw, any_precision):
    """Squared norms overflow while the points are near each other; the fast search then finds nothing."""
    points = draw(200, 1)
    points[100:] = 1e20 * (1 + 1e-3 * points[100:])
    assert torch.equal(nearest(points, points, 4), by_sorting(points, points, 4))


def test_ties_that_float32_does_not_see(any_precision, compared_with_all):
    """Pairs of points at the same distance on both sides, one of which is the last neighbour: it is the first one."""
    steps = torch.arange(1, 101).double() * (0.1 + 2.0**-45)
    sides = torch.tensor([1.0, -1.0, -1.0, 1.0]).double().repeat(25)
    points = torch.cat([steps * sides, -steps * sides]).unsqueeze(-1)
    points = torch.cat([points, torch.tensor([[17.0]]).double()])
    queries = torch.zeros(1, 1).double()
    for k in range(1, 60, 2):
        found = nearest(points, queries, k)
        assert torch.equal(found, by_sorting(points, queries, k))
        assert found[0, -1] == k // 2
    assert not compared_with_all


def test_a_query_has_the_same_neighbours_alone_and_in_company(draw, any_precision):
    points, queries = draw(400, 4).float(), draw(64, 4).float()
    points[200:] = points[:200].round()
    index = NeighbourIndex(points)
    together = index.nearest(queries, 7)
    for position in (0, 30, 63):
        assert torch.equal(index.nearest(queries[position : position + 1], 7)[0], together[position])


def test_in_chunks(draw, monkeypatch):
    points = draw(200, 2)
    index = torch.arange(200)
    expected = nearest(points, points, 3, index)
    monkeypatch.setattr("candid.linalg.neighbours.CHUNK_ENTRIES", 100)
    assert torch.equal(nearest(points, points, 3, index), expected)
    points = points.round()
    assert torch.equal(nearest(points, points, 3, index), by_sorting(points, points, 3, index))


def test_when_there_are_too_few_points(draw):
    points = draw(3, 2)
    assert nearest(points, points, 5).sort().values.tolist() == [[0, 1, 2]] * 3
    assert nearest(points, points, 5, torch.arange(3)).sort().values.tolist() == [[1, 2], [0, 2], [0, 1]]
    assert nearest(points[:1], points[:1], 5, torch.arange(1)).shape == (1, 0)


def test_no_neighbour_is_too_few(draw):
    with pytest.raises(ValueError, match="k=0 is too small"):
        nearest(draw(5, 2), draw(5, 2), 0)


def test_no_queries(draw):
    assert nearest(draw(100, 2), draw(0, 2), 5).shape == (0, 5)
    assert nearest(draw(5, 2), draw(0, 2), 3).shape == (0, 3)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_numbers_that_are_none_are_refused(bad, draw):
    points = draw(50, 2)
    broken = points.clone()
    broken[3, 1] = bad
    with pytest.raises(ValueError, match="have no neighbours"):
        nearest(broken, points, 2)
    with pytest.raises(ValueError, match="have no neighbours"):
        nearest(points, broken, 2)


def test_as_many_threads_as_torch(draw, monkeypatch):
    """And faiss is left as it was."""
    seen = []
    search = faiss.knn
    monkeypatch.setattr(faiss, "knn", lambda *args: seen.append(faiss.omp_get_max_threads()) or search(*args))
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    before = faiss.omp_get_max_threads()
    assert before != 2
    nearest(draw(100, 2), draw(5, 2), 2)
    assert seen == [2]
    assert faiss.omp_get_max_threads() == before


def by_sorting_the_first(points, queries, k, before):
    """The same among the first points only; −1 where there are not so many."""
    found = torch.full((len(queries), k), -1)
    for row, count in enumerate(before.tolist()):
        some = by_sorting(points[:count], queries[row : row + 1], k)
        found[row, : some.shape[1]] = some[0]
    return found


@pytest.mark.parametrize(("n", "k"), [(300, 5), (60, 40), (7, 3)])
def test_among_the_first_points(n, k, draw, any_precision):
    points = draw(n, 2)
    points[n // 2 :] = points[n // 2 :].round()
    before = torch.arange(n)
    found = NeighbourIndex(points).nearest(points, k, before=before)
    assert torch.equal(found, by_sorting_the_first(points, points, k, before))
    assert (found < before.unsqueeze(-1)).all()
    shuffled = torch.randperm(n, generator=torch.Generator().manual_seed(0))
    again = NeighbourIndex(points).nearest(points[shuffled], k, before=before[shuffled])
    assert torch.equal(again, found[shuffled])


def test_among_the_first_points_in_chunks(draw, monkeypatch):
    points, before = draw(200, 2), torch.arange(200)
    monkeypatch.setattr("candid.linalg.neighbours.CHUNK_ENTRIES", 100)
    found = NeighbourIndex(points).nearest(points, 3, before=before)
    assert torch.equal(found, by_sorting_the_first(points, points, 3, before))


class TestGraph:
    def test_it_finds_nearly_all_neighbours(self, draw):
        points, index = draw(3000, 4), torch.arange(3000)
        found, exact = (kind(points).nearest(points, 10, index) for kind in (ApproximateIndex, NeighbourIndex))
        shared = (found.unsqueeze(-1) == exact.unsqueeze(-2)).any(-1)
        assert shared.double().mean() > 0.97
        assert not (found == index.unsqueeze(-1)).any()
        distances = (points[found] - points.unsqueeze(1)).norm(dim=-1)
        assert (distances.diff(dim=-1) >= 0).all()

    def test_the_same_points_give_the_same_graph(self, draw):
        points, queries = draw(500, 3), draw(50, 3)
        first, second = (ApproximateIndex(points).nearest(queries, 5) for _ in range(2))
        assert torch.equal(first, second)

    def test_many_twins(self):
        points = torch.ones(500, 2).double()
        found = ApproximateIndex(points).nearest(points[:20], 5, torch.arange(20))
        assert not (found == torch.arange(20).unsqueeze(-1)).any()

    def test_later_points_cannot_be_left_out(self, draw):
        points = draw(100, 2)
        with pytest.raises(ValueError, match="use the exact search"):
            ApproximateIndex(points).nearest(points, 3, before=torch.arange(100))
