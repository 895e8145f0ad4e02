"""Moments of aᵀv for v ~ N(m, S) and each column a of A, with gradients written by hand.

With S = R Rᵀ, T = RᵀA, sums of squares over columns, and h, e, s the gradients of the three results,

    mean = Aᵀm          explained = Σ A²          spread = Σ T²

    m̄ = A h             Ā = m hᵀ + 2A diag(e) + R W             R̄ = A Wᵀ,             W = 2T diag(s)

R is lower-triangular, and then so is R̄; or diagonal; or there is none, where v is a point.
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
        A lower-triangular R (…, M, M), the diagonal of a diagonal one (…, M), or None for S = 0.
    """
    if features.shape[:-1] != mean.shape:
        raise ValueError(f"features {tuple(features.shape)} and a mean {tuple(mean.shape)} are not of the same batch")
    return _Project.apply(features, mean, root)  # pyright: ignore[reportReturnType]


class _Project(torch.autograd.Function):
    @staticmethod
    def forward(ctx, features: Tensor, mean: Tensor, root: Tensor | None):
        ctx.set_materialize_grads(False)
        latent = (mean.unsqueeze(-2) @ features).squeeze(-2)
        explained = features.square().sum(-2)
        rotated = None if root is None else _transposed_times(root, features)
        spread = torch.zeros_like(explained) if rotated is None else rotated.square().sum(-2)
        ctx.save_for_backward(features, mean, root, rotated)
        return latent, explained, spread

    @staticmethod
    @first_order
    def backward(ctx, grad_mean: Tensor | None, grad_explained: Tensor | None, grad_spread: Tensor | None):
        features, mean, root, rotated = ctx.saved_tensors
        needs_features, needs_mean, needs_root = ctx.needs_input_grad
        features_bar = mean_bar = root_bar = None
        if root is not None and grad_spread is not None:
            # W = 2T diag(s)
            weighted = rotated * (2 * grad_spread).unsqueeze(-2)
            if needs_root:
                root_bar = _gradient_of_root(root, features, weighted)
            if needs_features:
                features_bar = _times(root, weighted)
        if grad_explained is not None and needs_features:
            features_bar = _add_product(features_bar, features, (2 * grad_explained).unsqueeze(-2))
        if grad_mean is not None:
            if needs_features:
                features_bar = _add_product(features_bar, mean.unsqueeze(-1), grad_mean.unsqueeze(-2))
            if needs_mean:
                mean_bar = (features @ grad_mean.unsqueeze(-1)).squeeze(-1)
        return features_bar, mean_bar, root_bar


def _is_diagonal(root: Tensor, x: Tensor) -> bool:
    return root.dim() < x.dim()


def _times(root: Tensor, x: Tensor) -> Tensor:
    """R X."""
    return root.unsqueeze(-1) * x if _is_diagonal(root, x) else lower_times(root, x)


def _transposed_times(root: Tensor, x: Tensor) -> Tensor:
    """RᵀX."""
    return root.unsqueeze(-1) * x if _is_diagonal(root, x) else transposed_lower_times(root, x)


def _gradient_of_root(root: Tensor, features: Tensor, weighted: Tensor) -> Tensor:
    """What R has of A Wᵀ: its diagonal or its lower triangle."""
    return (features * weighted).sum(-1) if _is_diagonal(root, features) else lower_half_of_product(features, weighted)


def _add_product(total: Tensor | None, left: Tensor, right: Tensor) -> Tensor:
    return left * right if total is None else total.addcmul_(left, right)
