"""The mathematics of :mod:`candid.families.blockwise`: moments of one block of rows, and what it adds to gradients.

Tensors of several GPs have these as their first axis. Here torch multiplies, and machine code or torch does the rest;
:mod:`candid.families.row_strips` does all of it by machine code.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from candid.kernels.blocks import Blocks, HalfGradients
from candid.linalg.crew import joined, share_out
from candid.linalg.products import product_of
from candid.linalg.triangular import (
    add_lower_times,
    add_product_below_diagonal,
    half_congruence_with,
    lower_times,
    mirror_below_diagonal,
    transposed_lower_times,
)

__all__ = ["GPs", "Passes", "Pull", "Sums", "TorchPasses"]


class GPs(NamedTuple):
    """L, W = L⁻¹, and q(v)."""

    lower: Tensor  # (GP, M, M), with anything above its diagonal
    whitener: Tensor  # (GP, M, M)
    mean: Tensor  # (GP, M); for strips perhaps without entries, where only what is explained is of interest
    root: Tensor | None  # (GP, M), (GP, M, M) with anything above the diagonals, or None where S = 0

    @property
    def full(self) -> bool:
        return self.root is not None and self.root.dim() == 3

    def cut(self) -> GPs:
        """The same with nothing but zeros above the diagonals of roots."""
        return self._replace(root=self.root.tril()) if self.root is not None and self.full else self

    def some(self, run: slice) -> GPs:
        """A few of them."""
        return GPs(self.lower[run], self.whitener[run], self.mean[run], None if self.root is None else self.root[run])


class Pull(NamedTuple):
    """Gradients of the three moments, and what turns them into those of covariances."""

    of_mean: Tensor  # h, (GP, n)
    of_spread: Tensor  # s
    apart: Tensor | None  # e + cs; None where it is zero
    of_cross: Tensor | None  # what is added to K̄_zx, (GP, M, n); None where it is zero
    turned: Tensor  # [P, 0; mᵀW, 0], (GP, M + 1, M + 1), and with more zeros; or W, where P is a multiple of it
    factor: float  # by which that is to be multiplied to be P
    mean_turned: Tensor  # mᵀW, (GP, M)
    share: float  # c


class Sums(NamedTuple):
    """What gradients are made of, summed over rows."""

    products: Tensor  # G, on and below the diagonal, above m̄ᵀ and zeros: (GP, M + 1, M)
    apart: Tensor | None  # 2A diag(e + cs)Aᵀ; None where it is zero

    @staticmethod
    def zeros(gps: GPs, pull: Pull) -> Sums:
        n_gps, size, _ = gps.whitener.shape
        products = gps.whitener.new_zeros(n_gps, max(pull.turned.shape[-2], size + 1), size)
        return Sums(products, None if pull.apart is None else torch.zeros_like(gps.whitener))

    @property
    def gram(self) -> Tensor:
        """G."""
        return self.products[:, : self.products.shape[-1]]

    @property
    def mean_bar(self) -> Tensor:
        """m̄."""
        return self.products[:, self.products.shape[-1]]

    def some(self, run: slice) -> Sums:
        """Those of a few GPs."""
        return Sums(self.products[run], None if self.apart is None else self.apart[run])

    def add(self, other: Sums) -> None:
        self.products.add_(other.products)
        if self.apart is not None and other.apart is not None:
            self.apart.add_(other.apart)


@dataclass(frozen=True)
class Passes(ABC):
    """What is done with blocks of rows, in this order; members of a crew take blocks, or GPs, each."""

    gps: GPs
    blocks: Blocks

    @abstractmethod
    def evaluate(self, gp: int, rows: slice, moments: Tensor) -> tuple[Tensor, Tensor]:
        """A, and w = dk/dq up to a constant, of some rows; their moments are added to ``moments`` (3, GP, n)."""

    def pull(
        self, of_mean: Tensor, of_explained: Tensor | None, of_spread: Tensor, of_cross: Tensor | None = None
    ) -> Pull:
        """What gradients of the moments, (GP, n), are pulled back by."""
        gps, share = self.gps, 1.0
        if of_explained is None:
            # Where nobody asks for what is explained, nothing is apart with c = 0.
            share, of_explained = 0.0, torch.zeros_like(of_spread)
        if gps.root is None:
            of_spread = -of_explained
        apart = of_explained + share * of_spread
        given = of_mean, of_spread, apart if apart.any() else None, of_cross
        return Pull(*given, *self._room(share), share)

    def _room(self, share: float) -> tuple[Tensor, float, Tensor]:
        """Zeros for what :meth:`turn` writes."""
        n_gps, size, _ = self.gps.whitener.shape
        # A multiple of eight rows leaves nothing over in registers.
        full_size = -(-(size + 1) // 8) * 8
        turned = self.gps.whitener.new_zeros(n_gps, full_size, full_size)
        return turned, 1.0, turned[:, size, :size]

    @abstractmethod
    def turn(self, pull: Pull) -> None:
        """Write [P; mᵀW] with P = 2(S − cI)W of all GPs to the first rows and columns of ``pull.turned``."""

    @abstractmethod
    def pull_back(
        self, pull: Pull, gp: int, rows: slice, kept: tuple[Tensor, Tensor], sums: Sums, total: HalfGradients
    ) -> None:
        """Add what some rows, of which A and w were ``kept``, contribute to ``sums`` and ``total``."""

    @abstractmethod
    def finish(self, pull: Pull, sums: Sums, slope: Tensor, total: HalfGradients) -> Tensor | None:
        """R̄ of all GPs from their complete sums; what K̄_zz means for points, which have w, is added to ``total``."""


class TorchPasses(Passes):
    """By a dozen operations for each block."""

    def evaluate(self, gp: int, rows: slice, moments: Tensor) -> tuple[Tensor, Tensor]:
        gps, blocks = self.gps, self.blocks
        cross, slope = blocks.covariances(gp, rows)
        features = lower_times(gps.whitener[gp], cross, spare=True)
        own = moments[:, gp, rows]
        variances = None if gps.root is None or gps.full else gps.root[gp].square()
        blocks.add_moments(features, gps.mean[gp], variances, own)
        if gps.root is not None and gps.full:
            blocks.add_squares(transposed_lower_times(gps.root[gp], features), own[2])
        return features, slope

    def turn(self, pull: Pull) -> None:
        share_out(lambda run: self._turn_some(run, pull.turned[run], pull.share), len(pull.turned))

    def _turn_some(self, run: slice, turned: Tensor, share: float) -> None:
        gps = self.gps.some(run)
        size = gps.whitener.shape[-1]
        upper = turned[:, :size, :size]
        if gps.root is None:
            torch.mul(gps.whitener, -2 * share, out=upper)
        elif gps.full:
            upper.copy_(gps.whitener)
            add_lower_times(upper, gps.root, transposed_lower_times(gps.root, gps.whitener), 2.0, -2 * share)
        else:
            torch.mul(gps.whitener, 2 * (gps.root.square() - share).unsqueeze(-1), out=upper)
        turned[:, size : size + 1, :size] = gps.mean.unsqueeze(-2) @ gps.whitener

    def pull_back(
        self, pull: Pull, gp: int, rows: slice, kept: tuple[Tensor, Tensor], sums: Sums, total: HalfGradients
    ) -> None:
        features, slope = kept
        # [A diag(s); hᵀ]
        size, turned = len(features), pull.turned[gp]
        weighted = features.new_empty(len(turned), features.shape[-1])
        torch.mul(features, pull.of_spread[gp, rows], out=weighted[:size])
        weighted[size] = pull.of_mean[gp, rows]
        weighted[size + 1 :] = 0.0
        add_product_below_diagonal(sums.products[gp], weighted, features)
        # K̄_zx = [P; mᵀW]ᵀ[A diag(s); hᵀ]
        full = self.gps.full
        product = product_of(turned.mT, weighted) if full else transposed_lower_times(turned, weighted, spare=True)
        cross_bar = product[:size]
        if pull.apart is not None and sums.apart is not None:
            apart = pull.apart[gp, rows]
            # Often these are only the few rows whose residual is cut off at zero.
            some = apart.nonzero().squeeze(-1)
            own = features[:, some]
            others = own * (2 * apart[some])
            add_product_below_diagonal(sums.apart[gp], others, own)
            cross_bar[:, some] += transposed_lower_times(self.gps.whitener[gp], others)
        self.blocks.add_gradients(total, gp, rows, cross_bar, slope)

    def finish(self, pull: Pull, sums: Sums, slope: Tensor, total: HalfGradients) -> Tensor | None:
        bars = share_out(lambda run: self._finish_some(run, pull.share, sums.some(run), slope[run], total), len(slope))
        return None if self.gps.root is None else joined(bars)  # pyright: ignore[reportArgumentType]

    def _finish_some(self, run: slice, share: float, sums: Sums, slope: Tensor, total: HalfGradients) -> Tensor | None:
        gps = self.gps.some(run)
        inner, root_bar = _of_products(gps, sums, share)
        # K̄_zz = ½ L⁻ᵀ Σ L⁻¹, where Σ has the lower triangle of −ĀAᵀ; that is ½(H + Hᵀ), for which H will do
        self.blocks.add_gram_gradients(total, run, half_congruence_with(gps.whitener, inner), slope)
        return root_bar.tril() if root_bar is not None and gps.full else root_bar


def _of_products(gps: GPs, sums: Sums, share: float) -> tuple[Tensor, Tensor | None]:
    """−ĀAᵀ and R̄, both on and below the diagonal; what is above it has no meaning. Changes ``sums``."""
    mirror_below_diagonal(sums.products)
    gram = sums.gram
    # 2(cI − S)G − 2A diag(e + cs)Aᵀ − m m̄ᵀ
    inner = torch.baddbmm(gram, gps.mean.unsqueeze(-1), sums.mean_bar.unsqueeze(-2), alpha=-1.0, beta=2 * share)
    if sums.apart is not None:
        inner -= sums.apart
    if gps.root is None:
        return inner, None
    if not gps.full:
        inner.addcmul_(gps.root.square().unsqueeze(-1), gram, value=-2.0)
        return inner, 2 * gps.root * gram.diagonal(dim1=-2, dim2=-1)
    # 2RᵀG
    turned = transposed_lower_times(gps.root, gram).mul_(2.0)
    add_lower_times(inner, gps.root, turned, alpha=-1.0, lower_half=True)
    return inner, turned.mT
