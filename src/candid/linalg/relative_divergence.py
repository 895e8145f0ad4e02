"""KL divergence of q(u) = N(J m, J R Rᵀ Jᵀ) from N(0, L Lᵀ) and its gradients in closed form, for members of a crew.

L and J are factors of Gram matrices K and Q at the same points. With T = L⁻¹J, that is the divergence of N(m', R'R'ᵀ)
from the standard normal distribution, where m' = T m and R' = T R. With P = TᵀR', of all of which only what is on and
below the diagonal counts,

    m̄ = Tᵀm'        R̄ = P − diag(1/R_ii)        Ψ̄ = I − R'R'ᵀ − m'm'ᵀ        Ψ̄' = R̄ Rᵀ + m̄ mᵀ,

where Ψ = L⁻¹K L⁻ᵀ and Ψ' = J⁻¹Q J⁻ᵀ stand for the two matrices: K̄ = ½ L⁻ᵀ ⟦Ψ̄⟧ L⁻¹, where ⟦⟧ is the symmetric matrix
with that lower triangle, and the like for Q̄. Where R = 0, −log N(m; 0, (TᵀT)⁻¹) takes the place of the divergence, with
Ψ̄ = I − m'm'ᵀ and Ψ̄' = m̄ mᵀ − I.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from candid.linalg.crew import meanwhile
from candid.linalg.divergence import divergence_from_standard

__all__ = ["Gradients", "RelativeDivergence"]


class Gradients(NamedTuple):
    """Below diagonals; that of R, if there is one, is zero above."""

    frame: Float[Tensor, "gp m m"]  # Ψ̄
    other_frame: Float[Tensor, "gp m m"]  # Ψ̄'
    mean: Float[Tensor, "gp m"]
    root: Float[Tensor, "gp m m"] | None


class RelativeDivergence:
    """The divergence for each GP, step by step; columns of R' are L⁻¹(J R) rather than T R.

    What is above the diagonals of J and R is not read. All members do their shares of :meth:`turn` before the
    :meth:`value` is asked for. After :meth:`begin` somebody is at work on the gradients of the first GP; members do
    their shares of :meth:`pull_back_turn`, and then of :meth:`pull_back_root`, for all others. Whoever wants the
    :attr:`gradients` waits for both.
    """

    def __init__(
        self,
        whitener: Float[Tensor, "gp m m"],
        other: Float[Tensor, "gp m m"],
        mean: Float[Tensor, "gp m"],
        root: Float[Tensor, "gp m m"] | None,
    ) -> None:
        # By rows, whoever has factorised.
        self._whitener, self._other, self._mean = whitener.contiguous(), other.contiguous(), mean
        self._root = None if root is None else root.contiguous()
        self._turned_root = None if root is None else torch.empty_like(self._root)  # pyright: ignore[reportArgumentType]
        self._turned, self._mean_bar = torch.empty_like(mean), torch.empty_like(mean)

    def turn(self, member: int, members: int) -> None:
        """R', and m' and m̄, which are the first member's."""
        from candid.linalg.relative_kernels import turn_root, turn_vectors, turn_vectors_back

        if member == 0:
            turn_vectors(*(part.numpy() for part in (self._whitener, self._other, self._mean, self._turned)))
            turn_vectors_back(*(part.numpy() for part in (self._whitener, self._other, self._turned, self._mean_bar)))
        if self._root is not None and self._turned_root is not None:
            _for_columns(turn_root, member, members, self._whitener, self._other, self._root, self._turned_root)

    def value(self) -> Float[Tensor, " gp"]:
        """The divergence."""
        if self._turned_root is not None:
            return divergence_from_standard(self._turned, self._turned_root)
        # T_ii = J_ii / L_ii
        log_det = sum(part.diagonal(dim1=-2, dim2=-1).log().sum(-1) for part in (self._whitener, self._other))
        return 0.5 * (self._turned.square().sum(-1) + self._mean.shape[-1] * math.log(2 * math.pi)) - log_det

    def begin(self) -> Callable[[], None]:
        """Gradients; what is returned waits for the first GP's."""
        self._of_frame, self._of_other = (torch.empty_like(self._whitener) for _ in range(2))
        self._of_root = None if self._root is None else torch.empty_like(self._root)
        return meanwhile(self._begin)

    def _begin(self) -> None:
        if self._root is None:
            one = torch.eye(self._mean.shape[-1]).to(self._mean)
            torch.sub(one, _outer(self._turned, self._turned), out=self._of_frame)
            torch.sub(_outer(self._mean_bar, self._mean), one, out=self._of_other)
        self._pull_back_turn(slice(0, 1), 0, 1)
        self._pull_back_root(slice(0, 1), 0, 1)

    def pull_back_turn(self, member: int, members: int) -> None:
        """Ψ̄ and R̄."""
        self._pull_back_turn(slice(1, None), member, members)

    def _pull_back_turn(self, gps: slice, member: int, members: int) -> None:
        from candid.linalg.relative_kernels import pull_back_turn

        if self._root is not None and self._turned_root is not None and self._of_root is not None:
            given = self._whitener, self._other, self._root, self._turned_root, self._turned
            results = self._of_frame, self._of_root
            _for_columns(pull_back_turn, member, members, *(part[gps] for part in (*given, *results)))

    def pull_back_root(self, member: int, members: int) -> None:
        """Ψ̄'."""
        self._pull_back_root(slice(1, None), member, members)

    def _pull_back_root(self, gps: slice, member: int, members: int) -> None:
        from candid.linalg.relative_kernels import pull_back_root

        if self._root is not None and self._of_root is not None:
            given = self._of_root, self._root, self._mean, self._mean_bar, self._of_other
            _for_columns(pull_back_root, member, members, *(part[gps] for part in given))

    @property
    def gradients(self) -> Gradients:
        """All of them."""
        return Gradients(self._of_frame, self._of_other, self._mean_bar, self._of_root)


def _for_columns(work: Callable[..., None], member: int, members: int, *parts: Tensor) -> None:
    """``work`` with the matrices, vectors and numbers of each GP, for a member's columns."""
    for own in zip(*(part.numpy() for part in parts), strict=True):
        work(*own, member, members)


def _outer(x: Tensor, y: Tensor) -> Tensor:
    return x.unsqueeze(-1) * y.unsqueeze(-2)
