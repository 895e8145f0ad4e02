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
from collections.abc import Callable

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from candid.families.agreement import agreed_sites
from candid.families.base import Family
from candid.families.embedded_predictor import EmbeddedPredictor
from candid.families.local import local_marginal
from candid.families.means import Mean
from candid.families.neighbour_predictor import NeighbourPredictor
from candid.families.predictor import Predictor
from candid.families.searched import SearchedRows
from candid.kernels import Deep, Kernel, unfold
from candid.likelihoods import Sites
from candid.marginal import Batch, Evaluation, JointPrior, Marginal

__all__ = ["Neighbours"]

#: Gives inputs, targets and noise variances of training rows.
LookUp = Callable[[Tensor], tuple[Tensor, Tensor, Tensor]]
#: Gives their targets and noise variances alone.
Shown = Callable[[Tensor], tuple[Tensor, Tensor]]

# Smaller parts of a copy are rounding errors of a weight.
LEAST_COPY = 1e-6


class Neighbours(Family):
    r"""P independent GPs, in which a row sees nothing but its neighbours; with leading dimensions (chains) before P.

    All GPs see the same neighbours: the nearest ones in a metric made of the lengthscales
    (:func:`~candid.families.metric.metric_of`), which follows them every ``refresh_every`` steps. Behind a network,
    rows are near if their features are: neighbours are searched by the features of such a step, and what they say is
    computed from the present ones.

    Parameters
    ----------
    kernel : Kernel
        Built with batch shape (P,), or (\*chains, P). A network is in front of all of it, or not there.
    mean : Mean
        With batch shape (\*chains,); of the features, if there is a network.
    x : Tensor
        Training inputs, N×D.
    sites : Sites
        Training targets and their noise, or what stands for them.
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
        sites: Sites,
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
        self.rows = SearchedRows.of(kernel, x, search)
        self.register_buffer("weight", weight, persistent=False)
        with torch.no_grad():
            self.register_buffer("jitter", torch.zeros(kernel.diagonal(x[:1]).shape[:-1]))

    @property
    def batchwise(self) -> bool:
        return True

    def evaluate(self, batch: Batch) -> Evaluation:
        marginal = self.marginal(batch, self.near(batch))
        return Evaluation(marginal, self.sites.penalties(batch, marginal))

    def marginal(self, batch: Batch, near: Int[Tensor, "*chains n k"]) -> Marginal:
        """What neighbours say of the rows of a batch."""
        kernel, x, look_up = self._seen(batch, near)
        marginal, jitter = local_marginal(kernel, self.mean, x, near, look_up, self.least_jitter)
        # The largest that any of the rows needed.
        self.jitter.copy_(jitter.amax(0))
        return marginal

    def groups(self, batch: Batch) -> Batch:
        """Each training row of a batch together with the k − 1 rows that are nearest to it: (row, k, …)."""
        assert batch.index is not None
        rows = batch.index.unsqueeze(-1)
        if self.n_neighbours > 1:
            rows = torch.cat([rows, self.rows.nearest(batch.x, self.n_neighbours - 1, batch.index)], -1)
        return Batch(self.rows.x[rows], self.sites.targets[rows], self.weight[rows], batch.total, rows)

    def prior(self, batch: Batch) -> JointPrior | Marginal:
        """Of groups, each for itself."""
        kernel, embed = unfold(self.kernel)
        (x,) = embed(batch.x, weight=batch.weight)
        return JointPrior(self.mean(x), kernel(x.unsqueeze(-3)))

    def near(self, batch: Batch) -> Int[Tensor, "*chains n k"]:
        """The neighbours of each row, in the numbers that :meth:`_look_up` knows; −1 where there is none."""
        near = self.rows.nearest(batch.x, self.n_neighbours, batch.index)
        if batch.index is None or not self.with_copies:
            return near
        has_copies = self.weight[batch.index] - 1 > LEAST_COPY
        if not bool(has_copies.any()):
            return near
        copies = torch.where(has_copies, batch.index + len(self.weight), -1)
        return torch.cat([near, copies.expand(near.shape[:-1]).unsqueeze(-1)], -1)

    def _seen(self, batch: Batch, near: Tensor) -> tuple[Kernel, Tensor, LookUp]:
        """A kernel without networks, what it sees of the rows of a batch, and how it finds what it sees of others."""
        if not isinstance(self.kernel, Deep):
            return self.kernel, batch.x, self._look_up
        kernel, embed = unfold(self.kernel)
        distinct = (near.clamp_min(0) % len(self.weight)).unique()
        x, of_neighbours = embed(batch.x, self.rows.x[distinct], weight=batch.weight)

        def look_up(rows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            _, targets, noise = self._look_up(rows)
            return of_neighbours[torch.searchsorted(distinct, rows % len(self.weight))], targets, noise

        return kernel, x, look_up

    def _look_up(self, rows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Inputs, targets and noise of training rows; N + n are the other copies of row n."""
        return self._looked_up(rows, self.sites)

    def _looked_up(self, rows: Tensor, sites: Shown) -> tuple[Tensor, Tensor, Tensor]:
        rows, is_copy = rows % len(self.weight), rows >= len(self.weight)
        targets, noise = (value.unflatten(0, rows.shape) for value in sites(rows.flatten()))
        # Of w copies, w − 1 are left.
        weight = torch.where(is_copy, self.weight[rows] - 1, self.weight[rows])
        return self.rows.x[rows], targets, noise / weight.unsqueeze(-1)

    def site_parameters(self) -> list[nn.Parameter]:
        return self.sites.own_parameters()

    def refresh(self, step: int) -> None:
        self.sites.refresh(step)
        if step % self.refresh_every == 0:
            self.rows.follow(self.kernel)

    def predictor(self) -> Predictor:
        return self._predictor(agreed_sites)

    def draft_predictor(self) -> Predictor:
        return self._predictor(lambda family: family.sites.settled)

    @torch.no_grad()
    def _predictor(self, sites_of: Callable[[Neighbours], Shown]) -> Predictor:
        frozen = copy.deepcopy(self).double()
        frozen.rows.follow(frozen.kernel)
        every = torch.arange(len(self.weight), device=self.weight.device)
        x, targets, noise = frozen._looked_up(every, sites_of(frozen))
        rest = targets, noise, frozen.rows.metric, self.n_neighbours, self.rows.search
        if isinstance(frozen.kernel, Deep):
            x = frozen.rows.seen(x)
            predictor = NeighbourPredictor(frozen.kernel.base, frozen.mean, x, *rest)
            return EmbeddedPredictor(frozen.kernel.network, self._completed(predictor))
        predictor = NeighbourPredictor(frozen.kernel, frozen.mean, x, *rest)
        predictor.rows.borrow(self.rows)
        return self._completed(predictor)

    def _completed(self, predictor: NeighbourPredictor) -> Predictor:
        """The predictor of plain neighbours, or what is made of it."""
        return predictor
