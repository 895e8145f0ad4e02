"""Two Gram matrices K = L Lᵀ and Q = J Jᵀ at the same points: whitened features of both, and the root T = L⁻¹J.

T is lower-triangular; T Tᵀ is what Q becomes where K is the identity. With A = L⁻¹K_zx and B = J⁻¹Q_zx, gradients Ā, B̄
and T̄, and ⟦X⟧ the symmetric matrix whose lower triangle is that of X,

    K̄_zx = L⁻ᵀĀ          K̄ = −½ L⁻ᵀ ⟦ĀAᵀ + T̄Tᵀ⟧ L⁻¹
    Q̄_zx = J⁻ᵀB̄          Q̄ = −½ J⁻ᵀ ⟦B̄Bᵀ − TᵀT̄⟧ J⁻¹.

So each matrix is factorised once, and no factor is ever differentiated. The other functions here are what is made of
these features: products with a triangle, and squares measured by the covariance that K leaves unexplained.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce

import torch
from jaxtyping import Float
from torch import Tensor

from candid.linalg.autograd import first_order
from candid.linalg.cholesky import Factor, cholesky
from candid.linalg.triangular import (
    congruence,
    lower_half_of_product,
    lower_times,
    solve_lower,
    solve_lower_transposed,
    transposed_lower_times,
)

__all__ = ["WhitenedPair", "lower_product", "residual_squares", "transposed_lower_product", "whiten_pair"]


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
        ctx.set_materialize_grads(False)
        first, second, root = solve_lower(lower, cross), solve_lower(other, other_cross), solve_lower(lower, other)
        ctx.save_for_backward(lower, other, first, second, root)
        return first, second, root

    @staticmethod
    @first_order
    def backward(ctx, grad_first: Tensor | None, grad_second: Tensor | None, grad_root: Tensor | None):
        lower, other, first, second, root = ctx.saved_tensors
        needs_gram, needs_cross, needs_other_gram, needs_other_cross, _, _ = ctx.needs_input_grad
        # Tᵀ and −T̄ᵀ, whose product has the lower triangle of −TᵀT̄
        turned = (root.mT, None if grad_root is None else -grad_root.mT)
        return (
            _gram_gradient(lower, (grad_first, first), (grad_root, root)) if needs_gram else None,
            _cross_gradient(lower, grad_first) if needs_cross else None,
            _gram_gradient(other, (grad_second, second), turned) if needs_other_gram else None,
            _cross_gradient(other, grad_second) if needs_other_cross else None,
            None,
            None,
        )


def _gram_gradient(lower: Tensor, *products: tuple[Tensor | None, Tensor | None]) -> Tensor | None:
    """−½ L⁻ᵀ ⟦Σ X Yᵀ⟧ L⁻¹ over the pairs X, Y of which no part is missing."""
    halves = [lower_half_of_product(x, y) for x, y in products if x is not None and y is not None]
    return congruence(lower, reduce(torch.add, halves)).mul_(-0.5) if halves else None


def _cross_gradient(lower: Tensor, grad_features: Tensor | None) -> Tensor | None:
    return None if grad_features is None else solve_lower_transposed(lower, grad_features)


def lower_product(lower: Float[Tensor, "*batch m m"], x: Float[Tensor, "*batch m n"]) -> Float[Tensor, "*batch m n"]:
    """L X for a lower-triangular L, of which nothing else may be above the diagonal than zeros."""
    return _LowerProduct.apply(lower, x)  # pyright: ignore[reportReturnType]


class _LowerProduct(torch.autograd.Function):
    @staticmethod
    def forward(ctx, lower: Tensor, x: Tensor) -> Tensor:
        ctx.save_for_backward(lower, x)
        return lower_times(lower, x)

    @staticmethod
    @first_order
    def backward(ctx, grad: Tensor):  # pyright: ignore[reportIncompatibleMethodOverride]
        lower, x = ctx.saved_tensors
        # tril(P̄ Xᵀ) and Lᵀ P̄
        return (
            lower_half_of_product(grad, x) if ctx.needs_input_grad[0] else None,
            transposed_lower_times(lower, grad) if ctx.needs_input_grad[1] else None,
        )


def transposed_lower_product(
    lower: Float[Tensor, "*batch m m"], x: Float[Tensor, "*batch m n"]
) -> Float[Tensor, "*batch m n"]:
    """Lᵀ X for the same L."""
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


def residual_squares(
    gram: Float[Tensor, "*batch n n"],
    features: Float[Tensor, "*batch m n"],
    vectors: Float[Tensor, "*batch j n"],
    floor: float,
) -> Float[Tensor, "*batch"]:
    """Σ_j v_jᵀ C⁻¹ v_j for the rows v_j of ``vectors``, where C = gram − AᵀA + floor·I, in float64.

    C is what the features A leave of a covariance. It is nearly singular wherever they leave little, so the result
    depends on the ``floor``. With V the columns v_j, Y = C⁻¹V and a gradient g of the sum,

        V̄ = 2g Y          gram̄ = −g YYᵀ          Ā = 2g (AY)Yᵀ.
    """
    return _ResidualSquares.apply(gram, features, vectors, floor)  # pyright: ignore[reportReturnType]


class _ResidualSquares(torch.autograd.Function):
    @staticmethod
    def forward(ctx, gram: Tensor, features: Tensor, vectors: Tensor, floor: float) -> Tensor:
        ctx.dtype, features = vectors.dtype, features.double()
        # C = gram − AᵀA + floor·I, of which only the lower triangle is read
        residual = gram.double() - lower_half_of_product(features.mT, features.mT)
        residual.diagonal(dim1=-2, dim2=-1).add_(floor)
        lower = cholesky(residual).lower
        whitened = solve_lower(lower, vectors.double().mT)
        ctx.save_for_backward(lower, whitened, features)
        return whitened.square().sum((-2, -1)).to(ctx.dtype)

    @staticmethod
    @first_order
    def backward(ctx, grad: Tensor):  # pyright: ignore[reportIncompatibleMethodOverride]
        lower, whitened, features = ctx.saved_tensors
        grad = grad.double()[..., None, None]
        gram_bar = features_bar = vectors_bar = None
        # Y = L⁻ᵀ L⁻¹V
        solved = solve_lower_transposed(lower, whitened)
        weighted = grad * solved
        if ctx.needs_input_grad[0]:
            # −g YYᵀ
            gram_bar = (-weighted @ solved.mT).to(ctx.dtype)
        if ctx.needs_input_grad[1]:
            # 2g (AY)Yᵀ
            features_bar = (2 * (features @ solved) @ weighted.mT).to(ctx.dtype)
        if ctx.needs_input_grad[2]:
            # 2g Yᵀ
            vectors_bar = (2 * weighted.mT).to(ctx.dtype)
        return gram_bar, features_bar, vectors_bar, None
