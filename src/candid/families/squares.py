"""The variance that a fitted model takes away from the prior, as one signed sum of squares.

For a vector k of kernel values, a = W k and W = L⁻¹, q(v) with covariance S = R Rᵀ leaves the variance

    k(x,x) − aᵀa + aᵀS a  =  k(x,x) − aᵀ(I − S)a  =  k(x,x) − Σ_j sign_j (G k)_j².

With the eigenvalues Λ and eigenvectors E of I − S, G = |Λ|^½ Eᵀ W needs one product where W and R need two. The rows of
one sign may be multiplied by any orthogonal Q, as ‖Q G k‖ = ‖G k‖, and one such Q makes them a triangle. Where S is
diagonal or zero, so is Λ, and G is as triangular as W from the beginning.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce
from itertools import pairwise
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from candid.linalg.products import product_of
from candid.linalg.triangular import inverse_of

__all__ = ["SignedSquares"]

# Two blocks of a triangle have 3/4 of the entries of the square, and four have 5/8; more would be too thin to be quick.
# From how many multiplications (of the square) on they save more than it costs to start their products.
BLOCKS = {4: 10_000_000, 2: 1_000_000, 1: 0}
# Smaller triangles are thin as they are.
LEAST_SIZE = 256
# So many vectors k, or fewer, are multiplied fastest as long rows.
FEW_COLUMNS = 64


class SignedSquares(nn.Module):
    r"""kᵀ Gᵀ diag(signs) G k.

    Parameters
    ----------
    matrix : Tensor
        G, (\*batch, J, M).
    signs : Tensor
        ±1, (\*batch, J).
    offset : int
        Of the diagonal above which all entries of G are zero, as :func:`torch.tril` counts it: 0 is a lower triangle,
        M − 1 any matrix. The products skip these zeros.
    """

    matrix: Tensor
    signs: Tensor

    def __init__(self, matrix: Float[Tensor, "*batch j m"], signs: Float[Tensor, "*batch j"], offset: int) -> None:
        super().__init__()
        # Rows as they lie in model files: so a loaded model multiplies in the same order.
        self.register_buffer("matrix", matrix.contiguous())
        self.register_buffer("signs", signs)
        self.offset = offset

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
            return SignedSquares(whitener, ones, offset=0)
        if root.dim() < whitener.dim():
            left = 1 - root.square()
            return SignedSquares(left.abs().sqrt().unsqueeze(-1) * whitener, _signs(left), offset=0)
        if not compact:
            return SignedSquares(
                torch.cat([whitener, root.mT @ whitener], -2),
                torch.cat([ones, -ones], -1),
                offset=whitener.shape[-1] - 1,
            )
        # I − S = E Λ Eᵀ,   G = |Λ|^½ Eᵀ W
        values, vectors = torch.linalg.eigh(torch.diag_embed(ones) - root @ root.mT)
        return SignedSquares.shortened((values.abs().sqrt().unsqueeze(-2) * vectors).mT @ whitener, _signs(values))

    @staticmethod
    def shortened(matrix: Float[Tensor, "*batch m m"], signs: Float[Tensor, "*batch m"]) -> SignedSquares:
        """The same sum from rows that end in as many zeros as possible; a lower triangle if all signs are the same."""
        size = matrix.shape[-1]
        pairs = zip(matrix.reshape(-1, size, size), signs.reshape(-1, size), strict=True)
        matrices, ordered_signs, offsets = zip(*(_shortest_first(*pair) for pair in pairs), strict=True)
        return SignedSquares(
            torch.stack(matrices).view_as(matrix), torch.stack(ordered_signs).view_as(signs), max(offsets)
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
        matrix = self.matrix
        blocks = staircase_blocks(matrix.shape[-2], matrix.shape[-1], cross.shape[-1], self.offset)
        if cross.shape[-1] <= FEW_COLUMNS:
            vectors = cross.mT.contiguous()
            products = [vectors[..., columns] @ matrix[..., rows, columns].mT for rows, columns in blocks]
            yield torch.cat(products, -1).mT, self.signs
            return
        for rows, columns in blocks:
            yield product_of(matrix[..., rows, columns], cross[..., columns, :]), self.signs[..., rows]

    def to_spec(self) -> dict[str, Any]:
        return {"shape": list(self.matrix.shape), "offset": self.offset}

    @staticmethod
    def from_spec(spec: dict[str, Any]) -> SignedSquares:
        shape = [int(size) for size in spec["shape"]]
        return SignedSquares(
            torch.empty(*shape, device="meta"), torch.empty(*shape[:-1], device="meta"), int(spec["offset"])
        )


def staircase_blocks(n_rows: int, size: int, n_columns: int, offset: int) -> list[tuple[slice, slice]]:
    """Blocks of rows of a matrix that is zero above a diagonal, each with the columns in which it is not zero.

    ``size`` is the number of its columns, ``n_columns`` the width of what it is going to be multiplied with.
    """
    skips_zeros = size >= LEAST_SIZE and offset < size - 1
    work = n_rows * size * n_columns
    count = next(count for count, least in BLOCKS.items() if work >= least) if skips_zeros else 1
    bounds = [n_rows * k // count for k in range(count + 1)]
    return [(slice(start, stop), slice(0, min(stop + offset, size))) for start, stop in pairwise(bounds)]


def _signs(values: Tensor) -> Tensor:
    return torch.where(values < 0, -1.0, 1.0).to(values)


def _shortest_first(matrix: Float[Tensor, "m m"], signs: Float[Tensor, " m"]) -> tuple[Tensor, Tensor, int]:
    """Rows that end in as many zeros as possible, the shortest first; their signs; the diagonal above which all end."""
    size = len(matrix)
    parts = [(_trapezoid(matrix[signs == sign]), sign) for sign in (1.0, -1.0)]
    # The j-th of J rows of one sign ends in column M − J + j.
    ends, order = torch.cat([torch.arange(size - len(part), size) for part, _ in parts]).sort(stable=True)
    order = order.to(matrix.device)
    rows = torch.cat([part for part, _ in parts])[order]
    signs = torch.cat([signs.new_full((len(part),), sign) for part, sign in parts])[order]
    return rows, signs, int((ends - torch.arange(size)).max())


def _trapezoid(rows: Float[Tensor, "j m"]) -> Float[Tensor, "j m"]:
    """Q G with an orthogonal Q that puts zeros above the last diagonal."""
    # The R of a QR decomposition has zeros on the other side.
    triangle = torch.linalg.qr(rows.flip(-1), mode="r").R
    return triangle.flip(-1, -2)
