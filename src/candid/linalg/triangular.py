"""Products and solves with a lower-triangular matrix L that do no more work than they have to.

A matrix product does not know that half of a triangle is zero. Cut into blocks of rows, it does little more than half
of the work. A triangular solve is fastest from the right and on columns, which for matrices that are stored by rows
means the transposed system: L⁻¹X = (Xᵀ L⁻ᵀ)ᵀ. Where X has many more columns than L, a product with L⁻¹ is faster still.
Where products have wider instructions than solves (:mod:`candid.linalg.products`), large systems are solved by them,
too. In a crew, small products are those of :mod:`candid.linalg.blas`.

These are parts of gradients that are written by hand, and have none themselves.
"""

from __future__ import annotations

from functools import cache
from itertools import pairwise

import torch
from jaxtyping import Float
from torch import Tensor

from candid.linalg.blas import blas_takes, multiply_by_lower
from candid.linalg.crew import share_out
from candid.linalg.products import add_product, onednn_takes, product_of, write_product

__all__ = [
    "add_lower_times",
    "add_product_below_diagonal",
    "congruence",
    "half_congruence_with",
    "halves",
    "inverse_of",
    "loose_lower_times",
    "lower_half_of_product",
    "lower_times",
    "mirror_below_diagonal",
    "product_below_diagonal",
    "solve_lower",
    "solve_lower_transposed",
    "transposed_lower_times",
]

# More and thinner blocks would save a little more work, but threads would have to wait for each other more often.
MOST_BLOCKS, LEAST_ROWS = 4, 100
# Larger systems, and larger matrices that are inverted, are cut in halves.
LARGEST_SYSTEM, LARGEST_INVERSE = 256, 160
# From how many equations on, with as many right-hand sides, products are better at solving them, and blocks for these.
LEAST_SYSTEM, LARGEST_BLOCK = 256, 128


def solve_lower(lower: Float[Tensor, "*batch m m"], x: Float[Tensor, "*batch m n"]) -> Float[Tensor, "*batch m n"]:
    """L⁻¹ X."""
    if _products_solve(lower, x):
        return _solve_by_products(lower, x, transposed=False)
    return torch.linalg.solve_triangular(lower.mT, x.mT, upper=True, left=False).mT


def solve_lower_transposed(
    lower: Float[Tensor, "*batch m m"], x: Float[Tensor, "*batch m n"]
) -> Float[Tensor, "*batch m n"]:
    """L⁻ᵀ X."""
    if _products_solve(lower, x):
        return _solve_by_products(lower, x, transposed=True)
    return torch.linalg.solve_triangular(lower, x.mT, upper=False, left=False).mT


def _products_solve(lower: Tensor, x: Tensor) -> bool:
    """Whether products are so much faster than solves that they pay here."""
    return LEAST_SYSTEM <= lower.shape[-1] <= x.shape[-1] and onednn_takes(lower, x)


def _solve_by_products(lower: Tensor, x: Tensor, transposed: bool) -> Tensor:
    """T⁻¹X for T = L or Lᵀ: (T⁻¹X)_i = T_ii⁻¹ (X_i − Σ_j T_ij (T⁻¹X)_j), where j are the blocks before i, or behind."""
    triangle, size = lower.mT if transposed else lower, lower.shape[-1]
    solved = torch.empty_like(x, memory_format=torch.contiguous_format)
    blocks = _cut(size, -(-size // LARGEST_BLOCK))
    for start, stop in reversed(blocks) if transposed else blocks:
        own, done = slice(start, stop), slice(stop, size) if transposed else slice(0, start)
        rest, inverse = x[..., own, :], inverse_of(lower[..., own, own])
        if done.start < done.stop:
            rest = rest - product_of(triangle[..., own, done], solved[..., done, :])
        write_product(inverse.mT if transposed else inverse, rest, solved[..., own, :])
    return solved


def inverse_of(lower: Float[Tensor, "*batch m m"]) -> Float[Tensor, "*batch m m"]:
    """L⁻¹, which is lower-triangular, too: with L = [L₁, 0; K, L₂] it is [L₁⁻¹, 0; −L₂⁻¹K L₁⁻¹, L₂⁻¹]."""
    if lower.shape[-1] <= LARGEST_INVERSE:
        identity = torch.eye(lower.shape[-1], dtype=lower.dtype, device=lower.device).expand_as(lower)
        return torch.linalg.solve_triangular(lower, identity, upper=False, left=False)
    first, second = halves(lower.shape[-1])
    inverse = torch.zeros_like(lower)
    for half in (first, second):
        inverse[..., half, half] = inverse_of(lower[..., half, half])
    corner = lower_times(inverse[..., second, second], lower[..., second, first])
    write_product(corner.neg_(), inverse[..., first, first], inverse[..., second, first])
    return inverse


def _solve_from_right(lower: Tensor, x: Tensor) -> Tensor:
    """X L⁻¹."""
    return solve_lower_transposed(lower, x.mT).mT


def congruence(
    lower: Float[Tensor, "*batch m m"], symmetric: Float[Tensor, "*batch m m"]
) -> Float[Tensor, "*batch m m"]:
    """P = L⁻ᵀ Σ L⁻¹, which is exactly symmetric. Only the lower triangle of Σ is read.

    Half of the work of two solves, with L = [L₁, 0; K, L₂], the same blocks of Σ and P, and U = L₂⁻ᵀ Σ₂₁:

        P₂ = L₂⁻ᵀ Σ₂ L₂⁻¹        P₂₁ = (U − P₂K) L₁⁻¹        P₁ = L₁⁻ᵀ (Σ₁ − WᵀK − KᵀW) L₁⁻¹,   W = U − ½P₂K.
    """
    result = torch.empty_like(symmetric)
    _write_congruence(lower, symmetric, result)
    return result


def half_congruence_with(
    inverse: Float[Tensor, "*batch m m"], symmetric: Float[Tensor, "*batch m m"]
) -> Float[Tensor, "*batch m m"]:
    """H with H + Hᵀ = L⁻ᵀ Σ L⁻¹, from L⁻¹ and by products, which are faster than solves."""
    return transposed_lower_times(inverse, lower_times(_half(symmetric), inverse, lower_half=True))


def halves(size: int) -> tuple[slice, slice]:
    """Of rows or columns: what a triangle has in the second half of its columns is in the second half of its rows."""
    return slice(0, size // 2), slice(size // 2, size)


def _half(symmetric: Tensor) -> Tensor:
    """Φ with Φ + Φᵀ = Σ: its lower triangle with half of the diagonal."""
    half = symmetric.tril()
    half.diagonal(dim1=-2, dim2=-1).mul_(0.5)
    return half


def _write_congruence(lower: Tensor, symmetric: Tensor, result: Tensor) -> None:
    size = lower.shape[-1]
    if size <= LARGEST_SYSTEM:
        half = solve_lower_transposed(lower, _solve_from_right(lower, _half(symmetric)))
        torch.add(half, half.mT, out=result)
        return
    first, second = halves(size)
    corner, bottom = lower[..., second, first], lower[..., second, second]
    # P₂
    _write_congruence(bottom, symmetric[..., second, second], result[..., second, second])
    # P₂K, U and P₂₁
    product = product_of(result[..., second, second], corner)
    solved = solve_lower_transposed(bottom, symmetric[..., second, first])
    result[..., second, first] = _solve_from_right(lower[..., first, first], solved - product)
    result[..., first, second] = result[..., second, first].mT
    # WᵀK and P₁
    update = product_of(solved.sub_(product, alpha=0.5).mT, corner)
    rest = symmetric[..., first, first] - update - update.mT
    _write_congruence(lower[..., first, first], rest, result[..., first, first])


def lower_times(
    lower: Float[Tensor, "*batch m m"], x: Float[Tensor, "*batch m n"], lower_half: bool = False, spare: bool = False
) -> Float[Tensor, "*batch m n"]:
    """L X, or of a square X only what is on and below the diagonal; there may be zeros above it then.

    ``spare`` says that nobody needs X afterwards.
    """
    if blas_takes(lower, x):
        return _product_by_blas(lower, x, spare=spare)
    product = torch.zeros_like(x) if lower_half else torch.empty_like(x)
    for start, stop in _blocks(lower.shape[-1]):
        # (L X)_i = Σ_{j≤i} L_ij X_j
        columns = slice(0, stop) if lower_half else slice(None)
        write_product(lower[..., start:stop, :stop], x[..., :stop, columns], product[..., start:stop, columns])
    return product


def add_lower_times(
    total: Float[Tensor, "gps m n"],
    lower: Float[Tensor, "gps m m"],
    x: Float[Tensor, "gps m n"],
    alpha: float,
    beta: float = 1.0,
    lower_half: bool = False,
) -> None:
    """total ← β·total + α·L X; with a square X perhaps only on and below the diagonal, and without meaning above it."""
    if blas_takes(lower, x):
        total.mul_(beta).add_(_product_by_blas(lower, x), alpha=alpha)
        return
    for start, stop in _blocks(lower.shape[-1]):
        columns = slice(0, stop) if lower_half else slice(None)
        own = total[:, start:stop, columns]
        add_product(own, lower[:, start:stop, :stop], x[:, :stop, columns], alpha, beta)


def transposed_lower_times(
    lower: Float[Tensor, "*batch m m"], x: Float[Tensor, "*batch m n"], spare: bool = False
) -> Float[Tensor, "*batch m n"]:
    """Lᵀ X. ``spare`` says that nobody needs X afterwards."""
    if blas_takes(lower, x):
        return _product_by_blas(lower, x, transposed=True, spare=spare)
    product = torch.empty_like(x)
    for start, stop in _blocks(lower.shape[-1]):
        # (Lᵀ X)_i = Σ_{j≥i} L_jiᵀ X_j
        write_product(lower[..., start:, start:stop].mT, x[..., start:, :], product[..., start:stop, :])
    return product


def lower_half_of_product(
    x: Float[Tensor, "*batch m n"], y: Float[Tensor, "*batch m n"]
) -> Float[Tensor, "*batch m m"]:
    """The lower triangle of X Yᵀ."""
    return product_below_diagonal(x, y).tril_()


def loose_lower_times(
    lower: Float[Tensor, "*batch m m"], x: Float[Tensor, "*batch m n"], transposed: bool = False
) -> Float[Tensor, "*batch m n"]:
    """L X, or Lᵀ X, where L has anything above its diagonal."""
    triangle = lower if blas_takes(lower, x) else lower.tril()
    return transposed_lower_times(triangle, x) if transposed else lower_times(triangle, x)


def product_below_diagonal(
    x: Float[Tensor, "*batch m n"], y: Float[Tensor, "*batch m n"]
) -> Float[Tensor, "*batch m m"]:
    """X Yᵀ on and below the diagonal; what is above it has no meaning."""
    product = x.new_empty(*x.shape[:-1], x.shape[-2])
    for start, stop in _blocks(x.shape[-2]):
        write_product(x[..., start:stop, :], y[..., :stop, :].mT, product[..., start:stop, :stop])
    return product


def add_product_below_diagonal(total: Float[Tensor, "j m"], x: Float[Tensor, "j n"], y: Float[Tensor, "m n"]) -> None:
    """Add X Yᵀ, of which X may have more rows, to ``total`` on and below the diagonal; the rest has no meaning."""
    for start, stop in _blocks(x.shape[-2]):
        add_product(total[start:stop, :stop], x[start:stop], y[:stop].mT)


def mirror_below_diagonal(total: Float[Tensor, "gps j m"]) -> None:
    """Complete such sums of symmetric products: write above the diagonal, in place, what is below it."""
    size = total.shape[-1]
    for start, stop in _blocks(total.shape[-2]):
        first, own = slice(0, min(start, size)), slice(start, min(stop, size))
        total[:, first, own] = total[:, own, first].mT


def _product_by_blas(lower: Tensor, x: Tensor, transposed: bool = False, spare: bool = False) -> Tensor:
    """L X or Lᵀ X, several products by several threads."""
    product = x if spare and x.is_contiguous() else x.clone(memory_format=torch.contiguous_format)
    if product.dim() == 2:
        multiply_by_lower(lower, product, transposed)
        return product
    pairs = list(zip(lower.flatten(0, -3), product.flatten(0, -3), strict=True))
    share_out(lambda run: [multiply_by_lower(*pair, transposed) for pair in pairs[run]], len(pairs))
    return product


def _blocks(size: int) -> tuple[tuple[int, int], ...]:
    """Where blocks of rows start and stop."""
    return _cut(size, min(max(size // LEAST_ROWS, 1), MOST_BLOCKS))


@cache
def _cut(size: int, count: int) -> tuple[tuple[int, int], ...]:
    return tuple(pairwise(size * k // count for k in range(count + 1)))
