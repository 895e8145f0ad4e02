"""Predictions from the nearest training rows."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from candid.families.axes import for_each_gp
from candid.families.local import local_marginal
from candid.families.means import Mean
from candid.families.nearby_predictor import NearbyPredictor
from candid.families.predictor import Joint
from candid.kernels import Kernel
from candid.linalg import whiten
from candid.marginal import Marginal

__all__ = ["NeighbourPredictor"]


class NeighbourPredictor(NearbyPredictor):
    r"""Conditions a row on the k training rows that are nearest to it, and several rows on the union of theirs.

    Parameters
    ----------
    kernel, mean : Kernel, Mean
        As fitted; the predictor keeps them.
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

    kind, shapes = "neighbours", ("x", "targets")
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
        super().__init__(kernel, mean, x, metric, n_neighbours, search)
        self.register_buffer("targets", targets)
        self.register_buffer("noise", noise)

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
        neighbours, targets, noise = self._look_up(self._seen_by_any(x, "training rows"))
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

    def _numbers(self) -> Tensor:
        return self.targets

    @staticmethod
    def from_spec(spec: dict[str, Any], code: Any = None) -> NeighbourPredictor:
        kernel, mean, rows, search = NeighbourPredictor._parts(spec, code)
        return NeighbourPredictor(kernel, mean, *rows, *search)
