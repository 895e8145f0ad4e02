"""Rows among which neighbours are searched, and the units in which they are near.

What decides who is near is part of the state: the metric, and where rows are compared by the features of a network,
that network. Both follow the kernel at given steps only, and the index is made from them when it is needed. So a run
that goes on from a checkpoint finds the same neighbours.

An exact index is an array of rescaled rows, which is made in a hundredth of the time that a step of training searches
in it. A graph takes as long as hundreds of steps. So it keeps units of its own, which are part of the state as well,
and is built again only when the metric has left them far behind; in between, it proposes rows, of which those that are
nearest in the present metric are taken.
"""

from __future__ import annotations

import copy
import math
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from candid.families.metric import metric_of
from candid.kernels import Deep, Features, Kernel
from candid.linalg import ApproximateIndex, Graph, NeighbourIndex

__all__ = ["SEARCHES", "SearchedRows", "pick_search"]

#: How neighbours can be searched for.
SEARCHES = ("exact", "hnsw")
# Above so many rows an exact search takes most of the time of training; a graph then pays for itself.
MOST_COMPARED = 200_000
# How many rows are asked how many of their neighbours a search finds.
RECALL_ROWS = 256
# A graph is built again when lengths, relative to each other, have changed by more than this factor.
FAR = 1.5
# Rows that pass a network at once.
CHUNK = 65_536


def pick_search(search: str, n_rows: int) -> str:
    """What "auto" stands for in a table of so many rows; other names stand for themselves."""
    if search == "auto":
        return "exact" if n_rows <= MOST_COMPARED else "hnsw"
    return search


class SearchedRows(nn.Module):
    """Inputs of the training rows, and the metric in which their neighbours are searched.

    Parameters
    ----------
    x : Tensor
        N×D.
    metric : Tensor
        What inputs, or features, are divided by before distances are measured; see :func:`metric_of`.
    persistent : bool
        Whether the inputs are part of the state.
    search : {"exact", "hnsw"}, default="exact"
    network : Features, optional
        Rows are compared by these features of them; a copy is kept.
    """

    x: Tensor
    metric: Tensor
    graph_metric: Tensor | None
    network: Features | None

    def __init__(
        self,
        x: Float[Tensor, "n d"],
        metric: Float[Tensor, " w"],
        persistent: bool,
        search: str = "exact",
        network: Features | None = None,
    ) -> None:
        super().__init__()
        if search not in SEARCHES:
            raise ValueError(f"unknown search {search!r}; choose one of {', '.join(SEARCHES)}")
        self.search = search
        self.register_buffer("x", x, persistent=persistent)
        self.register_buffer("metric", metric)
        self.register_buffer("graph_metric", metric.clone() if search == "hnsw" else None)
        self.network = None if network is None else copy.deepcopy(network).requires_grad_(False)
        self._index: NeighbourIndex | None = None
        self._indexed: list[Tensor] = []
        self._graph: Graph | None = None
        self._graphed: list[Tensor] = []

    @staticmethod
    def of(kernel: Kernel, x: Float[Tensor, "n d"], search: str = "exact") -> SearchedRows:
        """Rows as ``kernel`` compares them; whoever makes them holds the inputs."""
        network, metric = compared_by(kernel, x)
        return SearchedRows(x, metric, persistent=False, search=search, network=network)

    @torch.no_grad()
    def follow(self, kernel: Kernel) -> None:
        """Compare rows as ``kernel`` does by now."""
        network, metric = compared_by(kernel, self.x)
        self.metric.copy_(metric)
        if self.network is not None and network is not None:
            self.network.load_state_dict(network.state_dict())
        if self.graph_metric is not None and (self.network is not None or _apart(self.metric, self.graph_metric)):
            self.graph_metric.copy_(self.metric)

    def nearest(
        self, x: Float[Tensor, "*chains n d"], k: int, exclude: Int[Tensor, " n"] | None = None
    ) -> Int[Tensor, "*chains n near"]:
        """Which training rows are nearest to the rows of ``x``; ``exclude`` says which of them each row of ``x`` is."""
        queries = self._scaled(self.seen(x)).flatten(0, -2)
        if exclude is not None:
            exclude = exclude.expand(x.shape[:-1]).flatten()
        return self._prepared().nearest(queries, k, exclude).unflatten(0, x.shape[:-1])

    def append(self, x: Float[Tensor, "n d"]) -> None:
        """Add rows."""
        self.x, self._index, self._graph = torch.cat([self.x, x]), None, None

    def borrow(self, other: SearchedRows) -> None:
        """Use the graph of the same rows in another object, with its units, unless these have been left far behind."""
        if self.graph_metric is None or other.graph_metric is None:
            return
        if not _apart(self.metric, other.graph_metric.to(self.metric)):
            self.graph_metric.copy_(other.graph_metric)
            self._graph, self._graphed = other._graph, [value.to(self.metric) for value in other._graphed]

    def recall(self, k: int) -> float:
        """Which share of the ``k`` nearest rows the search finds, on average over some of the rows themselves."""
        if self.search == "exact":
            return 1.0
        some = torch.arange(0, len(self.x), math.ceil(len(self.x) / RECALL_ROWS), device=self.x.device)
        found = self.nearest(self.x[some], k, some)
        rows = self._scaled(self.seen(self.x))
        exact = NeighbourIndex(rows).nearest(rows[some], k, some)
        return float((found.unsqueeze(-1) == exact.unsqueeze(-2)).any(-1).double().mean()) if exact.numel() else 1.0

    def _prepared(self) -> NeighbourIndex:
        decisive = self._decisive()
        if self._index is None or not _identical(self._indexed, decisive):
            rows = self._scaled(self.seen(self._candidates()))
            self._index = NeighbourIndex(rows) if self.graph_metric is None else self._with_graph(rows)
            self._indexed = [value.clone() for value in decisive]
        return self._index

    def _with_graph(self, rows: Float[Tensor, "n d"]) -> ApproximateIndex:
        """The graph may be one of other units, if its own are those that the state has for it."""
        assert self.graph_metric is not None
        owned = [self.graph_metric, *self._decisive()[1:]]
        # Points of the graph = rows · stretch, up to one factor for all features, which changes nothing
        stretch = None if torch.equal(self.metric, self.graph_metric) else _relative(self.metric, self.graph_metric)
        if self._graph is None or not _identical(self._graphed, owned):
            of_graph = rows if stretch is None else rows * stretch
            self._graph, self._graphed = ApproximateIndex(of_graph).graph, [value.clone() for value in owned]
        return ApproximateIndex(rows, self._graph, stretch)

    def _candidates(self) -> Tensor:
        """The rows in the order of the index."""
        return self.x

    def _decisive(self) -> list[Tensor]:
        """The tensors that decide who is near, the metric first."""
        return [self.metric, *(() if self.network is None else self.network.state_dict().values())]

    @torch.no_grad()
    def seen(self, x: Float[Tensor, "*chains n d"]) -> Float[Tensor, "*chains n w"]:
        """What rows are compared by."""
        if self.network is None:
            return x.detach()
        parts = [self.network.settled(rows)[0] for rows in x.split(CHUNK, -2)]
        return parts[0] if len(parts) == 1 else torch.cat(parts, -2)

    def _scaled(self, x: Tensor) -> Tensor:
        # Only ratios of lengths matter; relative to the shortest one, nothing overflows.
        return x * (self.metric.min() / self.metric)

    def __getstate__(self) -> dict[str, Any]:
        """Copies and pickles do without the index, which can be made again."""
        return {**self.__dict__, "_index": None, "_indexed": [], "_graph": None, "_graphed": []}


def compared_by(kernel: Kernel, x: Float[Tensor, "n d"]) -> tuple[Features | None, Float[Tensor, " w"]]:
    """The network whose features a kernel compares, if there is one, and the metric for these or for the inputs."""
    if isinstance(kernel, Deep):
        return kernel.network, metric_of(kernel.base, kernel.network.width).to(x)
    return None, metric_of(kernel, x.shape[-1]).to(x)


def _relative(metric: Tensor, other: Tensor) -> Tensor:
    """What rows in units of ``metric`` are multiplied by to be in those of ``other``, up to a common factor."""
    return (metric / metric.min()) / (other / other.min())


def _apart(metric: Tensor, other: Tensor) -> bool:
    ratio = _relative(metric, other)
    return bool(ratio.max() > FAR * ratio.min())


def _identical(some: list[Tensor], others: list[Tensor]) -> bool:
    return len(some) == len(others) and all(
        a.dtype == b.dtype and a.device == b.device and torch.equal(a, b) for a, b in zip(some, others, strict=True)
    )
