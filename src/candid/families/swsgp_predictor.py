"""Predictions from the nearest inducing points."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from candid.families.means import Mean
from candid.families.nearby_predictor import NearbyPredictor
from candid.families.predictor import Joint
from candid.families.subset import Points, subset_marginal
from candid.kernels import Kernel
from candid.linalg import whiten
from candid.marginal import Marginal

__all__ = ["SubsetPredictor"]


class SubsetPredictor(NearbyPredictor):
    """A row sees the k points that are nearest to it, and several rows together the union of theirs.

    Parameters
    ----------
    kernel, mean : Kernel, Mean
        As fitted; the predictor keeps them.
    points : Points
        With the means and variances of their values.
    metric : Tensor
        What inputs are divided by before distances are measured.
    n_neighbours : int
        k.
    search : {"exact", "hnsw"}, default="exact"
        How points are searched for.
    """

    kind, shapes = "subset", ("points", "values")
    values: Tensor
    variances: Tensor

    def __init__(
        self,
        kernel: Kernel,
        mean: Mean,
        points: Points,
        metric: Float[Tensor, " d"],
        n_neighbours: int,
        search: str = "exact",
    ) -> None:
        super().__init__(kernel, mean, points.x.detach(), metric, n_neighbours, search)
        self.register_buffer("values", points.mean.detach())
        self.register_buffer("variances", points.variance.detach())

    def marginal(self, x: Float[Tensor, "n d"], mean_only: bool = False) -> Marginal:
        near = self.rows.nearest(x, self.n_neighbours)
        marginal, _, _ = subset_marginal(self.kernel, self.mean, x, near, self._points())
        # The variance costs nothing: the mean alone needs the same factor.
        nothing = torch.zeros_like(marginal.mean)
        return Marginal(marginal.mean, nothing if mean_only else marginal.variance, nothing)

    def joint(self, x: Float[Tensor, "n d"]) -> Joint:
        union = self._seen_by_any(x, "inducing points")
        amplitude, unit = self.kernel.split()
        scale = torch.ones_like(self.values[:, 0]) if amplitude is None else amplitude
        places, values, variances = self.rows.x[union], self.values[:, union], self.variances[:, union]
        # A = L⁻¹ k(Z, x) and B = L⁻ᵀ A
        features, factor = whiten(unit(places), unit(places, x))
        gain = torch.linalg.solve_triangular(factor.lower.mT, features, upper=True)
        mean = self.mean(x) + (gain.mT @ values.unsqueeze(-1)).squeeze(-1).mT
        # s(K_xx − AᵀA) + Bᵀ diag(v) B; rounding leaves the two triangles a little apart
        covariance = scale[:, None, None] * (unit(x) - features.mT @ features)
        covariance = covariance + gain.mT @ (variances.unsqueeze(-1) * gain)
        return Joint(mean, 0.5 * (covariance + covariance.mT))

    def _points(self) -> Points:
        return Points(self.rows.x, self.values, self.variances)

    def _numbers(self) -> Tensor:
        return self.values

    @staticmethod
    def from_spec(spec: dict[str, Any], code: Any = None) -> SubsetPredictor:
        kernel, mean, points, search = SubsetPredictor._parts(spec, code)
        return SubsetPredictor(kernel, mean, Points(*points), *search)
