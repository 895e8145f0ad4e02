"""Predictions for one row at a time, as a service makes them, by machine code.

Starting a dozen operations takes longer than computing with a single row. Here they are one, and what depends on the
points alone is prepared.
"""

from __future__ import annotations

import math

from torch import Tensor
from torch.nn.functional import pad

from candid.families.squares import SignedSquares
from candid.kernels import Kernel, Stationary
from candid.kernels.compiled import COMPILED
from candid.kernels.stationary import known_lengthscale
from candid.linalg import machine_code_takes

__all__ = ["OneRow"]


# Loading machine code takes a second. Who asks for a few rows does not need it.
PATIENCE = 100


class OneRow:
    """kᵀc and 1 − Σ_j sign_j (G k)_j² of a row, of one GP with a stationary kernel of unit amplitude."""

    def __init__(self, kernel: Stationary, points: Tensor, coefficients: Tensor, explained: SignedSquares) -> None:
        profile, (points, matrix) = COMPILED[kernel.profile], (_only(points), _only(explained.matrix))
        self._profile, self._offset, self._dtype = profile.number, explained.offset, points.dtype
        centre, rate = points.mean(0), math.sqrt(profile.stretch) / known_lengthscale(kernel).reshape(-1)
        self._shape, self._rows_left = (1, len(centre)), PATIENCE
        columns = pad(((points - centre) * rate).mT, (0, 0, 0, -len(centre) % 4))
        parts = centre, rate.expand_as(centre), columns, coefficients.reshape(-1), matrix, explained.signs.reshape(-1)
        self._parts = [part.detach().contiguous().numpy() for part in parts]

    @staticmethod
    def of_basis(kernel: Kernel, points: Tensor, coefficients: Tensor, explained: SignedSquares) -> OneRow | None:
        """That of a predictor with this basis, if there is one GP and machine code for it."""
        one_gp = points.numel() > 0 and math.prod((*points.shape[:-2], *coefficients.shape[:-1])) == 1
        if one_gp and isinstance(kernel, Stationary) and kernel.profile in COMPILED and machine_code_takes(points):
            return OneRow(kernel, points, coefficients, explained)
        return None

    def takes(self, x: Tensor) -> bool:
        """Whether this is a single row after many others, and nothing is to be learned from it."""
        if x.shape != self._shape or x.dtype != self._dtype or not machine_code_takes(x):
            return False
        self._rows_left -= 1
        return self._rows_left < 0

    def __call__(self, x: Tensor, mean_only: bool) -> Tensor:
        """Both numbers, or the first one."""
        from candid.linalg.basis_kernels import row_moments

        results = x.new_empty(1 if mean_only else 2)
        row_moments(self._profile, x.numpy()[0], *self._parts, self._offset, results.numpy())
        return results


def _only(matrices: Tensor) -> Tensor:
    """The matrix of a batch of one."""
    return matrices.reshape(matrices.shape[-2:])
