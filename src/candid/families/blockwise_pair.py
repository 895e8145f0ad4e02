"""Moments of a mean and a covariance from two kernels at the same points, and their divergence, by members of a crew.

For q(v) = N(m, S) as the mean's kernel Q whitens it, this is what :mod:`candid.families.blockwise` does for each of
the two, with S = 0 for the covariance's kernel K, and :mod:`candid.linalg.relative_divergence` for both. Whoever is
done with one begins with the next; so members wait for each other no more often than they would for one.

What else is made of the points' matrices goes through Ψ = L⁻¹ k(Z, Z) L⁻ᵀ of each kernel, which is I. With a
gradient Ψ̄, of which the lower triangle counts, K̄_zz = ½ L⁻ᵀ ⟦Ψ̄ − ĀAᵀ⟧ L⁻¹, where ⟦⟧ is the symmetric matrix with
that triangle. And what else is made of features A goes through Ψ and k(Z, x): A itself has no gradient.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import NamedTuple, TypeVar

import torch
from torch import Tensor

from candid.families.blockwise import Prepared
from candid.families.row_blocks import GPs, Pull, Sums
from candid.families.row_strips import More, PointPass, StripPasses
from candid.kernels.blocks import CompiledBlocks, HalfGradients
from candid.linalg import first_order
from candid.linalg.crew import each_member
from candid.linalg.relative_divergence import RelativeDivergence

__all__ = ["PairedMoments", "Seen", "Traces", "paired_moments"]

T = TypeVar("T")


class Seen(NamedTuple):
    """What a kernel sees of rows and points, and what is prepared for it."""

    prepared: Prepared
    rows: Tensor
    points: Tensor


class Traces(NamedTuple):
    """What may be made of a kernel's matrices besides, for each of them."""

    frame: Tensor  # Ψ, (…, M, M), only for gradients
    cross: Tensor  # k(Z, x), (…, M, n), only for gradients
    features: Tensor  # A, without gradients, or without columns where it is not asked for
    lower: Tensor  # L, with anything above its diagonal
    whitener: Tensor  # L⁻¹


class PairedMoments(NamedTuple):
    """Moments at unit amplitude, (…, n), and the divergence of q(u) from N(0, K_zz)."""

    mean: Tensor
    explained: Tensor  # by K
    spread: Tensor
    divergence: Tensor
    of_covariance: Traces
    of_mean: Traces


def paired_moments(
    of_covariance: Seen, of_mean: Seen, mean: Tensor, root: Tensor | None, with_features: bool
) -> PairedMoments:
    """For q(v) = N(mean, R Rᵀ), with R as a matrix with anything above its diagonal; None is a point."""
    pair = of_covariance, of_mean
    inputs, factors = of_covariance.prepared.inputs, [own.prepared.factors for own in pair]
    last = len(inputs.batch) - 1
    flat = mean.detach().flatten(0, last), None if root is None else root.detach().flatten(0, last)
    work = RelativeDivergence(factors[0].inverse, factors[1].lower, *flat)
    given = [part for own in pair for part in (own.rows, own.points, own.prepared.lengthscale)]
    how = with_features, torch.is_grad_enabled()
    results = _Pair.apply([own.prepared for own in pair], work, flat, how, mean, root, *given)
    *moments, frame, own_frame, cross, own_cross, features, own_features = results  # pyright: ignore[reportGeneralTypeIssues]
    latent, explained, spread, divergence = moments
    lower, whitener = (inputs.unfold(part) for part in (factors[0].lower, factors[0].inverse))
    own_lower, own_whitener = (inputs.unfold(part) for part in (factors[1].lower, factors[1].inverse))
    traces = Traces(frame, cross, features, lower, whitener)
    own_traces = Traces(own_frame, own_cross, own_features, own_lower, own_whitener)
    return PairedMoments(latent, explained, spread, divergence, traces, own_traces)


class _Kernel:
    """One of the two kernels, with the shares of each member."""

    def __init__(self, prepared: Prepared, mean: Tensor, root: Tensor | None) -> None:
        self.inputs, self.slope = prepared.inputs, prepared.factors.slope
        self.lengthscale, blocks = prepared.lengthscale, prepared.inputs.blocks
        assert isinstance(blocks, CompiledBlocks)
        gps = GPs(prepared.factors.lower, prepared.factors.inverse, mean, root)
        self.passes, self.parts = StripPasses(gps, blocks), self.inputs.parts()
        self.moments = mean.new_zeros(3, len(self.slope), blocks.columns.shape[-1])

    def room(self, with_features: bool) -> Tensor:
        """For A, which has no columns if nobody wants it."""
        return self.slope.new_empty(*self.slope.shape[:-1], self.moments.shape[-1] if with_features else 0)

    def evaluate(self, features: Tensor, member: int, members: int) -> list[tuple[Tensor, Tensor]]:
        """Moments of some rows, perhaps their ``features``, and what is to be kept of them."""
        kept = []
        for gp, rows in self._own(self.parts, member, members):
            kept.append(self.passes.evaluate(gp, rows, self.moments))
            if features.numel():
                features[gp, :, rows] = kept[-1][0]
        return kept

    def begin(self, kept: Iterator[Tensor], pull: Pull, of_rows: bool) -> None:
        """Gradients, with the next of what was kept."""
        self.kept = [(next(kept), next(kept)) for _ in self.parts]
        self.pull, self.total = pull, self.inputs.blocks.zeros(of_rows)

    def end(self) -> None:
        """Keep nothing that is as long as the batch."""
        del self.kept, self.pull, self.total, self.sums

    def pull_back(self, member: int, members: int) -> tuple[Sums, HalfGradients]:
        """What some rows contribute to sums and gradients."""
        sums, own = Sums.zeros(self.passes.gps, self.pull), self.total.beside()
        parts, all_kept = self._own(self.parts, member, members), self._own(self.kept, member, members)
        for (gp, rows), kept in zip(parts, all_kept, strict=True):
            self.passes.pull_back(self.pull, gp, rows, kept, sums, own)
        return sums, own

    def gather(self, results: Sequence[tuple[Sums, HalfGradients]], more: More) -> PointPass:
        """All members' sums, which points need."""
        (self.sums, own), *others = results
        self.total.add(own)
        for its_sums, its_own in others:
            self.sums.add(its_sums)
            self.total.add(its_own)
        return PointPass(self.passes, self.pull, self.sums, self.slope, more)

    @staticmethod
    def _own(parts: Sequence[T], member: int, members: int) -> Sequence[T]:
        return parts[len(parts) * member // members : len(parts) * (member + 1) // members]


class _Pair(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx, prepared, divergence, flat, how,
        mean, root, x, points, lengthscale, own_x, own_points, own_lengthscale,
    ):  # fmt: skip
        # Of the covariance, only what is explained is of interest.
        (flat_mean, flat_root), (with_features, with_gradients), unfold = flat, how, prepared[0].inputs.unfold
        kernels = of_covariance, of_mean = (
            _Kernel(prepared[0], flat_mean[:, :0], None),
            _Kernel(prepared[1], flat_mean, flat_root),
        )
        features = [kernel.room(with_features) for kernel in kernels]
        passes = (partial(kernel.evaluate, room) for kernel, room in zip(kernels, features, strict=True))
        *results, _ = each_member(*passes, divergence.turn)
        ctx.begun = divergence.begin() if with_gradients and any(ctx.needs_input_grad) else None
        ctx.kernels, ctx.divergence = kernels, divergence
        # Kernel, points and weights only to notice if somebody has changed them.
        learned = mean, root, x, points, lengthscale, own_x, own_points, own_lengthscale
        kept = (part for of_kernel in results for of_member in of_kernel for pair in of_member for part in pair)
        ctx.save_for_backward(*learned, *kept)
        ctx.set_materialize_grads(False)
        # Nobody reads Ψ or k(Z, x): a single number stands for all of their entries.
        one, square = flat_mean.new_ones(1, 1, 1), of_mean.slope.shape
        frames = [unfold(one.expand(square)) for _ in range(2)]
        crosses = [unfold(one.expand(*square[:-1], len(x))) for _ in range(2)]
        features = [unfold(of_kernel) for of_kernel in features]
        ctx.mark_non_differentiable(*features)
        moments = of_mean.moments[0], of_covariance.moments[1], of_mean.moments[2]
        return *map(unfold, moments), unfold(divergence.value()), *frames, *crosses, *features

    @staticmethod
    @first_order
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx, of_latent, of_explained, of_spread, of_divergence, frame, own_frame, cross, own_cross, *_
    ):
        (mean, root, *_), kept = ctx.saved_tensors[:8], iter(ctx.saved_tensors[8:])
        (of_covariance, of_mean), divergence = ctx.kernels, ctx.divergence
        n_gps, n_rows = of_mean.moments.shape[1:]
        zero = mean.new_zeros(n_gps, n_rows)
        of_latent, of_explained, of_spread = (
            zero if grad is None else grad.reshape(n_gps, n_rows) for grad in (of_latent, of_explained, of_spread)
        )
        cross, own_cross = (None if grad is None else grad.reshape(n_gps, -1, n_rows) for grad in (cross, own_cross))
        of_covariance.begin(kept, of_covariance.passes.pull(zero, of_explained, zero, cross), ctx.needs_input_grad[6])
        of_mean.begin(kept, of_mean.passes.pull(of_latent, None, of_spread, own_cross), ctx.needs_input_grad[9])

        each_member(of_mean.passes.turning(of_mean.pull), divergence.pull_back_turn)
        _, *sums = each_member(divergence.pull_back_root, of_covariance.pull_back, of_mean.pull_back)
        ctx.begun()
        bars, kernels = divergence.gradients, (of_covariance, of_mean)
        weight = mean.new_zeros(n_gps) if of_divergence is None else of_divergence.reshape(n_gps)
        more = _weighted(bars.frame, weight, frame), _weighted(bars.other_frame, weight, own_frame)
        of_root = None if root is None else bars.root
        more = more[0], more[1]._replace(root=of_root, root_weights=weight.tolist())
        points = [kernel.gather(*own) for kernel, *own in zip(kernels, sums, more, strict=True)]
        each_member(points[1].turn)
        finished = each_member(
            *(partial(own.pull_back, kernel.total) for own, kernel in zip(points, kernels, strict=True))
        )
        for kernel, parts in zip(kernels, finished, strict=True):
            for part in parts:
                kernel.total.add(part)
        mean_bar = torch.addcmul(of_mean.sums.mean_bar, weight.unsqueeze(-1), bars.mean)
        root_bar = None if root is None else points[1].root_bar.view(root.shape)
        of_kernels = [bar for kernel in kernels for bar in kernel.inputs.gradients(kernel.total, kernel.lengthscale)]
        for kernel in kernels:
            kernel.end()
        return None, None, None, None, mean_bar.view(mean.shape), root_bar, *of_kernels


def _weighted(of_frame: Tensor, weight: Tensor, more: Tensor | None) -> More:
    """Ψ̄ of a divergence, times its weight, and more."""
    if more is None:
        return More(of_frame, weight.tolist())
    return More(torch.addcmul(more.reshape(of_frame.shape), weight[:, None, None], of_frame))
