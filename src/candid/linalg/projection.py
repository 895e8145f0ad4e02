"""Moments of aᵀv for v ~ N(m, S) and each column a of A, with gradients written by hand.

With S = R Rᵀ, T = RᵀA, sums of squares over columns, and h, e, s the gradients of the three results,

    mean = Aᵀm          explained = Σ A²          spread = Σ T²

    m̄ = A h             Ā = m hᵀ + 2A diag(e) + R W             R̄ = A Wᵀ,             W = 2T diag(s)

R is lower-triangular, and then so is R̄; or diagonal; or there is none, where v is a point. With R = diag(r), T is not
needed: spread = Σ r²A², R W = 2A∘(r²sᵀ), and R̄ has the diagonal 2r∘(A²s).
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from candid.linalg.autograd import first_order
from candid.linalg.triangular import lower_half_of_product, lower_times, transposed_lower_times

__all__ = ["project"]


def project(
    features: Float[Tensor, "*batch m n"], mean: Float[Tensor, "*batch m"], root: Tensor | None
) -> tuple[Float[Tensor, "*batch n"], Float[Tensor, "*batch n"], Float[Tensor, "*batch n"]]:
    """Mean aᵀm, explained variance aᵀa and spread aᵀSa for each column a of ``features``.

    Parameters
    ----------
    features, mean : Tensor
    root : Tensor, optional
        A lower-triangular R (…, M, M), of which nothing above the diagonal is read; the diagonal of a diagonal one
        (…, M); or None for S = 0.
    """
    if features.shape[:-1] != mean.shape:
        raise ValueError(f"features {tuple(features.shape)} and a mean {tuple(mean.shape)} are not of the same batch")
    return _Project.apply(features, mean, root)  # pyright: ignore[reportReturnType]


class _Project(torch.autograd.Function):
    @staticmethod
    def forward(ctx, features: Tensor, mean: Tensor, root: Tensor | None):
        ctx.set_materialize_grads(False)
        latent = (mean.unsqueeze(-2) @ features).squeeze(-2)
        squares = features.square()
        explained = squares.sum(-2)
        if root is None:
            inner, spread = None, torch.zeros_like(explained)
        elif _is_diagonal(root, features):
            inner, spread = squares, (root.square().unsqueeze(-2) @ squares).squeeze(-2)
        else:
            root = root.tril()
            inner = transposed_lower_times(root, features)
            spread = torch.mul(inner, inner, out=squares).sum(-2)
        ctx.save_for_backward(features, mean, root, inner)
        return latent, explained, spread

    @staticmethod
    @first_order
    def backward(ctx, grad_mean: Tensor | None, grad_explained: Tensor | None, grad_spread: Tensor | None):
        features, mean, root, inner = ctx.saved_tensors
        needs_features, needs_mean, needs_root = ctx.needs_input_grad
        features_bar = mean_bar = root_bar = None
        if root is not None and grad_spread is not None:
            pull_back = _from_diagonal if _is_diagonal(root, features) else _from_triangle
            features_bar, root_bar = pull_back(root, features, inner, 2 * grad_spread, needs_features, needs_root)
        if grad_explained is not None and needs_features:
            features_bar = _add_product(features_bar, features, (2 * grad_explained).unsqueeze(-2))
        if grad_mean is not None:
            if needs_features:
                features_bar = _add_product(features_bar, mean.unsqueeze(-1), grad_mean.unsqueeze(-2))
            if needs_mean:
                # A h: a batch of thin matrices is multiplied fastest as long rows
                mean_bar = (grad_mean.unsqueeze(-2) @ features.mT).squeeze(-2)
        return features_bar, mean_bar, root_bar


def _is_diagonal(root: Tensor, features: Tensor) -> bool:
    return root.dim() < features.dim()


def _from_triangle(
    root: Tensor, features: Tensor, rotated: Tensor, twice_spread: Tensor, needs_features: bool, needs_root: bool
) -> tuple[Tensor | None, Tensor | None]:
    """R W and the lower triangle of A Wᵀ, from T and 2s."""
    weighted = rotated * twice_spread.unsqueeze(-2)
    return (
        lower_times(root, weighted) if needs_features else None,
        lower_half_of_product(features, weighted) if needs_root else None,
    )


def _from_diagonal(
    root: Tensor, features: Tensor, squares: Tensor, twice_spread: Tensor, needs_features: bool, needs_root: bool
) -> tuple[Tensor | None, Tensor | None]:
    """R W = A∘(r² 2sᵀ) and the diagonal r∘(A² 2s) of A Wᵀ, from A² and 2s."""
    return (
        (root.square().unsqueeze(-1) * twice_spread.unsqueeze(-2)).mul_(features) if needs_features else None,
        root * (twice_spread.unsqueeze(-2) @ squares.mT).squeeze(-2) if needs_root else None,
    )


def _add_product(total: Tensor | None, left: Tensor, right: Tensor) -> Tensor:
    return left * right if total is None else total.addcmul_(left, right)
