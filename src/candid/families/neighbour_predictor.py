"""Predictions from the nearest training rows."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from candid.families.axes import for_each_gp
from candid.families.local import local_marginal
from candid.families.means import Mean, mean_from_spec
from candid.families.predictor import Joint, Predictor
from candid.families.searched import SearchedRows
from candid.kernels import Kernel, kernel_from_spec
from candid.linalg import whiten
from candid.marginal import Marginal

__all__ = ["NeighbourPredictor"]

# What describes a neighbour predictor.
PARTS = {"type", "kernel", "mean", "x", "targets", "n_neighbours", "search"}
# Rows of the largest matrix that a joint prediction makes.
MOST_TOGETHER = 10_000


class NeighbourPredictor(Predictor):
    r"""Conditions a row on the k training rows that are nearest to it, and several rows on the union of theirs.

    Parameters
    ----------
    kernel, mean : Kernel, Mean
        As fitted; the predictor keeps copies.
    x : Tensor
        Training inputs, N×D.
    targets, noise : Tensor
        Of the training rows, N×P; the noise variances with the weights of the rows in them.
    metric : Tensor
        What inputs are divided by before distances are measured.
    n_neighbours : int
        k.
    search : {"exact", "hnsw"}, default="exact"
        How neighbours are searched for.
    """

    targets: Tensor
    noise: Tensor

    def __init__(
        self,
        kernel: Kernel,
        mean: Mean,
        x: Float[Tensor, "n d"],
        targets: Float[Tensor, "n p"],
        noise: Float[Tensor, "n p"],
        metric: Float[Tensor, " d"],
        n_neighbours: int,
        search: str = "exact",
    ) -> None:
        super().__init__()
        self.kernel, self.mean = kernel, mean
        self.rows = SearchedRows(x, metric, persistent=True, search=search)
        self.register_buffer("targets", targets)
        self.register_buffer("noise", noise)
        self.n_points = self.n_neighbours = n_neighbours
        self.requires_grad_(False)

    def marginal(self, x: Float[Tensor, "*#chains n d"], mean_only: bool = False) -> Marginal:
        near = self.rows.nearest(x, self.n_neighbours)
        marginal, _ = local_marginal(self.kernel, self.mean, x, near, self._look_up)
        # The variance costs nothing: the mean alone needs the same factor.
        return Marginal(marginal.mean, marginal.spread, marginal.spread) if mean_only else marginal

    def append(self, x: Float[Tensor, "n d"], targets: Float[Tensor, "n p"], noise: Float[Tensor, "n p"]) -> None:
        """Add training rows, with noise variances as the constructor takes them."""
        x, targets, noise = (part.to(self.targets) for part in (x, targets, noise))
        self.rows.append(x)
        self.targets, self.noise = torch.cat([self.targets, targets]), torch.cat([self.noise, noise])

    def _look_up(self, rows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return self.rows.x[rows], self.targets[rows], self.noise[rows]

    def joint(self, x: Float[Tensor, "*#chains n d"]) -> Joint:
        union = self.rows.nearest(x, self.n_neighbours).unique()
        if max(len(union), x.shape[-2]) > MOST_TOGETHER:
            raise ValueError(
                f"a joint prediction of {x.shape[-2]} rows conditions them on the {len(union)} training rows that are "
                f"neighbours of any of them, and makes matrices of that size (at most {MOST_TOGETHER}); ask for fewer "
                "rows at a time, or for their marginal distributions"
            )
        neighbours, targets, noise = self._look_up(union)
        rows = for_each_gp(x)
        amplitude, unit = self.kernel.split()
        scale = torch.ones_like(self.noise[0]) if amplitude is None else amplitude
        # A = L⁻¹ k(X, x) with L Lᵀ = K + diag(σ²/s)
        covariance = unit(neighbours) + torch.diag_embed(noise.mT / scale.unsqueeze(-1))
        features, factor = whiten(covariance, unit(neighbours, rows))
        # mu(x) + Aᵀ L⁻¹(y − mu(X))
        residual = (targets - self.mean(neighbours)).mT.unsqueeze(-1)
        rest = torch.linalg.solve_triangular(factor.lower, residual.expand(*features.shape[:-1], 1), upper=False)
        mean = self.mean(x) + (features.mT @ rest).squeeze(-1).mT
        # s(K_xx − AᵀA); rounding leaves the two triangles a little apart
        covariance = scale[..., None, None] * (unit(rows) - features.mT @ features)
        return Joint(mean, 0.5 * (covariance + covariance.mT))

    def to_spec(self) -> dict[str, Any]:
        return {
            "type": "neighbours",
            "kernel": self.kernel.to_spec(),
            "mean": self.mean.to_spec(),
            "x": list(self.rows.x.shape),
            "targets": list(self.targets.shape),
            "n_neighbours": self.n_neighbours,
            "search": self.rows.search,
        }

    @staticmethod
    def from_spec(spec: dict[str, Any], code: Any = None) -> NeighbourPredictor:
        if spec.keys() != PARTS:
            raise ValueError(
                f"a neighbour predictor is described by {sorted(PARTS)}, but this description has {sorted(spec)}"
            )
        x, targets, noise = (
            torch.empty([int(size) for size in spec[name]], device="meta") for name in ("x", "targets", "targets")
        )
        kernel, mean = kernel_from_spec(spec["kernel"], code), mean_from_spec(spec["mean"], code)
        metric, k, search = x.new_empty(x.shape[-1]), int(spec["n_neighbours"]), str(spec["search"])
        return NeighbourPredictor(kernel, mean, x, targets, noise, metric, k, search)
