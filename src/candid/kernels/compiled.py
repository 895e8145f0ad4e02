"""Stationary kernels that machine code knows."""

from __future__ import annotations

from candid.kernels.stationary import RBF, Matern12, Matern32, Matern52
from candid.linalg import CompiledProfile

__all__ = ["COMPILED"]

#: By profile; the numbers are those of :mod:`candid.linalg.row_kernels`.
COMPILED = {
    kernel.profile: CompiledProfile(number, kernel.profile.stretch, kernel.profile.slope)
    for number, kernel in enumerate((RBF, Matern12, Matern32, Matern52))
}
