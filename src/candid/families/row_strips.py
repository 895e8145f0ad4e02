"""What :mod:`candid.families.row_blocks` does, by machine code from beginning to end.

A strip of rows stays in cache from its covariances to its moments, and again from its features to its gradients, and
what is done with the points of a GP takes a few calls. Each has one thread, so this is for members of a crew.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from candid.families.row_blocks import GPs, Passes, Pull, Sums, TorchPasses
from candid.kernels.blocks import Blocks, CompiledBlocks, HalfGradients
from candid.linalg.crew import crew_size, each_member

__all__ = ["More", "PointPass", "StripPasses", "column_edges", "make_passes"]

Task = Callable[[int, int], Any]

# Rows of a tile are a part of that on every processor.
LARGEST_TILE = 8
# Work on columns of triangles: what is left of it after a share c of the columns is about (1 − c)^(1/p). Half of it was
# done after 41 of 100 columns, as a whole, and of products with full matrices after 45.
SHORTENING, SHORTENING_OF_FULL = 0.76, 0.87


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
            self._lower[gp], *self.normals[gp], features.numpy(), slope.numpy(), moments.numpy()[:, gp, rows],
        )  # fmt: skip
        return features, slope

    def _room(self, share: float) -> tuple[Tensor, float, Tensor]:
        _, whitener, mean, root = self.gps
        if root is None:
            # P = −2cW
            return whitener, -2 * share, torch.bmm(mean.unsqueeze(-2), whitener).squeeze(-2) if mean.numel() else mean
        return super()._room(share)

    def turn(self, pull: Pull) -> None:
        each_member(self.turning(pull))

    def turning(self, pull: Pull) -> Task:
        """A member's share of it."""
        from candid.linalg.point_kernels import write_turn

        turned = pull.turned.numpy()

        def turn_some(gp: int, *columns: int) -> None:
            if self.gps.root is not None:
                write_turn(*self.normals[gp], pull.share, turned[gp], *columns)

        return lambda member, members: self.for_columns(member, members, turn_some)

    def pull_back(
        self, pull: Pull, gp: int, rows: slice, kept: tuple[Tensor, Tensor], sums: Sums, total: HalfGradients
    ) -> None:
        from candid.linalg.pass_kernels import pull_back_rows

        of_mean, of_spread = (values.numpy()[gp, rows] for values in (pull.of_mean, pull.of_spread))
        apart = of_mean[:0] if pull.apart is None else pull.apart.numpy()[gp, rows]
        of_cross = self.normals[gp][0][:0] if pull.of_cross is None else pull.of_cross.numpy()[gp]
        pull_back_rows(
            self.blocks.points[gp], self.blocks.row_columns[gp], rows.start,
            self.normals[gp][0], pull.turned.numpy()[gp], pull.factor, pull.mean_turned.numpy()[gp], self.gps.full,
            of_mean, of_spread, apart, of_cross,
            *(values.numpy() for values in kept), *_of_one(sums, gp), *(part.numpy()[gp] for part in total),
        )  # fmt: skip

    def finish(self, pull: Pull, sums: Sums, slope: Tensor, total: HalfGradients) -> Tensor | None:
        points = PointPass(self, pull, sums, slope, More())
        each_member(points.turn)
        (parts,) = each_member(lambda *member: points.pull_back(total, *member))
        for part in parts:
            total.add(part)
        return points.root_bar

    def for_columns(
        self, member: int, members: int, work: Callable[..., None], *others: Any, shortening: float = SHORTENING
    ) -> None:
        """``work(gp, first, count, *others)`` for a member's columns of all GPs; all members have about as much to do.

        As many GPs as possible are not cut. Columns of triangles are shorter towards the end. They come in whole tiles.
        """
        n_gps, size, _ = self.gps.whitener.shape
        whole, (first, stop) = n_gps // members, column_edges(size, members, shortening)[member : member + 2]
        for gp in range(member * whole, (member + 1) * whole):
            work(gp, 0, size, *others)
        for gp in range(members * whole, n_gps if first < stop else 0):
            work(gp, first, stop - first, *others)

    @cached_property
    def _lower(self) -> np.ndarray:
        """L of each GP."""
        return self.gps.lower.detach().contiguous().numpy()

    @cached_property
    def normals(self) -> list[tuple[np.ndarray, ...]]:
        """W, m, deviations and R of each GP; of the last two there is one, or none."""
        parts = (None if part is None else part.detach().contiguous().numpy() for part in self.gps[1:])
        whitener, mean, root = parts
        assert whitener is not None
        assert mean is not None
        # Without entries, but with axes.
        roots = mean[:, :0] if root is None else root
        return [
            (*own, own_root[:0, 0], own_root) if self.gps.full else (*own, own_root, own_root[:0, None])
            for *own, own_root in zip(whitener, mean, roots, strict=True)
        ]


class More(NamedTuple):
    """Gradients from elsewhere, which are to be added."""

    frame: Tensor | None = None  # Ψ̄, (GP, M, M), of which the lower triangle counts
    frame_weights: Sequence[float] | None = None  # by which those of each GP are multiplied; None is one
    root: Tensor | None = None  # R̄ of a full S
    root_weights: Sequence[float] | None = None


class PointPass:
    """What is done with the points of each GP once the sums over rows are complete, in two steps."""

    def __init__(self, passes: StripPasses, pull: Pull, sums: Sums, slope: Tensor, more: More) -> None:
        self._passes, self._share, self._sums, gps = passes, pull.share, sums, passes.gps
        nothing, ones = slope[:, :0, :0], [1.0] * len(slope)
        self._turned, self._slope = (torch.empty_like(slope) if gps.full else nothing).numpy(), slope.numpy()
        self._of_frame, self._of_root = (
            (nothing if of_part is None else of_part).numpy() for of_part in (more.frame, more.root)
        )
        self._frame_weights, self._root_weights = more.frame_weights or ones, more.root_weights or ones
        self.root_bar = None if gps.root is None else torch.empty_like(gps.root, memory_format=torch.contiguous_format)
        # Anything, where there are no gradients to be written.
        self._root_bar = (torch.empty_like(gps.mean) if self.root_bar is None else self.root_bar).numpy()

    def turn(self, member: int, members: int) -> None:
        """Write SG and R̄ of a full S."""
        from candid.linalg.point_kernels import turn_products

        def turn_some(gp: int, *columns: int) -> None:
            products, _ = _of_one(self._sums, gp)
            turn_products(
                self._passes.normals[gp][-1], products, self._of_root[gp], self._root_weights[gp], self._turned[gp],
                self._root_bar[gp], *columns,
            )  # fmt: skip

        if self._passes.gps.full:
            self._passes.for_columns(member, members, turn_some, shortening=SHORTENING_OF_FULL)

    def pull_back(self, total: HalfGradients, member: int, members: int) -> HalfGradients:
        """Sums beside ``total`` of what K̄_zz means for points and lengthscales."""
        from candid.linalg.point_kernels import finish_points

        own, blocks = total.beside(), self._passes.blocks

        def finish_some(gp: int, *columns: int) -> None:
            whitener, mean, deviations, _ = self._passes.normals[gp]
            finish_points(
                whitener, mean, deviations, self._share, self._turned[gp], *_of_one(self._sums, gp),
                self._of_frame[gp], self._frame_weights[gp], self._slope[gp], blocks.points[gp],
                blocks.own_columns[gp], self._root_bar[gp].reshape(-1), own.points.numpy()[gp], own.moment.numpy()[gp],
                *columns,
            )  # fmt: skip

        self._passes.for_columns(member, members, finish_some)
        return own


def column_edges(size: int, members: int, shortening: float = SHORTENING) -> list[int]:
    """Where the columns of each member begin, and where those of the last one end."""
    shares = [1 - (1 - member / members) ** shortening for member in range(members)]
    return [*(min(round(size * share / LARGEST_TILE) * LARGEST_TILE, size) for share in shares), size]


def _of_one(sums: Sums, gp: int) -> tuple[np.ndarray, np.ndarray]:
    """The products of one GP; of those apart none if there are none."""
    products = sums.products.numpy()[gp]
    return products, products[:0, :0] if sums.apart is None else sums.apart.numpy()[gp]
