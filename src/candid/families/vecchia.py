"""Vecchia's approximation: rows in an order, and each is conditioned on the nearest of those before it.

By the chain rule, log p(y) = Σ_n log p(y_n | all rows before n). Of these rows only the k nearest are kept, so the sum
is the log-density of a model in its own right, and exact where k = N − 1.

References
----------
A. V. Vecchia (1988), Estimation and model identification for continuous spatial processes.
"""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from candid.families.means import Mean
from candid.families.neighbours import Neighbours
from candid.families.searched import SearchedRows, compared_by
from candid.kernels import Kernel
from candid.likelihoods import Sites
from candid.marginal import Batch, Marginal

__all__ = ["Vecchia"]


class OrderedRows(SearchedRows):
    """Training rows that see only those before them in an order."""

    order: Tensor
    place: Tensor

    def __init__(self, kernel: Kernel, x: Float[Tensor, "n d"], order: Int[Tensor, " n"]) -> None:
        network, metric = compared_by(kernel, x)
        super().__init__(x, metric, persistent=False, network=network)
        self.register_buffer("order", order, persistent=False)
        # Where in the order each row is.
        self.register_buffer("place", order.argsort(), persistent=False)

    def earlier(
        self, x: Float[Tensor, "*chains n d"], k: int, index: Int[Tensor, " n"]
    ) -> Int[Tensor, "*chains n near"]:
        """Which of the rows before rows ``index`` are nearest to these; −1 where there are fewer than k."""
        before = self.place[index].expand(x.shape[:-1]).flatten()
        queries = self._scaled(self.seen(x)).flatten(0, -2)
        found = self._prepared().nearest(queries, k, before=before).unflatten(0, x.shape[:-1])
        return torch.where(found < 0, -1, self.order[found.clamp_min(0)])

    def _candidates(self) -> Tensor:
        return self.x[self.order]


class Vecchia(Neighbours):
    """Neighbours of a training row are among the rows before it. New rows come after all of them.

    Parameters
    ----------
    kernel, mean, x, sites, weight
        As of :class:`Neighbours`.
    order : Tensor
        The indices of the training rows, the first one first.
    **options
        As of :class:`Neighbours`.
    """

    rows: OrderedRows

    def __init__(
        self,
        kernel: Kernel,
        mean: Mean,
        x: Float[Tensor, "n d"],
        sites: Sites,
        weight: Float[Tensor, " n"],
        order: Int[Tensor, " n"],
        **options: Any,
    ) -> None:
        super().__init__(kernel, mean, x, sites, weight, **options)
        self.rows = OrderedRows(kernel, x, order)

    def groups(self, batch: Batch) -> Batch:
        """Rows are taken one by one, not in groups."""
        return batch

    def prior(self, batch: Batch) -> Marginal:
        """Each training row given those before it."""
        return self.evaluate(batch).marginal

    def near(self, batch: Batch) -> Int[Tensor, "*chains n k"]:
        assert batch.index is not None
        return self.rows.earlier(batch.x, self.n_neighbours, batch.index)
