"""The variance that a fitted model takes away from the prior, as one signed sum of squares.

For a vector k of kernel values, a = W k and W = L⁻¹, q(v) with covariance S = R Rᵀ leaves the variance

    k(x,x) − aᵀa + aᵀS a  =  k(x,x) − aᵀ(I − S)a  =  k(x,x) − Σ_j sign_j (G k)_j².

With the eigenvalues Λ and eigenvectors E of I − S, G = |Λ|^½ Eᵀ W needs one product where W and R need two. Where S is
diagonal or zero, so is Λ, and G is as triangular as W.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce
from itertools import pairwise
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

__all__ = ["SignedSquares", "inverse_of"]

# Four blocks of a triangle have 5/8 of the entries of the square; many more would be too thin to be quick.
BLOCKS = 4
# Below these sizes, starting four products costs more than it saves.
LEAST_SIZE, LEAST_COLUMNS = 256, 64


class SignedSquares(nn.Module):
    r"""kᵀ Gᵀ diag(signs) G k.

    Parameters
    ----------
    matrix : Tensor
        G, (\*batch, J, M).
    signs : Tensor
        ±1, (\*batch, J).
    triangular : bool
        Whether G is lower-triangular; then the products skip its zeros.
    """

    matrix: Tensor
    signs: Tensor

    def __init__(self, matrix: Float[Tensor, "*batch j m"], signs: Float[Tensor, "*batch j"], triangular: bool) -> None:
        super().__init__()
        self.register_buffer("matrix", matrix)
        self.register_buffer("signs", signs)
        self.triangular = triangular

    @staticmethod
    def explained(
        lower: Float[Tensor, "*batch m m"],
        root: Float[Tensor, "*batch m"] | Float[Tensor, "*batch m m"] | None,
        compact: bool = True,
    ) -> SignedSquares:
        """aᵀ(I − S)a with a = L⁻¹ k and S = R Rᵀ, for ``root`` as :meth:`candid.weights.Weights.root` gives it.

        Eigenvectors take a while. Unless ``compact``, a full R makes G = [W; RᵀW] instead, which costs two products.
        """
        whitener = inverse_of(lower)
        ones = whitener.new_ones(whitener.shape[:-1])
        if root is None:
            return SignedSquares(whitener, ones, triangular=True)
        if root.dim() < whitener.dim():
            left = 1 - root.square()
            return SignedSquares(left.abs().sqrt().unsqueeze(-1) * whitener, _signs(left), triangular=True)
        if not compact:
            return SignedSquares(
                torch.cat([whitener, root.mT @ whitener], -2), torch.cat([ones, -ones], -1), triangular=False
            )
        # I − S = E Λ Eᵀ,   G = |Λ|^½ Eᵀ W
        values, vectors = torch.linalg.eigh(torch.diag_embed(ones) - root @ root.mT)
        return SignedSquares(
            (values.abs().sqrt().unsqueeze(-2) * vectors).mT @ whitener, _signs(values), triangular=False
        )

    def diagonal(self, cross: Float[Tensor, "*#batch m n"]) -> Float[Tensor, "*#batch n"]:
        """The sum for each column k of ``cross``."""
        sums = (signs.unsqueeze(-2) @ features.square() for features, signs in self._features(cross))
        return reduce(torch.add, sums).squeeze(-2)

    def matrix_of(self, cross: Float[Tensor, "*#batch m n"]) -> Float[Tensor, "*#batch n n"]:
        """The same with two columns, for all pairs."""
        products = (features.mT @ (signs.unsqueeze(-1) * features) for features, signs in self._features(cross))
        return reduce(torch.add, products)

    def _features(self, cross: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """G k and the signs, some rows of G at a time."""
        if not self.triangular:
            yield self.matrix @ cross, self.signs
            return
        for rows, columns in triangle_blocks(*cross.shape[-2:]):
            yield self.matrix[..., rows, columns] @ cross[..., columns, :], self.signs[..., rows]

    def to_spec(self) -> dict[str, Any]:
        return {"shape": list(self.matrix.shape), "triangular": self.triangular}

    @staticmethod
    def from_spec(spec: dict[str, Any]) -> SignedSquares:
        shape = [int(size) for size in spec["shape"]]
        return SignedSquares(
            torch.empty(*shape, device="meta"), torch.empty(*shape[:-1], device="meta"), bool(spec["triangular"])
        )


def triangle_blocks(size: int, n_columns: int) -> list[tuple[slice, slice]]:
    """Blocks of rows of a lower triangle, each with the columns in which it is not zero.

    ``n_columns`` is the width of the matrix that it is going to be multiplied with.
    """
    count = BLOCKS if size >= LEAST_SIZE and n_columns >= LEAST_COLUMNS else 1
    bounds = [size * k // count for k in range(count + 1)]
    return [(slice(start, stop), slice(0, stop)) for start, stop in pairwise(bounds)]


def inverse_of(lower: Float[Tensor, "*batch m m"]) -> Float[Tensor, "*batch m m"]:
    """L⁻¹, which is lower-triangular, too."""
    identity = torch.eye(lower.shape[-1], dtype=lower.dtype, device=lower.device).expand_as(lower)
    return torch.linalg.solve_triangular(lower, identity, upper=False)


def _signs(values: Tensor) -> Tensor:
    return torch.where(values < 0, -1.0, 1.0).to(values)
