"""Cholesky factors that all members of a crew work on, and rows that are measured by such a matrix.

The factor of C = L Lᵀ is found block by block of columns: with the square D Dᵀ on the diagonal, once the columns
before it are done with, rows X below become X D⁻ᵀ. Rows V that are written behind those of C become V L⁻ᵀ by the
same steps, and V C⁻¹ is that times L⁻¹. Members meet once for each block, because everybody factorises its square.
"""

from __future__ import annotations

from functools import cache

import torch
from jaxtyping import Float
from torch import Tensor

from candid.linalg.blas import factorisation
from candid.linalg.crew import each_member, share_out

__all__ = ["Bordered"]

# Columns of a block, at most.
BLOCK = 96


class Bordered:
    """Room for a covariance C (n×n) and for some rows V of as many columns.

    Attributes
    ----------
    panels : Tensor
        −C and −V, to be written: groups of rows, of which each is a panel with the columns of the matrix as its rows.
        Of C, what is on and below the diagonal counts. V begins with the group ``first_group``.
    """

    def __init__(self, n: int, n_rows: int) -> None:
        self.n, self.n_rows, width = n, n_rows, group_width()
        self.first_group, self._block = -(-n // width), BLOCK // width * width
        n_groups, size = self.first_group + -(-n_rows // width), self.first_group * width
        self.panels = torch.empty(n_groups, size, width, dtype=torch.float64)
        # Whole groups: what fills them up is the identity.
        self.panels[:, n:] = 0.0
        self.panels[self.first_group - 1, :, n - size + width :] = 0.0
        self.panels[self.first_group - 1, size - width :].diagonal()[n - size + width :] = -1.0
        self._inverses, self._rows = self.panels.new_empty(size, self._block), self.panels.new_empty(size, size)

    def write_rows(self, rows: Float[Tensor, "j n"]) -> None:
        """V."""
        behind, width = self.panels[self.first_group :, : self.n], self.panels.shape[-1]
        behind[-1] = 0.0
        for own, some in zip(behind, rows.split(width), strict=True):
            own[:, : len(some)] = -some.mT

    def factorise(self) -> Tensor | None:
        """V L⁻ᵀ as panels, with zeros where there are no more rows; it takes the place of V. None if there is no L."""
        from candid.linalg.crew_cholesky_kernels import advance

        routine = factorisation(torch.float64)
        panels, inverses, rows = (part.numpy() for part in (self.panels, self._inverses, self._rows))

        def advance_from(start: int) -> bool:
            own = panels, start, inverses[start : start + self._block], rows
            (found,) = each_member(lambda *member: advance(routine, *own, *member))
            return all(found)

        found = all(advance_from(start) for start in range(0, len(rows), self._block))
        return self.panels[self.first_group :, : self.n] if found else None

    def solved(self, dtype: torch.dtype) -> Float[Tensor, "j n"]:
        """V C⁻¹; there is no V afterwards."""
        from candid.linalg.crew_cholesky_kernels import solve_back

        solved = torch.empty(self.n_rows, len(self._rows), dtype=dtype)
        arrays = [part.numpy() for part in (self.panels, self._inverses, self._rows, solved)]
        share_out(lambda run: solve_back(*arrays, run.start, run.stop), len(self.panels) - self.first_group)
        return solved[:, : self.n]


@cache
def group_width() -> int:
    """How many rows are a group."""
    from candid.linalg.crew_cholesky_kernels import group_size

    return group_size(8)
