"""Predictions of latent functions from the nearest training rows, whose outputs are mixtures of them."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from candid.families.mixed_local import MixedRows, mixed_marginal
from candid.families.nearby_predictor import MOST_TOGETHER
from candid.families.neighbour_predictor import NeighbourPredictor
from candid.families.predictor import Joint, Predictor
from candid.families.searched import SearchedRows
from candid.linalg import whiten
from candid.marginal import Marginal

__all__ = ["MixedPredictor"]

# What describes such a predictor.
PARTS = {"type", "neighbours", "mixing"}


class MixedPredictor(Predictor):
    """Conditions a row on the outputs of the k training rows that are nearest to it; several rows on all of theirs.

    Parameters
    ----------
    neighbours : NeighbourPredictor
        Has the training rows, with NaN for outputs that were not observed, and kernel and mean of W latent functions.
    mixing : Tensor
        A, W×P.
    """

    mixing: Tensor

    def __init__(self, neighbours: NeighbourPredictor, mixing: Float[Tensor, "w p"]) -> None:
        super().__init__()
        self.neighbours = neighbours
        self.register_buffer("mixing", mixing)
        self.n_neighbours = neighbours.n_neighbours
        # Outputs take part in all covariances.
        self.n_points = self.n_neighbours * mixing.shape[-1]

    @property
    def dtype(self) -> torch.dtype:
        return self.mixing.dtype

    @property
    def rows(self) -> SearchedRows:
        return self.neighbours.rows

    def marginal(self, x: Float[Tensor, "n d"], mean_only: bool = False) -> Marginal:
        own, near = self.neighbours, self.rows.nearest(x, self.n_neighbours)
        marginal, _ = mixed_marginal(own.kernel, own.mean, self.mixing, x, near, own._look_up)
        # The variance costs nothing: the mean alone needs the same factor.
        return Marginal(marginal.mean, marginal.spread, marginal.spread) if mean_only else marginal

    def append(self, x: Float[Tensor, "n d"], targets: Float[Tensor, "n p"], noise: Float[Tensor, "n p"]) -> None:
        """Add training rows; see :meth:`NeighbourPredictor.append`."""
        self.neighbours.append(x, targets, noise)

    def joint(self, x: Float[Tensor, "n d"]) -> Joint:
        union, n_outputs = self.rows.nearest(x, self.n_neighbours).unique(), self.mixing.shape[-1]
        if max(n_outputs * len(union), len(self.mixing) * len(x)) > MOST_TOGETHER:
            raise ValueError(
                f"a joint prediction of {len(x)} rows conditions them on {n_outputs} outputs of the {len(union)} "
                f"training rows that are neighbours of any of them, and makes matrices of that size (at most "
                f"{MOST_TOGETHER}); ask for fewer rows at a time, or for their marginal distributions"
            )
        own = self.neighbours
        covariance, cross, residual = MixedRows(*own._look_up(union)).system(own.kernel, own.mean, self.mixing, x)
        # F = L⁻¹(a_w ⊗ k_w(X, x)) with L Lᵀ = C
        features, factor = whiten(covariance, cross)
        rest = torch.linalg.solve_triangular(factor.lower, residual.unsqueeze(-1), upper=False)
        shape = (len(self.mixing), len(x))
        # mu(x) + FᵀL⁻¹r, and diag(K_w) − FᵀF
        mean = own.mean(x) + (features.mT @ rest).unflatten(0, shape).squeeze(-1).mT
        blocks = torch.diag_embed(own.kernel(x).movedim(0, -1)).permute(2, 0, 3, 1)
        together = blocks - (features.mT @ features).unflatten(-1, shape).unflatten(0, shape)
        # Rounding leaves the two triangles a little apart.
        together = 0.5 * (together + together.permute(2, 3, 0, 1))
        return Joint(mean, torch.einsum("wnwm->wnm", together), cross=together)

    def to_spec(self) -> dict[str, Any]:
        return {"type": "mixed", "neighbours": self.neighbours.to_spec(), "mixing": list(self.mixing.shape)}

    @staticmethod
    def from_spec(spec: dict[str, Any], code: Any = None) -> MixedPredictor:
        if spec.keys() != PARTS:
            raise ValueError(
                f"a mixed predictor is described by {sorted(PARTS)}, but this description has {sorted(spec)}"
            )
        mixing = torch.empty([int(size) for size in spec["mixing"]], device="meta")
        return MixedPredictor(NeighbourPredictor.from_spec(spec["neighbours"], code), mixing)
