"""A normal distribution of whitened values, seen through triangles and features."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from candid.linalg import lower_product, transposed_lower_product
from candid.linalg.relative import lower_times_columns

__all__ = ["WhitenedNormal"]


@dataclass(frozen=True)
class WhitenedNormal:
    """N(m, R Rᵀ), with a root as :meth:`candid.weights.Weights.root` gives it."""

    mean: Float[Tensor, "*batch m"]
    root: Tensor | None

    def turned(self, triangle: Float[Tensor, "*batch m m"]) -> WhitenedNormal:
        """The distribution of T v."""
        mean = (triangle @ self.mean.unsqueeze(-1)).squeeze(-1)
        if self.root is None:
            return WhitenedNormal(mean, None)
        return WhitenedNormal(
            mean, triangle * self.root.unsqueeze(-2) if self._is_diagonal() else lower_product(triangle, self.root)
        )

    def at(
        self, features: Float[Tensor, "*batch m n"]
    ) -> tuple[Float[Tensor, "*batch 1 n"], Float[Tensor, "*batch j n"]]:
        """mᵀF and RᵀF: mean and root of the distribution of Fᵀv."""
        latent = self.mean.unsqueeze(-2) @ features
        if self.root is None:
            return latent, features[..., :0, :]
        return latent, self.root.unsqueeze(-1) * features if self._is_diagonal() else transposed_lower_product(
            self.root, features
        )

    def columns(self, draws: Float[Tensor, "m n"] | None = None) -> Float[Tensor, "*batch m j"]:
        """m and R, or m and R times some draws, which are constants. What is above the diagonal of R is not read."""
        mean = self.mean.unsqueeze(-1)
        if self.root is None:
            return mean
        if self._is_diagonal():
            columns = torch.diag_embed(self.root) if draws is None else self.root.unsqueeze(-1) * draws
        else:
            columns = self.root.tril() if draws is None else lower_times_columns(self.root, draws)
        return torch.cat([mean, columns], -1)

    def _is_diagonal(self) -> bool:
        return self.root is not None and self.root.dim() == self.mean.dim()
