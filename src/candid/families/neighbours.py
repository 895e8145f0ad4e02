"""Nearest neighbours: no inducing points, each row is conditioned on the k training rows nearest to it.

A training row is never its own neighbour, so with the predictive objective this is the leave-one-out likelihood of k
neighbours ("loo-k"). With the marginal likelihood of groups, each of which is a row and the k − 1 rows nearest to it,
it is "mll-k".

References
----------
M. Jankowiak, G. Pleiss (2022), Scalable cross validation losses for Gaussian process models.
"""

from __future__ import annotations

import copy

import torch
from jaxtyping import Float, Int
from torch import Tensor

from candid.families.base import Family
from candid.families.local import SearchedRows, local_marginal, metric_of
from candid.families.means import Mean
from candid.families.neighbour_predictor import NeighbourPredictor
from candid.kernels import Kernel
from candid.likelihoods import GaussianSites
from candid.marginal import Batch, Evaluation, JointPrior, Marginal

__all__ = ["Neighbours"]

# Smaller parts of a copy are rounding errors of a weight.
LEAST_COPY = 1e-6


class Neighbours(Family):
    r"""P independent GPs, in which a row sees nothing but its neighbours; with leading dimensions (chains) before P.

    All GPs see the same neighbours: the nearest ones in a metric made of the lengthscales
    (:func:`~candid.families.local.metric_of`), which follows them every ``refresh_every`` steps.

    Parameters
    ----------
    kernel : Kernel
        Built with batch shape (P,), or (\*chains, P).
    mean : Mean
        With batch shape (\*chains,).
    x : Tensor
        Training inputs, N×D.
    sites : GaussianSites
        Training targets and their noise.
    weight : Tensor
        Weight of each row: as a neighbour, a row of weight w has 1/w of the noise variance.
    n_neighbours : int, default=32
        k; where there are fewer other rows, all of them are neighbours.
    refresh_every : int, default=50
        Steps between two renewals of the metric.
    jitter : float, default=0.0
        Share of the diagonal that every factorisation starts with; grows for a row that needs more.
    search : {"exact", "hnsw"}, default="exact"
        How neighbours are searched for.
    with_copies : bool, default=False
        A row of weight w stands for w identical rows. If one of them is left out, the w − 1 others are neighbours of
        it, as they are in a table that has all of them. Otherwise all are left out together.
    """

    weight: Tensor

    def __init__(
        self,
        kernel: Kernel,
        mean: Mean,
        x: Float[Tensor, "n d"],
        sites: GaussianSites,
        weight: Float[Tensor, " n"],
        n_neighbours: int = 32,
        refresh_every: int = 50,
        jitter: float = 0.0,
        search: str = "exact",
        with_copies: bool = False,
    ) -> None:
        super().__init__()
        self.kernel, self.mean, self.sites = kernel, mean, sites
        self.n_neighbours, self.refresh_every, self.least_jitter = n_neighbours, refresh_every, jitter
        self.with_copies = with_copies
        # The rows are the caller's: checkpoints need not copy them.
        self.rows = SearchedRows(x, metric_of(kernel, x.shape[-1]).to(x), persistent=False, search=search)
        self.register_buffer("weight", weight, persistent=False)
        with torch.no_grad():
            self.register_buffer("jitter", torch.zeros(kernel.diagonal(x[:1]).shape[:-1]))

    @property
    def batchwise(self) -> bool:
        return True

    def evaluate(self, batch: Batch) -> Evaluation:
        near = self._near(batch)
        marginal, jitter = local_marginal(self.kernel, self.mean, batch.x, near, self._look_up, self.least_jitter)
        # The largest that any of the rows needed.
        self.jitter.copy_(jitter.amax(0))
        return Evaluation(marginal, {})

    def groups(self, batch: Batch) -> Batch:
        """Each training row of a batch together with the k − 1 rows that are nearest to it: (row, k, …)."""
        assert batch.index is not None
        rows = batch.index.unsqueeze(-1)
        if self.n_neighbours > 1:
            rows = torch.cat([rows, self.rows.nearest(batch.x, self.n_neighbours - 1, batch.index)], -1)
        return Batch(self.rows.x[rows], self.sites.targets[rows], self.weight[rows], batch.total, rows)

    def prior(self, batch: Batch) -> JointPrior | Marginal:
        """Of groups, each for itself."""
        return JointPrior(self.mean(batch.x), self.kernel(batch.x.unsqueeze(-3)))

    def _near(self, batch: Batch) -> Int[Tensor, "*chains n k"]:
        """The neighbours of each row, in the numbers that :meth:`_look_up` knows; −1 where there is none."""
        near = self.rows.nearest(batch.x, self.n_neighbours, batch.index)
        if batch.index is None or not self.with_copies:
            return near
        has_copies = self.weight[batch.index] - 1 > LEAST_COPY
        if not bool(has_copies.any()):
            return near
        copies = torch.where(has_copies, batch.index + len(self.weight), -1)
        return torch.cat([near, copies.expand(near.shape[:-1]).unsqueeze(-1)], -1)

    def _look_up(self, rows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Inputs, targets and noise of training rows; N + n are the other copies of row n."""
        rows, is_copy = rows % len(self.weight), rows >= len(self.weight)
        targets, noise = (value.unflatten(0, rows.shape) for value in self.sites(rows.flatten()))
        # Of w copies, w − 1 are left.
        weight = torch.where(is_copy, self.weight[rows] - 1, self.weight[rows])
        return self.rows.x[rows], targets, noise / weight.unsqueeze(-1)

    def refresh(self, step: int) -> None:
        if step % self.refresh_every == 0:
            self.rows.metric.copy_(metric_of(self.kernel, self.rows.metric.shape[-1]))

    @torch.no_grad()
    def predictor(self) -> NeighbourPredictor:
        frozen = copy.deepcopy(self).double()
        x, targets, noise = frozen._look_up(torch.arange(len(self.weight), device=self.weight.device))
        metric = metric_of(frozen.kernel, x.shape[-1]).to(x)
        search = self.rows.search
        return NeighbourPredictor(frozen.kernel, frozen.mean, x, targets, noise, metric, self.n_neighbours, search)
