"""Two Gram matrices K = L Lᵀ and Q = J Jᵀ at the same points: whitened features of both, and the root T = L⁻¹J.

T is lower-triangular; T Tᵀ is what Q becomes where K is the identity. With A = L⁻¹K_zx and B = J⁻¹Q_zx, gradients Ā, B̄
and T̄, and ⟦X⟧ the symmetric matrix whose lower triangle is that of X,

    K̄_zx = L⁻ᵀĀ          K̄ = −½ L⁻ᵀ ⟦ĀAᵀ + T̄Tᵀ⟧ L⁻¹
    Q̄_zx = J⁻ᵀB̄          Q̄ = −½ J⁻ᵀ ⟦B̄Bᵀ − TᵀT̄⟧ J⁻¹.

So each matrix is factorised once, and no factor is ever differentiated. The other functions here are what is made of
these features: products with a triangle, sums of squares, and squares measured by the covariance that K leaves
unexplained.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from candid.linalg.autograd import first_order
from candid.linalg.cholesky import GROWTH, Factor, cholesky
from candid.linalg.products import product_of
from candid.linalg.triangular import (
    congruence,
    halves,
    loose_lower_times,
    lower_half_of_product,
    lower_times,
    product_below_diagonal,
    solve_lower,
    solve_lower_transposed,
    transposed_lower_times,
)

__all__ = [
    "WhitenedPair",
    "column_squares",
    "floors",
    "lower_product",
    "lower_times_columns",
    "residual_factor",
    "residual_squares",
    "transposed_lower_product",
    "whiten_pair",
]

# By how much rounding may falsify entries of a residual covariance of order one before it is no covariance any more.
LARGEST_ERROR = 0.1


@dataclass(frozen=True)
class WhitenedPair:
    """Features of two Gram matrices at the same points, and the second one's root as the first one sees it."""

    first: Float[Tensor, "*batch m n"]  # A = L⁻¹ K_zx
    second: Float[Tensor, "*batch m n"]  # B = J⁻¹ Q_zx
    root: Float[Tensor, "*batch m m"]  # T = L⁻¹ J, lower-triangular
    first_factor: Factor
    second_factor: Factor


def whiten_pair(
    gram: Float[Tensor, "*batch m m"],
    cross: Float[Tensor, "*batch m n"],
    jitter: float | Tensor,
    other_gram: Float[Tensor, "*batch m m"],
    other_cross: Float[Tensor, "*batch m n"],
    other_jitter: float | Tensor,
) -> WhitenedPair:
    """Whiten ``cross`` with the root of ``gram``, ``other_cross`` with that of ``other_gram``, and compare the roots.

    Each jitter is added before its matrix is factorised, and counts as a constant in the gradient.
    """
    factor, other = cholesky(gram.detach(), jitter), cholesky(other_gram.detach(), other_jitter)
    first, second, root = _WhitenPair.apply(gram, cross, other_gram, other_cross, factor.lower, other.lower)  # pyright: ignore[reportGeneralTypeIssues]
    return WhitenedPair(first, second, root, factor, other)


class _WhitenPair(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx, gram: Tensor, cross: Tensor, other_gram: Tensor, other_cross: Tensor, lower: Tensor, other: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        first, second, root = solve_lower(lower, cross), solve_lower(other, other_cross), _ratio(lower, other)
        ctx.save_for_backward(lower, other, first, second, root)
        return first, second, root

    @staticmethod
    @first_order
    def backward(ctx, grad_first: Tensor, grad_second: Tensor, grad_root: Tensor):  # pyright: ignore[reportIncompatibleMethodOverride]
        lower, other, first, second, root = ctx.saved_tensors
        needs_gram, needs_cross, needs_other_gram, needs_other_cross, _, _ = ctx.needs_input_grad
        gram_bar = other_gram_bar = None
        if needs_gram:
            # −½ L⁻ᵀ ⟦ĀAᵀ + T̄Tᵀ⟧ L⁻¹
            inner = product_below_diagonal(grad_first, first).add_(_times_transposed(grad_root, root))
            gram_bar = congruence(lower, inner).mul_(-0.5)
        if needs_other_gram:
            # −½ J⁻ᵀ ⟦B̄Bᵀ − TᵀT̄⟧ J⁻¹
            inner = product_below_diagonal(grad_second, second).sub_(_transposed_times(root, grad_root))
            other_gram_bar = congruence(other, inner).mul_(-0.5)
        return (
            gram_bar,
            solve_lower_transposed(lower, grad_first) if needs_cross else None,
            other_gram_bar,
            solve_lower_transposed(other, grad_second) if needs_other_cross else None,
            None,
            None,
        )


def _ratio(lower: Tensor, other: Tensor) -> Tensor:
    """L⁻¹J, a lower triangle again."""
    first, second = halves(lower.shape[-1])
    ratio = torch.zeros_like(other)
    ratio[..., first] = solve_lower(lower, other[..., first])
    ratio[..., second, second] = solve_lower(lower[..., second, second], other[..., second, second])
    return ratio


def lower_product(
    lower: Float[Tensor, "*batch m m"], other: Float[Tensor, "*batch m m"]
) -> Float[Tensor, "*batch m m"]:
    """L M for two lower-triangular matrices; there are zeros above the diagonal of L, and anything above that of M."""
    return _LowerProduct.apply(lower, other)  # pyright: ignore[reportReturnType]


class _LowerProduct(torch.autograd.Function):
    @staticmethod
    def forward(ctx, lower: Tensor, other: Tensor) -> Tensor:
        ctx.save_for_backward(lower, other)
        return _lower_times_lower(lower, other)

    @staticmethod
    @first_order
    def backward(ctx, grad: Tensor):  # pyright: ignore[reportIncompatibleMethodOverride]
        lower, other = ctx.saved_tensors
        # tril(P̄ Mᵀ) and tril(Lᵀ P̄)
        return (
            _times_transposed(grad, other).tril_() if ctx.needs_input_grad[0] else None,
            _transposed_times(lower, grad).tril_() if ctx.needs_input_grad[1] else None,
        )


def _lower_times_lower(lower: Tensor, other: Tensor) -> Tensor:
    """L M; what is above the diagonal of M is not read."""
    (first, second), other = halves(lower.shape[-1]), other.tril()
    product = torch.zeros_like(other)
    product[..., first] = lower_times(lower, other[..., first])
    product[..., second, second] = lower_times(lower[..., second, second], other[..., second, second])
    return product


def _times_transposed(x: Tensor, lower: Tensor) -> Tensor:
    """X Lᵀ on and below the diagonal, where nothing above the diagonals of X and L counts."""
    (first, second), lower = halves(lower.shape[-1]), lower.tril()
    product = product_below_diagonal(x[..., first], lower[..., first])
    product[..., second, second] += product_below_diagonal(x[..., second, second], lower[..., second, second])
    return product


def _transposed_times(lower: Tensor, x: Tensor) -> Tensor:
    """Lᵀ X on and below the diagonal, where nothing above the diagonal of X counts."""
    first, second = halves(lower.shape[-1])
    product = product_below_diagonal(lower[..., second, :].mT, x[..., second, :].mT)
    product[..., first, first] += product_below_diagonal(lower[..., first, first].mT, x[..., first, first].mT)
    return product


def lower_times_columns(
    lower: Float[Tensor, "*batch m m"], columns: Float[Tensor, "m j"]
) -> Float[Tensor, "*batch m j"]:
    """L X for a few columns, which are constants; what is above the diagonal of L is not read."""
    return _LowerTimesColumns.apply(lower, columns)  # pyright: ignore[reportReturnType]


class _LowerTimesColumns(torch.autograd.Function):
    @staticmethod
    def forward(ctx, lower: Tensor, columns: Tensor) -> Tensor:
        ctx.save_for_backward(columns)
        return loose_lower_times(lower, columns.expand(*lower.shape[:-1], -1))

    @staticmethod
    @first_order
    def backward(ctx, grad: Tensor):  # pyright: ignore[reportIncompatibleMethodOverride]
        (columns,) = ctx.saved_tensors
        # tril(P̄ Xᵀ)
        return product_of(grad, columns.mT).tril_(), None


def transposed_lower_product(
    lower: Float[Tensor, "*batch m m"], x: Float[Tensor, "*batch m n"]
) -> Float[Tensor, "*batch m n"]:
    """Lᵀ X for a lower-triangular L, which has nothing but zeros above its diagonal."""
    return _TransposedLowerProduct.apply(lower, x)  # pyright: ignore[reportReturnType]


class _TransposedLowerProduct(torch.autograd.Function):
    @staticmethod
    def forward(ctx, lower: Tensor, x: Tensor) -> Tensor:
        ctx.save_for_backward(lower, x)
        return transposed_lower_times(lower, x)

    @staticmethod
    @first_order
    def backward(ctx, grad: Tensor):  # pyright: ignore[reportIncompatibleMethodOverride]
        lower, x = ctx.saved_tensors
        # tril(X P̄ᵀ) and L P̄
        return (
            lower_half_of_product(x, grad) if ctx.needs_input_grad[0] else None,
            lower_times(lower, grad) if ctx.needs_input_grad[1] else None,
        )


def column_squares(x: Float[Tensor, "*batch m n"]) -> Float[Tensor, "*batch n"]:
    """Σ_i X_ij² for each column j."""
    return _ColumnSquares.apply(x)  # pyright: ignore[reportReturnType]


class _ColumnSquares(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x.square().sum(-2)

    @staticmethod
    @first_order
    def backward(ctx, grad: Tensor):  # pyright: ignore[reportIncompatibleMethodOverride]
        (x,) = ctx.saved_tensors
        return x * (2 * grad).unsqueeze(-2)


def residual_squares(
    gram: Float[Tensor, "*batch n n"],
    features: Float[Tensor, "*batch m n"],
    weights: Float[Tensor, "*batch m j"],
    vectors: Float[Tensor, "*batch j n"],
    floor: float,
) -> Float[Tensor, "*batch"]:
    """tr V C⁻¹ Vᵀ, where V = vectors − WᵀA is what the features A, with some weights, leave of ``vectors``, and
    C = gram − AᵀA + floor·I what they leave of a covariance.

    With Y = V C⁻¹ and a gradient g of the result,

        vectors̄ = 2g Y          W̄ = −2g AYᵀ          Ā = 2g (AYᵀ − W)Y          gram̄ = −g YᵀY.

    C is factorised in float64: it is nearly singular wherever the features leave little, and then the result depends on
    the ``floor``. All else is in the precision of the arguments. Rounding has the same size in A and ``gram`` as in
    their products, so that more digits of these would have no meaning; and for a covariance of order one the condition
    number of its factor is at most 1/√floor. Where rounding makes C indefinite, the floor is raised: errors that all
    entries have in common make an eigenvalue n times as large as they are.
    """
    return _ResidualSquares.apply(gram, features, weights, vectors, floor)  # pyright: ignore[reportReturnType]


def residual_factor(gram: Float[Tensor, "*batch n n"], features: Float[Tensor, "*batch m n"], floor: float) -> Factor:
    """Of C = gram − AᵀA + floor·I, in float64; of ``gram`` only the lower triangle is read."""
    residual = (gram - lower_half_of_product(features.mT, features.mT)).double()
    return cholesky(residual, floor, scale=1.0, largest=LARGEST_ERROR * residual.shape[-1])


def floors(floor: float, n: int) -> Iterator[float]:
    """Those that :func:`residual_factor` tries for a matrix of that size."""
    yield floor
    while (floor := max(GROWTH * floor, 10 * torch.finfo(torch.float64).eps)) <= LARGEST_ERROR * n:
        yield floor


class _ResidualSquares(torch.autograd.Function):
    @staticmethod
    def forward(ctx, gram: Tensor, features: Tensor, weights: Tensor, vectors: Tensor, floor: float) -> Tensor:
        lower = residual_factor(gram, features, floor).lower.to(features.dtype)
        # V L⁻ᵀ
        whitened = solve_lower(lower, (vectors - product_of(weights.mT, features)).mT).mT
        ctx.save_for_backward(lower, whitened, features, weights)
        return whitened.square().sum((-2, -1))

    @staticmethod
    @first_order
    def backward(ctx, grad: Tensor):  # pyright: ignore[reportIncompatibleMethodOverride]
        lower, whitened, features, weights = ctx.saved_tensors
        needs_gram, needs_features, needs_weights, _, _ = ctx.needs_input_grad
        gram_bar = features_bar = weights_bar = None
        grad = 2 * grad[..., None, None]
        # Y = V L⁻ᵀ L⁻¹, and 2g Y
        solved = solve_lower_transposed(lower, whitened.mT).mT
        weighted = grad * solved
        if needs_features or needs_weights:
            # AYᵀ
            product = product_of(features, solved.mT)
            weights_bar = -grad * product
            features_bar = product_of(product - weights, weighted)
        if needs_gram:
            # −g YᵀY is symmetric: what is below the diagonal twice, and nothing above it
            gram_bar = lower_half_of_product(-weighted.mT, solved.mT)
            gram_bar.diagonal(dim1=-2, dim2=-1).mul_(0.5)
        return gram_bar, features_bar, weights_bar, weighted, None
