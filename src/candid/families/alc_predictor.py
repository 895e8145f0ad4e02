"""Predictions from rows that are chosen for each of them.

For one row to be predicted:

1. The likelihood of the rows next to it gives a first lengthscale (relative to the kernel's) and amplitude.
2. With these, rows are chosen among some hundred that are near: a few nearest ones, then always the one that reduces
   the variance of the prediction the most.
3. The likelihood of the chosen rows gives the lengthscale and the amplitude of the prediction.

The noise is that of the model: one for all rows, or known for each.
"""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from candid.families.design import greedy_design
from candid.families.local_likelihood import Values, best_local_values, improved_local_values
from candid.families.neighbour_predictor import NeighbourPredictor
from candid.families.predictor import Joint, Predictor
from candid.families.searched import SearchedRows
from candid.kernels import Kernel
from candid.linalg import condition
from candid.marginal import Marginal

__all__ = ["DesignPredictor"]

# What describes such a predictor.
PARTS = {"type", "neighbours"}
# Nearest rows that are in every design, and how many give the first lengthscale and amplitude.
N_START, N_FIRST = 6, 32
# Candidates: so many for each row of a design, and at least so many.
CANDIDATES_PER_ROW, LEAST_CANDIDATES = 4, 256
# Entries of the largest arrays.
CHUNK_ENTRIES = 4_000_000


class DesignPredictor(Predictor):
    """Conditions a row on k training rows that are chosen to tell the most of it.

    Several rows together are correlated as if they were conditioned on all rows that are near any of them, with the
    lengthscales of the model; means and variances are their own.

    Parameters
    ----------
    neighbours : NeighbourPredictor
        Has the training rows, and the kernel and mean that local ones are relative to.
    """

    def __init__(self, neighbours: NeighbourPredictor) -> None:
        super().__init__()
        self.neighbours = neighbours
        self.n_neighbours = neighbours.n_neighbours
        self.n_points = max(CANDIDATES_PER_ROW * self.n_neighbours, LEAST_CANDIDATES)

    @property
    def rows(self) -> SearchedRows:
        return self.neighbours.rows

    def marginal(self, x: Float[Tensor, "n d"], mean_only: bool = False) -> Marginal:
        entries = len(self.neighbours.targets[0]) * self.n_points * self.n_neighbours
        parts = [self._chunk(rows) for rows in x.split(max(1, CHUNK_ENTRIES // entries))]
        mean, variance = (torch.cat(part) for part in zip(*parts, strict=True))
        nothing = torch.zeros_like(mean)
        # The variance costs nothing: the mean alone needs the same factor.
        return Marginal(mean, nothing if mean_only else variance, nothing)

    def append(self, x: Float[Tensor, "n d"], targets: Float[Tensor, "n p"], noise: Float[Tensor, "n p"]) -> None:
        """Add training rows; see :meth:`NeighbourPredictor.append`."""
        self.neighbours.append(x, targets, noise)

    def joint(self, x: Float[Tensor, "n d"]) -> Joint:
        own, together = self.marginal(x), self.neighbours.joint(x)
        variance = together.covariance.diagonal(dim1=-2, dim2=-1).clamp_min(torch.finfo(x.dtype).tiny)
        # What each deviation is multiplied by
        factor = (own.variance.mT / variance).sqrt()
        return Joint(own.mean, factor.unsqueeze(-1) * together.covariance * factor.unsqueeze(-2))

    def _chunk(self, x: Float[Tensor, "n d"]) -> tuple[Float[Tensor, "n p"], Float[Tensor, "n p"]]:
        """Mean and variance of some rows, for each of which, and for each output, there is a GP: (row, output, …)."""
        near = self.rows.nearest(x, self.n_points).unsqueeze(1).expand(-1, self.neighbours.targets.shape[1], -1)
        amplitude, unit = self._amplitude_and_unit()
        first = best_local_values(unit, *self._look_up(near[..., :N_FIRST]), amplitude)
        design = self._design(unit, x, near, first)
        places, residual, noise = self._look_up(design)
        theta, s = improved_local_values(unit, places, residual, noise, first)
        places, target = places / theta[..., None, None], x[:, None, None] / theta[..., None, None]
        # C = k(X/θ, X/θ) + diag(σ²/s)
        covariance = unit(places) + torch.diag_embed(noise / s.unsqueeze(-1))
        latent, explained, _ = condition(covariance, unit(target, places).squeeze(-2), residual)
        variance = s * (unit.diagonal(target).squeeze(-1) - explained).clamp_min(0.0)
        return self.neighbours.mean(x) + latent, variance

    def _amplitude_and_unit(self) -> tuple[Float[Tensor, " p"], Kernel]:
        amplitude, unit = self.neighbours.kernel.split()
        return torch.ones_like(self.neighbours.noise[0]) if amplitude is None else amplitude, unit

    def _design(
        self, unit: Kernel, x: Float[Tensor, "n d"], near: Int[Tensor, "n p candidates"], first: Values
    ) -> Int[Tensor, "n p k"]:
        """The candidates that tell the most, with the first guess of lengthscale and amplitude."""
        if near.shape[-1] <= self.n_neighbours:
            return near
        theta, s = first
        places, _, noise = self._look_up(near)
        target, places = (part / theta[..., None, None] for part in (x.detach()[:, None, None], places))
        n_start = min(N_START, self.n_neighbours)
        chosen = greedy_design(unit, target, places, noise / s.unsqueeze(-1), self.n_neighbours, n_start)
        return near.gather(-1, chosen)

    def _look_up(
        self, rows: Int[Tensor, "n p k"]
    ) -> tuple[Float[Tensor, "n p k d"], Float[Tensor, "n p k"], Float[Tensor, "n p k"]]:
        """Inputs, targets minus their prior mean, and noise variances, each of the output that asks."""
        model = self.neighbours
        output = torch.arange(rows.shape[1], device=rows.device).unsqueeze(-1)
        places = self.rows.x[rows]
        # Of the means of all outputs, each GP takes its own.
        mean = model.mean(places.flatten(0, -2)).unflatten(0, rows.shape).diagonal(dim1=1, dim2=-1).mT
        return places, model.targets[rows, output] - mean, model.noise[rows, output]

    def to_spec(self) -> dict[str, Any]:
        return {"type": "design", "neighbours": self.neighbours.to_spec()}

    @staticmethod
    def from_spec(spec: dict[str, Any], code: Any = None) -> DesignPredictor:
        if spec.keys() != PARTS:
            raise ValueError(
                f"a predictor with designs is described by {sorted(PARTS)}, but this description has {sorted(spec)}"
            )
        return DesignPredictor(NeighbourPredictor.from_spec(spec["neighbours"], code))
