"""What :mod:`candid.families.row_blocks` does, by machine code from beginning to end.

A strip of rows stays in cache from its covariances to its moments, and again from its features to its gradients, and
what is done with the points of a GP takes a few calls. Each has one thread, so this is for members of a crew.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from candid.families.row_blocks import GPs, Passes, Pull, Sums, TorchPasses
from candid.kernels.blocks import Blocks, CompiledBlocks, HalfGradients
from candid.linalg.crew import crew_size, share_out

__all__ = ["StripPasses", "column_edges", "make_passes"]

T = TypeVar("T")

# Rows of a tile are a part of that on every processor.
LARGEST_TILE = 8
# Work on the last columns of triangles: what is left of it after a share c of the columns is about (1 − c)^(1/p). By
# their products, half of the work is done after 40 to 43 of 100 columns.
SHORTENING = 0.8


def make_passes(gps: GPs, blocks: Blocks) -> Passes:
    """By machine code, where there is any, and a crew."""
    if isinstance(blocks, CompiledBlocks) and crew_size():
        return StripPasses(gps, blocks)
    return TorchPasses(gps.cut(), blocks)


class StripPasses(Passes):
    """By one call for each block, and one for the points of each GP."""

    blocks: CompiledBlocks

    def evaluate(self, gp: int, rows: slice, moments: Tensor) -> tuple[Tensor, Tensor]:
        from candid.linalg.pass_kernels import evaluate_rows

        blocks = self.blocks
        # Each by itself: one may be needed longer than the other.
        features, slope = (moments.new_empty(blocks.a.shape[-2], rows.stop - rows.start) for _ in range(2))
        evaluate_rows(
            blocks.number, blocks.points[gp], blocks.row_columns[gp], rows.start,
            *self._normals[gp], features.numpy(), slope.numpy(), moments.numpy()[:, gp, rows],
        )  # fmt: skip
        return features, slope

    def _turned(self, share: float) -> tuple[Tensor, float, Tensor]:
        whitener, mean, root = self.gps
        if root is None:
            # P = −2cW
            return whitener, -2 * share, torch.bmm(mean.unsqueeze(-2), whitener).squeeze(-2)
        return super()._turned(share)

    def _turn(self, turned: Tensor, share: float) -> None:
        from candid.linalg.point_kernels import write_turn

        arrays = turned.numpy()
        self._share_out_columns(lambda gp, *own: write_turn(*self._normals[gp], share, arrays[gp], *own))

    def pull_back(
        self, pull: Pull, gp: int, rows: slice, kept: tuple[Tensor, Tensor], sums: Sums, total: HalfGradients
    ) -> None:
        from candid.linalg.pass_kernels import pull_back_rows

        of_mean, of_spread = (values.numpy()[gp, rows] for values in (pull.of_mean, pull.of_spread))
        apart = of_mean[:0] if pull.apart is None else pull.apart.numpy()[gp, rows]
        of_cross = self._normals[gp][0][:0] if pull.of_cross is None else pull.of_cross.numpy()[gp]
        pull_back_rows(
            self.blocks.points[gp], self.blocks.row_columns[gp], rows.start,
            self._normals[gp][0], pull.turned.numpy()[gp], pull.factor, pull.mean_turned.numpy()[gp], self.gps.full,
            of_mean, of_spread, apart, of_cross,
            *(values.numpy() for values in kept), *_of_one(sums, gp), *(part.numpy()[gp] for part in total),
        )  # fmt: skip

    def finish(
        self, pull: Pull, sums: Sums, of_frame: Tensor | None, slope: Tensor, total: HalfGradients
    ) -> Tensor | None:
        from candid.linalg.point_kernels import finish_points, turn_products

        gps, blocks, slopes = self.gps, self.blocks, slope.numpy()
        turned = np.empty((len(slope), 0, 0), slopes.dtype)
        of_frames = turned if of_frame is None else of_frame.contiguous().numpy()
        # Anything, where there are no gradients to be written.
        root_bars = gps.mean.new_empty(gps.mean.shape if gps.root is None else gps.root.shape).numpy()
        if gps.full:
            turned = np.empty_like(slopes)

            def turn_some(gp: int, *own: int) -> None:
                products, _ = _of_one(sums, gp)
                turn_products(self._normals[gp][-1], products, turned[gp], root_bars[gp], *own)

            self._share_out_columns(turn_some)

        def finish_some(gp: int, first: int, count: int, its: HalfGradients) -> None:
            whitener, mean, deviations, _ = self._normals[gp]
            finish_points(
                whitener, mean, deviations, pull.share, turned[gp], *_of_one(sums, gp), of_frames[gp], slopes[gp],
                blocks.points[gp], blocks.own_columns[gp], root_bars[gp].reshape(-1),
                its.points.numpy()[gp], its.moment.numpy()[gp], first, count,
            )  # fmt: skip

        for part in self._share_out_columns(finish_some, total.beside):
            total.add(part)
        return None if gps.root is None else torch.from_numpy(root_bars)

    def _share_out_columns(self, work: Callable[..., None], own: Callable[[], T] | None = None) -> list[T]:
        """``work(gp, first, count)`` for columns that add up to all of each GP; members have about as much to do.

        If members have something of their ``own``, ``work`` gets it, too. As many GPs as possible are not cut. Columns
        of triangles are shorter towards the end. They come in whole tiles.
        """
        (n_gps, size), members = self.gps.mean.shape, max(crew_size(), 1)
        edges, whole = column_edges(size, members), n_gps // members

        def do_some(run: slice) -> T | None:
            its = () if own is None else (own(),)
            for member in range(run.start, run.stop):
                for gp in range(member * whole, (member + 1) * whole):
                    work(gp, 0, size, *its)
                first, stop = edges[member : member + 2]
                for gp in range(members * whole, n_gps if first < stop else 0):
                    work(gp, first, stop - first, *its)
            return its[0] if its else None

        return share_out(do_some, members)  # pyright: ignore[reportReturnType]

    @cached_property
    def _normals(self) -> list[tuple[np.ndarray, ...]]:
        """W, m, deviations and R of each GP; of the last two there is one, or none."""
        whitener, mean, root = (None if part is None else part.detach().contiguous().numpy() for part in self.gps)
        assert whitener is not None
        assert mean is not None
        # Without entries, but with axes.
        roots = mean[:, :0] if root is None else root
        return [
            (*own, own_root[:0, 0], own_root) if self.gps.full else (*own, own_root, own_root[:0, None])
            for *own, own_root in zip(whitener, mean, roots, strict=True)
        ]


def column_edges(size: int, members: int) -> list[int]:
    """Where the columns of each member begin, and where those of the last one end."""
    shares = [1 - (1 - member / members) ** SHORTENING for member in range(members)]
    return [*(min(round(size * share / LARGEST_TILE) * LARGEST_TILE, size) for share in shares), size]


def _of_one(sums: Sums, gp: int) -> tuple[np.ndarray, np.ndarray]:
    """The products of one GP; of those apart none if there are none."""
    products = sums.products.numpy()[gp]
    return products, products[:0, :0] if sums.apart is None else sums.apart.numpy()[gp]
