"""Exact search for nearest neighbours, independent of what else is searched for at the same time.

The k nearest points of a query are the first k in the order of (distance, index), with distances by float64
differences. A fast search in float32 proposes a few points more than needed. Its squared distances ‖q‖² + ‖x‖² − 2qᵀx
are wrong by at most

    E = (D + 8) ε (‖q‖ + ‖x‖)²,     where ‖x‖ ≤ ‖q‖ + d for every point x within the distance d of the query,

so if the k-th true distance d among the proposed points has d² + E below the largest proposed one, no better point was
left out. The queries for which that fails (many points at one distance, inputs far away) are compared with all points.
Versions of the search that sum squared differences are more precise than that.

On long tables a graph of near points proposes them faster still, but nothing can be said of those that it leaves out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from itertools import repeat

import faiss
import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

__all__ = ["ApproximateIndex", "Graph", "NeighbourIndex", "nearest"]

# Points that are proposed beyond those needed: neighbours nearly at one distance are then rarely left out.
SPARE = 8
# Entries of the largest intermediate array: memory stays bounded however many queries there are.
CHUNK_ENTRIES = 8_000_000
# Links of each point of a graph, and points that are looked at for one of its neighbours when it is built or searched.
LINKS, BUILDING, SEARCHING = 32, 80, 2
# In other units than its own, a graph proposes so many times as many points.
STRETCHED = 2


def nearest(
    points: Float[Tensor, "n d"],
    queries: Float[Tensor, "q d"],
    k: int,
    exclude: Int[Tensor, " q"] | None = None,
) -> Int[Tensor, "q near"]:
    """Indices of the ``k`` points nearest to each query; see :meth:`NeighbourIndex.nearest`."""
    return NeighbourIndex(points).nearest(queries, k, exclude)


class NeighbourIndex:
    """Points, prepared for many searches.

    Parameters
    ----------
    points : Tensor
        N×D; they are kept, so do not change them in place.
    """

    def __init__(self, points: Float[Tensor, "n d"]) -> None:
        _check_finite(points)
        self._points = points.detach()
        # Around zero, squared norms take the fewest digits away from squared distances.
        self._centre = self._points.double().mean(0)
        self._rough = (self._points - self._centre).to("cpu", torch.float32).contiguous().numpy()

    def nearest(
        self,
        queries: Float[Tensor, "q d"],
        k: int,
        exclude: Int[Tensor, " q"] | None = None,
        before: Int[Tensor, " q"] | None = None,
    ) -> Int[Tensor, "q near"]:
        """Indices of the ``k`` points nearest to each query, the nearest first; of equally near ones the first.

        Parameters
        ----------
        queries : Tensor
            Q×D, in the dtype of the points.
        k : int
            If there are not so many points, all of them are neighbours.
        exclude : Tensor, optional
            For each query one point that is not to be its neighbour: itself. Other points at the same place may be.
        before : Tensor, optional
            For each query, how many of the points may be its neighbours: the first ones. Where these are fewer than
            k, the missing neighbours have the index −1.
        """
        _check_finite(queries)
        if k < 1:
            raise ValueError(f"a query has at least one neighbour, so k={k} is too small")
        n_points, n_features = self._points.shape
        k = min(k, n_points if exclude is None else n_points - 1)
        n_proposed = k + SPARE + (exclude is not None)
        # Where most points would be proposed, all may as well be compared.
        if n_points <= 2 * n_proposed:
            search, entries = self._compare, n_points
        else:
            search, entries = partial(self._search, n_proposed=n_proposed), n_proposed * n_features
        return _in_chunks(search, queries.detach(), k, exclude, before, entries)

    def _search(
        self, queries: Tensor, k: int, exclude: Tensor | None, before: Tensor | None, n_proposed: int
    ) -> Tensor:
        """The nearest of the points that the fast search proposes, or of all points where it may have missed some."""
        centred = queries - self._centre
        proposed, reach = self._propose(centred, n_proposed, before)
        distances = _distances(queries.unsqueeze(-2), self._points[proposed]).squeeze(-2)
        if exclude is not None:
            distances = distances.masked_fill(proposed == exclude.unsqueeze(-1), torch.inf)
        order = distances.argsort(dim=-1, stable=True)[:, :k]
        chosen, farthest = proposed.gather(-1, order), distances.gather(-1, order)[:, -1]
        # d² + (D + 8) ε (2‖q‖ + d)²
        rounding = (queries.shape[-1] + 8) * torch.finfo(torch.float32).eps
        needed = farthest.square() + rounding * (2 * centred.norm(dim=-1) + farthest).square()
        doubtful = ~(needed < reach)
        if bool(doubtful.any()):
            excluded, allowed = (None if part is None else part[doubtful] for part in (exclude, before))
            chosen[doubtful] = _in_chunks(self._compare, queries[doubtful], k, excluded, allowed, len(self._points))
        return chosen

    def _propose(self, centred: Tensor, n_proposed: int, before: Tensor | None) -> tuple[Tensor, Tensor]:
        """Points near the queries, by ascending index, and a bound on the squared distances of all the others.

        The bound is the squared distance of the farthest of them as float32 has it, or −∞ where too few were found.
        """
        rough = centred.to("cpu", torch.float32).contiguous().numpy()
        with _threads_of_torch():
            squares, proposed = self._fast_search(rough, n_proposed, None if before is None else before.tolist())
        reach = torch.from_numpy(squares).to(centred.device).double().amax(-1)
        proposed = torch.from_numpy(proposed).to(centred.device)
        # Where squares are beyond float32, or there are too few points, the missing ones have the index −1.
        failed = (proposed < 0).any(-1)
        return proposed.clamp_min(0).sort(-1).values, reach.masked_fill(failed, -torch.inf)

    def _fast_search(self, rough: np.ndarray, n_proposed: int, before: list[int] | None) -> tuple[np.ndarray, ...]:
        """Squared distances and indices of points near the queries."""
        if before is None:
            return faiss.knn(rough, self._rough, n_proposed)
        # The points that a query may see are the first ones: another array for each query.
        found = [self._among_first(rough[row : row + 1], n_proposed, count) for row, count in enumerate(before)]
        squares, proposed = zip(*found, strict=True)
        return np.concatenate(squares), np.concatenate(proposed)

    def _among_first(self, rough: np.ndarray, n_proposed: int, count: int) -> tuple[np.ndarray, np.ndarray]:
        if count < n_proposed:
            return np.zeros((1, n_proposed), np.float32), np.full((1, n_proposed), -1)
        return faiss.knn(rough, self._rough[:count], n_proposed)

    def _compare(self, queries: Tensor, k: int, exclude: Tensor | None, before: Tensor | None) -> Tensor:
        """The nearest of all points, by comparing with every one."""
        distances = _distances(queries, self._points)
        if exclude is not None:
            distances.scatter_(-1, exclude.unsqueeze(-1), torch.inf)
        if before is not None:
            later = torch.arange(len(self._points), device=queries.device) >= before.unsqueeze(-1)
            distances.masked_fill_(later, torch.inf)
        # The k-th smallest value decides, and of the points that have just this value those with the lowest indices.
        last = distances.topk(k, largest=False).values[:, -1:] if k else distances.new_full((len(queries), 1), -1.0)
        closer, equal = distances < last, distances == last
        chosen = closer | (equal & (equal.cumsum(-1) <= k - closer.sum(-1, keepdim=True)))
        indices = chosen.nonzero()[:, 1].reshape(len(queries), k)
        indices = indices.gather(-1, distances.gather(-1, indices).argsort(dim=-1, stable=True))
        return indices if before is None else indices.masked_fill(indices >= before.unsqueeze(-1), -1)


class Graph:
    """Links between near points (HNSW), along which a search walks without looking at all of them.

    The same points always give the same graph.

    Parameters
    ----------
    points : array
        N×D, in float32 and around zero.
    """

    def __init__(self, points: np.ndarray) -> None:
        self._links = faiss.IndexHNSWFlat(points.shape[-1], LINKS)
        self._links.hnsw.efConstruction = BUILDING
        # Several threads would link the points in an order that changes from run to run.
        with _faiss_threads(1):
            self._links.add(points)

    def search(self, queries: np.ndarray, n_points: int) -> tuple[np.ndarray, np.ndarray]:
        """Squared distances and indices of most of the points nearest to each query."""
        options = faiss.SearchParametersHNSW(efSearch=SEARCHING * n_points)  # pyright: ignore[reportAttributeAccessIssue]
        return self._links.search(queries, n_points, params=options)


class ApproximateIndex(NeighbourIndex):
    """Points in a graph, which finds most of the nearest ones.

    A graph takes a while to build, and pays off where there are many queries. One of the same points in other units
    may be used instead: it proposes more points, and those that are nearest in the present units are taken. Queries
    that may see only some of the points have no use for a graph.

    Parameters
    ----------
    points : Tensor
        As of :class:`NeighbourIndex`.
    graph : Graph, optional
        Of these points, or of what they are times ``stretch``. By default it is built.
    stretch : Tensor, optional
        One number for each feature.
    """

    def __init__(
        self, points: Float[Tensor, "n d"], graph: Graph | None = None, stretch: Float[Tensor, " d"] | None = None
    ) -> None:
        super().__init__(points)
        self.graph = Graph(self._rough) if graph is None else graph
        self._stretch = None if stretch is None else stretch.to("cpu", torch.float32).numpy()

    def _fast_search(self, rough: np.ndarray, n_proposed: int, before: list[int] | None) -> tuple[np.ndarray, ...]:
        if before is not None:
            raise ValueError("a graph cannot leave out the later points; use the exact search")
        if self._stretch is not None:
            rough, n_proposed = rough * self._stretch, min(STRETCHED * n_proposed, len(self._points))
        squares, proposed = self.graph.search(rough, n_proposed)
        # What it leaves out is not known, and is taken to be farther away.
        return np.full_like(squares, np.inf), proposed


def _in_chunks(
    search: Callable[[Tensor, int, Tensor | None, Tensor | None], Tensor],
    queries: Tensor,
    k: int,
    exclude: Tensor | None,
    before: Tensor | None,
    entries: int,
) -> Tensor:
    """``search`` for some queries at a time; ``entries`` is what one of them takes."""
    size = max(1, CHUNK_ENTRIES // entries)
    excluded, allowed = (repeat(None) if part is None else part.split(size) for part in (exclude, before))
    parts = zip(queries.split(size), excluded, allowed, strict=False)
    return torch.cat([search(some, k, out, first) for some, out, first in parts])


def _distances(a: Tensor, b: Tensor) -> Tensor:
    # By differences, each pair by itself: the result for a pair depends on nothing but the pair.
    return torch.cdist(a.double(), b.double(), compute_mode="donot_use_mm_for_euclid_dist")


def _check_finite(x: Tensor) -> None:
    if not bool(torch.isfinite(x.sum())) and not bool(torch.isfinite(x).all()):
        raise ValueError(
            "NaN and infinity have no neighbours: training has diverged or the inputs are too large; "
            "try a smaller lr or standardize=True"
        )


def _threads_of_torch() -> AbstractContextManager[None]:
    """Faiss brings threads of its own, as many as there are cores unless told otherwise."""
    return _faiss_threads(torch.get_num_threads())


@contextmanager
def _faiss_threads(number: int) -> Iterator[None]:
    before = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(number)
    try:
        yield
    finally:
        faiss.omp_set_num_threads(before)
