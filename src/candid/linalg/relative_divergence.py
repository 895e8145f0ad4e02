"""KL divergence of q(u) = N(J m, J R Rᵀ Jᵀ) from N(0, L Lᵀ), with its gradients in closed form.

L and J are factors of Gram matrices K and Q at the same points. With T = L⁻¹J, that is the divergence of N(m', R'R'ᵀ)
from the standard normal distribution, where m' = T m and R' = T R. With P = TᵀR', of all of which only what is on and
below the diagonal counts,

    m̄ = Tᵀm'        R̄ = P − diag(1/R_ii)        Ψ̄ = I − R'R'ᵀ − m'm'ᵀ        Ψ̄' = P Rᵀ + m̄ mᵀ − I,

where Ψ = L⁻¹K L⁻ᵀ and Ψ' = J⁻¹Q J⁻ᵀ stand for the two matrices: K̄ = ½ L⁻ᵀ ⟦Ψ̄⟧ L⁻¹, where ⟦⟧ is the symmetric matrix
with that lower triangle, and the like for Q̄. Where R = 0, −log N(m; 0, (TᵀT)⁻¹) takes the place of the divergence; its
gradients are the same without the terms of R.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from candid.linalg.autograd import first_order
from candid.linalg.crew import crew_size, share_out
from candid.linalg.divergence import divergence_from_standard
from candid.linalg.stationary_conditional import machine_code_takes
from candid.linalg.triangular import lower_times, product_below_diagonal, transposed_lower_times

__all__ = ["relative_divergence"]


def relative_divergence(
    whitener: Float[Tensor, "*batch m m"],
    other: Float[Tensor, "*batch m m"],
    frame: Float[Tensor, "*batch m m"],
    other_frame: Float[Tensor, "*batch m m"],
    mean: Float[Tensor, "*batch m"],
    root: Float[Tensor, "*batch m m"] | None,
) -> Float[Tensor, "*batch"]:
    """The divergence from L⁻¹ and J, as a function of Ψ, Ψ', m and R.

    Above the diagonals, L⁻¹ is zero and nothing else is read.
    """
    given = (whitener, other, frame, other_frame, mean, root)
    return _RelativeDivergence.apply(*given)  # pyright: ignore[reportReturnType]


class _Gradients(NamedTuple):
    frame: Tensor
    other_frame: Tensor
    root: Tensor | None


class _RelativeDivergence(torch.autograd.Function):
    @staticmethod
    def forward(ctx, whitener, other, frame, other_frame, mean, root):
        given = [None if part is None else part.detach() for part in (whitener, other, root)]
        by_machine = crew_size() > 0 and all(part is not None and machine_code_takes(part) for part in given)
        ctx.turn = (_MachineTurn if by_machine else _TorchTurn)(*given)  # pyright: ignore[reportArgumentType]
        turned = ctx.turn.forth(mean.detach())
        # The root only to notice if somebody has changed it.
        ctx.save_for_backward(mean, root, turned)
        if (turned_root := ctx.turn.root) is not None:
            return divergence_from_standard(turned, turned_root)
        # T_ii = J_ii / L_ii
        log_det = sum(_diagonal(part).log().sum(-1) for part in (whitener, other))
        return 0.5 * (turned.square().sum(-1) + mean.shape[-1] * math.log(2 * math.pi)) - log_det

    @staticmethod
    @first_order
    def backward(ctx, grad: Tensor):  # pyright: ignore[reportIncompatibleMethodOverride]
        mean, _, turned = ctx.saved_tensors
        mean_bar = ctx.turn.back(turned)
        of_frame, of_other_frame, of_root = ctx.turn.gradients(grad, mean.detach(), turned, mean_bar)
        return None, None, of_frame, of_other_frame, grad.unsqueeze(-1) * mean_bar, of_root


class _TorchTurn:
    """T = L⁻¹J for vectors, and R' = T R."""

    def __init__(self, whitener: Tensor, other: Tensor, root: Tensor | None) -> None:
        self._triangle = lower_times(whitener, other.tril(), lower_half=True)
        self._given = None if root is None else root.tril()
        self.root = None if self._given is None else lower_times(self._triangle, self._given, lower_half=True)

    def forth(self, vector: Tensor) -> Tensor:
        """T v."""
        return (self._triangle @ vector.unsqueeze(-1)).squeeze(-1)

    def back(self, vector: Tensor) -> Tensor:
        """Tᵀv."""
        return (vector.unsqueeze(-2) @ self._triangle).squeeze(-2)

    def gradients(self, grad: Tensor, mean: Tensor, turned: Tensor, mean_bar: Tensor) -> _Gradients:
        """Those of frames and root, where m' is ``turned``."""
        grad, one = grad[..., None, None], torch.eye(mean.shape[-1]).to(mean)
        of_frame = one - turned.unsqueeze(-1) * turned.unsqueeze(-2)
        of_other = mean_bar.unsqueeze(-1) * mean.unsqueeze(-2) - one
        if self.root is None or self._given is None:
            return _Gradients(grad * of_frame, grad * of_other, None)
        product = transposed_lower_times(self._triangle, self.root).tril_()
        of_frame -= product_below_diagonal(self.root, self.root)
        of_other += product_below_diagonal(product, self._given)
        product = product.clone()
        _diagonal(product).sub_(_diagonal(self._given).reciprocal())
        return _Gradients(grad * of_frame, grad * of_other, grad * product)


class _MachineTurn:
    """The same by machine code, for a crew: its members take some of the columns each, of L⁻¹(J R) rather than T R."""

    def __init__(self, whitener: Tensor, other: Tensor, root: Tensor) -> None:
        from candid.linalg.relative_kernels import turn_root

        self._parts = tuple(part.reshape(-1, *part.shape[-2:]).contiguous() for part in (whitener, other, root))
        self._shape, turned = root.shape, torch.empty_like(self._parts[-1])
        _share_out_columns(turn_root, *self._parts, turned)
        self.root, self._turned = turned.view(root.shape), turned

    def forth(self, vector: Tensor) -> Tensor:
        from candid.linalg.relative_kernels import turn_vectors

        return self._with_vectors(turn_vectors, vector)

    def back(self, vector: Tensor) -> Tensor:
        from candid.linalg.relative_kernels import turn_vectors_back

        return self._with_vectors(turn_vectors_back, vector)

    def _with_vectors(self, work: Callable[..., None], vector: Tensor) -> Tensor:
        whitener, other, _ = self._parts
        vectors = vector.reshape(len(whitener), -1)
        result = torch.empty_like(vectors)
        work(*(values.numpy() for values in (whitener, other, vectors, result)))
        return result.view(vector.shape)

    def gradients(self, grad: Tensor, mean: Tensor, turned: Tensor, mean_bar: Tensor) -> _Gradients:
        from candid.linalg.relative_kernels import pull_back_root, pull_back_turn

        product, of_frame, of_other, of_root = (torch.empty_like(self._turned) for _ in range(4))
        size = mean.shape[-1]
        grad, mean, turned, mean_bar = grad.reshape(-1), *(v.reshape(-1, size) for v in (mean, turned, mean_bar))
        _share_out_columns(pull_back_turn, *self._parts, self._turned, turned, grad, product, of_frame, of_root)
        _share_out_columns(pull_back_root, product, self._parts[-1], mean, mean_bar, grad, of_other)
        return _Gradients(*(part.view(self._shape) for part in (of_frame, of_other, of_root)))


def _share_out_columns(work: Callable[..., None], *parts: Tensor) -> None:
    """``work`` for the matrices, vectors and numbers of each GP; members of a crew take some of their columns each."""
    members = crew_size()
    for own in zip(*(part.numpy() for part in parts), strict=True):
        share_out(lambda run, own=own: work(*own, run.start, members), members)


def _diagonal(matrix: Tensor) -> Tensor:
    return matrix.diagonal(dim1=-2, dim2=-1)
