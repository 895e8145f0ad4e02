"""What passes over blocks of rows have in common: covariances before them, gradients of inputs after them."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from candid.kernels import Kernel, Stationary
from candid.kernels.blocks import Blocks, HalfGradients, PointFactors, can_compile_blocks, scaled_blocks
from candid.kernels.gram import chain_factors
from candid.kernels.profiles import Profile
from candid.linalg.crew import crew_size, joined, share_out

__all__ = ["BlockInputs", "in_machine_code", "many_rows"]

# Entries M×rows of a block, and from how many of them on blocks are of use; and how many rows there are for each point
# if they are, by machine code or by torch.
BLOCK = 2**20
LEAST, LEAST_COMPILED_ROWS, LEAST_ROWS = 2**16, 1.5, 3
# Rows that products inside machine code take together, or a multiple.
PANEL = 48


def many_rows(kernel: Kernel, n_rows: int, points: Tensor) -> bool:
    """Whether blocks of rows are possible, and quicker than all rows at a time."""
    if not isinstance(kernel, Stationary) or kernel.shapes() or points.device.type != "cpu":
        return False
    n_points, least_rows = points.shape[-2], LEAST_COMPILED_ROWS if in_machine_code(kernel, points) else LEAST_ROWS
    return n_rows * n_points >= LEAST and n_rows >= least_rows * n_points


def in_machine_code(kernel: Kernel, points: Tensor) -> bool:
    """Whether blocks of rows are left to machine code."""
    return isinstance(kernel, Stationary) and can_compile_blocks(kernel.profile, points.detach())


@dataclass(frozen=True)
class BlockInputs:
    """Rows and points in lengthscales, where GPs (with chains) are one leading axis."""

    profile: Profile
    batch: torch.Size  # the leading axes of points
    n_features: int
    blocks: Blocks

    @staticmethod
    @torch.no_grad()
    def scale(profile: Profile, x: Tensor, points: Tensor, lengthscale: Tensor) -> BlockInputs:
        """From rows (n, D) and points (…, M, D)."""
        *batch, _, n_features = points.shape
        # Several chains, perhaps, of each GP.
        flat = (values.expand(*batch, -1, -1).flatten(0, -3) for values in (points, lengthscale))
        points, lengthscale = (values.detach() for values in flat)
        return BlockInputs(
            profile, torch.Size(batch), n_features, scaled_blocks(profile, points, x.detach(), lengthscale)
        )

    @torch.no_grad()
    def factorise(self, jitter: Tensor) -> PointFactors:
        """Factors of the points of all GPs."""
        start = jitter.flatten()
        parts = share_out(lambda run: self.blocks.factorise(run, start[run]), len(start))
        return PointFactors(*map(joined, zip(*parts, strict=True)))

    def parts(self) -> list[tuple[int, slice]]:
        """All GPs, and blocks of rows of each, of about the same size and as many for each thread of a crew."""
        (n_gps, n_points, _), n_rows = self.blocks.a.shape, self.blocks.columns.shape[-1]
        count = max(1, round(n_points * n_rows / BLOCK))
        while n_gps * count % max(crew_size(), 1):
            count += 1
        # Blocks of whole panels, where they have several.
        whole = PANEL if n_rows >= 2 * PANEL * count else 1
        edges = [*(round(n_rows * number / count / whole) * whole for number in range(count)), n_rows]
        return [(gp, slice(*pair)) for gp in range(n_gps) for pair in pairwise(edges)]

    def unfold(self, values: Tensor) -> Tensor:
        """With the leading axes of the points in place of one."""
        return values.reshape(*self.batch, *values.shape[1:])

    def gradients(self, total: HalfGradients, lengthscale: Tensor) -> tuple[Tensor | None, Tensor, Tensor]:
        """Those of rows (if they are in ``total``), points and lengthscale."""
        of_inputs, of_lengthscale = chain_factors(self.profile, lengthscale)
        total = total.without(self.n_features)
        rows_bar = None
        if total.rows.numel():
            rows_bar = (self.unfold(total.rows.mT) * of_inputs).sum_to_size(total.rows.shape[-1], self.n_features)
        lengthscale_bar = (self.unfold(total.moment.unsqueeze(-2)) * of_lengthscale).sum_to_size(lengthscale.shape)
        return rows_bar, self.unfold(total.points) * of_inputs, lengthscale_bar
