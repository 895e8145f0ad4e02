"""Predictions from the nearest inducing points."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from candid.families.means import Mean, mean_from_spec
from candid.families.predictor import Joint, Predictor
from candid.families.searched import SearchedRows
from candid.families.subset import Points, subset_marginal
from candid.kernels import Kernel, kernel_from_spec
from candid.linalg import whiten
from candid.marginal import Marginal

__all__ = ["SubsetPredictor"]

# What describes such a predictor.
PARTS = {"type", "kernel", "mean", "points", "values", "n_neighbours", "search"}
# Rows of the largest matrix that a joint prediction makes.
MOST_TOGETHER = 10_000


class SubsetPredictor(Predictor):
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
        super().__init__()
        self.kernel, self.mean = kernel, mean
        self.rows = SearchedRows(points.x.detach(), metric, persistent=True, search=search)
        self.register_buffer("values", points.mean.detach())
        self.register_buffer("variances", points.variance.detach())
        self.n_points = self.n_neighbours = n_neighbours
        self.requires_grad_(False)

    def marginal(self, x: Float[Tensor, "n d"], mean_only: bool = False) -> Marginal:
        near = self.rows.nearest(x, self.n_neighbours)
        marginal, _, _ = subset_marginal(self.kernel, self.mean, x, near, self._points())
        # The variance costs nothing: the mean alone needs the same factor.
        nothing = torch.zeros_like(marginal.mean)
        return Marginal(marginal.mean, nothing if mean_only else marginal.variance, nothing)

    def joint(self, x: Float[Tensor, "n d"]) -> Joint:
        union = self.rows.nearest(x, self.n_neighbours).unique()
        if max(len(union), len(x)) > MOST_TOGETHER:
            raise ValueError(
                f"a joint prediction of {len(x)} rows makes matrices of the size of the {len(union)} inducing points "
                f"that any of them sees (at most {MOST_TOGETHER}); ask for fewer rows at a time, or for their marginal "
                "distributions"
            )
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

    def to_spec(self) -> dict[str, Any]:
        return {
            "type": "subset",
            "kernel": self.kernel.to_spec(),
            "mean": self.mean.to_spec(),
            "points": list(self.rows.x.shape),
            "values": list(self.values.shape),
            "n_neighbours": self.n_neighbours,
            "search": self.rows.search,
        }

    @staticmethod
    def from_spec(spec: dict[str, Any], code: Any = None) -> SubsetPredictor:
        if spec.keys() != PARTS:
            raise ValueError(
                f"a predictor of points is described by {sorted(PARTS)}, but this description has {sorted(spec)}"
            )
        x, mean, variance = (
            torch.empty([int(size) for size in spec[name]], device="meta") for name in ("points", "values", "values")
        )
        parts = kernel_from_spec(spec["kernel"], code), mean_from_spec(spec["mean"], code), Points(x, mean, variance)
        return SubsetPredictor(*parts, x.new_empty(x.shape[-1]), int(spec["n_neighbours"]), str(spec["search"]))
