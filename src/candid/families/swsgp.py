"""Many inducing points, of which a row sees only those next to it ("sparse within sparse").

The values of the points are independent in q(u), and not whitened: what a value means depends on its own point only.
The penalty is the divergence of the points that a row sees from their prior, on average over the rows. Where every row
sees all points, that is the evidence lower bound of inducing points with independent values.

References
----------
G.-L. Tran, D. Milios, P. Michiardi, M. Filippone (2021), Sparse within sparse Gaussian processes using neighbor
information.
"""

from __future__ import annotations

import copy

import torch
from jaxtyping import Float
from torch import Tensor, nn

from candid.families.base import Family
from candid.families.means import Mean
from candid.families.searched import SearchedRows, compared_by
from candid.families.subset import Points, subset_marginal
from candid.families.swsgp_predictor import SubsetPredictor
from candid.kernels import Kernel
from candid.marginal import Batch, Evaluation
from candid.weights import Diagonal

__all__ = ["SWSGP"]


class SearchedPoints(SearchedRows):
    """Points that move, at the places where they are searched: those of the last renewal."""

    def __init__(self, kernel: Kernel, points: Float[Tensor, "m d"], search: str = "exact") -> None:
        super().__init__(points.clone(), compared_by(kernel, points)[1], persistent=True, search=search)

    def _decisive(self) -> list[Tensor]:
        return [*super()._decisive(), self.x]


class SWSGP(Family):
    """P independent GPs with the same points; each row sees the k points that are nearest to it.

    Parameters
    ----------
    kernel : Kernel
        Built with batch shape (P,).
    mean : Mean
    points : Tensor
        Where the points start, M×D.
    n_neighbours : int, default=32
        k; where there are fewer points, a row sees all of them.
    refresh_every : int, default=50
        Steps after which the search follows points and lengthscales.
    jitter : float, default=0.0
        Share of the diagonal that every factorisation starts with; grows for a row that needs more.
    search : {"exact", "hnsw"}, default="exact"
        How points are searched for.
    """

    def __init__(
        self,
        kernel: Kernel,
        mean: Mean,
        points: Float[Tensor, "m d"],
        n_neighbours: int = 32,
        refresh_every: int = 50,
        jitter: float = 0.0,
        search: str = "exact",
    ) -> None:
        super().__init__()
        self.kernel, self.mean, self.points = kernel, mean, nn.Parameter(points.clone())
        self.n_neighbours, self.refresh_every, self.least_jitter = n_neighbours, refresh_every, jitter
        with torch.no_grad():
            batch_shape = tuple(kernel.diagonal(points[:1]).shape[:-1])
        #: Means (of u − mu(Z)) and standard deviations of the values, in units of the target.
        self.weights = Diagonal(len(points), batch_shape)
        self.searched = SearchedPoints(kernel, points, search)
        self.register_buffer("jitter", torch.zeros(batch_shape))

    @property
    def batchwise(self) -> bool:
        return True

    def evaluate(self, batch: Batch) -> Evaluation:
        near = self.searched.nearest(batch.x, self.n_neighbours)
        marginal, divergence, jitter = subset_marginal(
            self.kernel, self.mean, batch.x, near, self._points(), self.least_jitter
        )
        self.jitter.copy_(jitter.amax(0))
        # Σ_batch w·KL / Σ_batch w
        return Evaluation(marginal, {"kl": batch.weight @ divergence / batch.weight.sum()})

    def weight_parameters(self) -> list[nn.Parameter]:
        return list(self.weights.parameters())

    def point_parameters(self) -> list[nn.Parameter]:
        return [self.points]

    @torch.no_grad()
    def refresh(self, step: int) -> None:
        if step % self.refresh_every == 0:
            self._renew()

    @torch.no_grad()
    def assign(self, mean: Float[Tensor, "m p"], variance: Float[Tensor, "m p"]) -> None:
        """Set means and variances of the values."""
        self.weights.mean.copy_((mean - self.mean(self.points)).mT)
        self.weights.log_scale.copy_(0.5 * variance.log().mT)

    @torch.no_grad()
    def predictor(self) -> SubsetPredictor:
        frozen = copy.deepcopy(self).double()
        frozen._renew()
        metric, search = frozen.searched.metric, self.searched.search
        return SubsetPredictor(frozen.kernel, frozen.mean, frozen._points(), metric, self.n_neighbours, search)

    def _renew(self) -> None:
        self.searched.x.copy_(self.points)
        self.searched.follow(self.kernel)

    def _points(self) -> Points:
        return Points(self.points, self.weights.mean, (2 * self.weights.log_scale).exp())
