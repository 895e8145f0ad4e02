"""Rows that are conditioned on their neighbours only: where these are, and what they say.

For a row x with neighbours of inputs X, targets y and noise variances σ², K = k(X, X), k = k(X, x) and
C = K + diag(σ²):

    mean = mu(x) + kᵀC⁻¹(y − mu(X))        residual = k(x, x) − kᵀC⁻¹k

The kernel's outermost amplitude s stays out of the matrices: with a unit-amplitude kernel and noise σ²/s the mean is
the same, the residual is multiplied by s, and the jitter is relative by itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from candid.families.axes import for_each_gp
from candid.families.means import Mean
from candid.kernels import Deep, Kernel, Stationary
from candid.linalg import ApproximateIndex, NeighbourIndex, condition
from candid.marginal import Marginal

__all__ = ["SEARCHES", "SearchedRows", "local_marginal", "metric_of"]

#: How neighbours can be searched for.
SEARCHES: dict[str, type[NeighbourIndex]] = {"exact": NeighbourIndex, "hnsw": ApproximateIndex}
# How many rows are asked how many of their neighbours a search finds.
RECALL_ROWS = 256

# Entries of the covariances of neighbours that are made at once: so many stay in the processor's cache.
GROUP_ENTRIES = 2**19


@torch.no_grad()
def metric_of(kernel: Kernel, n_features: int) -> Float[Tensor, " d"]:
    """What inputs are divided by before distances are measured: one length for each feature.

    It is ℓ for one stationary kernel. Otherwise 1/length² is the average of 1/ℓ² over the outputs, the chains and the
    stationary parts of the kernel, whatever their amplitudes: so the shortest lengthscale decides how near is near.
    Linear and periodic parts do not count, nor does what is behind a network; without any stationary part the inputs
    are compared as they are.
    """
    parts = [part.lengthscale.value for part in _stationary_parts(kernel)]
    if not parts:
        return torch.ones(n_features)
    logarithms = torch.cat([value.expand(*value.shape[:-1], n_features).flatten(0, -2) for value in parts]).log()
    # length = (mean of ℓ⁻²)^(−½)
    return torch.exp(-0.5 * (torch.logsumexp(-2.0 * logarithms, 0) - math.log(len(logarithms))))


def _stationary_parts(kernel: Kernel) -> Iterator[Stationary]:
    """Those whose lengthscales are of inputs."""
    if isinstance(kernel, Stationary):
        yield kernel
    elif not isinstance(kernel, Deep):
        for part in kernel._own_parts():
            yield from _stationary_parts(part)


class SearchedRows(nn.Module):
    """Inputs of the training rows and the metric in which their neighbours are searched.

    The index is made when it is first needed, and again when the metric or the dtype has changed: a run that goes on
    from a checkpoint finds the same neighbours.

    Parameters
    ----------
    x : Tensor
        N×D.
    metric : Tensor
        As :func:`metric_of` gives it.
    persistent : bool
        Whether the inputs are part of the state.
    search : {"exact", "hnsw"}, default="exact"
        A key of :data:`SEARCHES`.
    """

    x: Tensor
    metric: Tensor

    def __init__(
        self, x: Float[Tensor, "n d"], metric: Float[Tensor, " d"], persistent: bool, search: str = "exact"
    ) -> None:
        super().__init__()
        if search not in SEARCHES:
            raise ValueError(f"unknown search {search!r}; choose one of {', '.join(SEARCHES)}")
        self.search = search
        self.register_buffer("x", x, persistent=persistent)
        self.register_buffer("metric", metric)
        self._index: NeighbourIndex | None = None
        self._indexed: Tensor | None = None

    def nearest(
        self, x: Float[Tensor, "*chains n d"], k: int, exclude: Int[Tensor, " n"] | None = None
    ) -> Int[Tensor, "*chains n near"]:
        """Which training rows are nearest to the rows of ``x``; ``exclude`` says which of them each row of ``x`` is."""
        queries = self._scaled(x.detach()).flatten(0, -2)
        if exclude is not None:
            exclude = exclude.expand(x.shape[:-1]).flatten()
        return self._prepared().nearest(queries, k, exclude).unflatten(0, x.shape[:-1])

    def append(self, x: Float[Tensor, "n d"]) -> None:
        """Add rows."""
        self.x, self._index = torch.cat([self.x, x]), None

    def recall(self, k: int) -> float:
        """Which share of the ``k`` nearest rows the search finds, on average over some of the rows themselves."""
        if self.search == "exact":
            return 1.0
        some = torch.arange(0, len(self.x), math.ceil(len(self.x) / RECALL_ROWS), device=self.x.device)
        found = self.nearest(self.x[some], k, some)
        exact = NeighbourIndex(self._scaled(self.x)).nearest(self._scaled(self.x[some]), k, some)
        return float((found.unsqueeze(-1) == exact.unsqueeze(-2)).any(-1).double().mean()) if exact.numel() else 1.0

    def _prepared(self) -> NeighbourIndex:
        indexed = self._indexed
        if self._index is None or indexed is None or not _identical(indexed, self.metric):
            self._index, self._indexed = SEARCHES[self.search](self._scaled(self._candidates())), self.metric.clone()
        return self._index

    def _candidates(self) -> Tensor:
        """The rows in the order of the index."""
        return self.x

    def _scaled(self, x: Tensor) -> Tensor:
        # Only ratios of lengths matter; relative to the shortest one, nothing overflows.
        return x * (self.metric.min() / self.metric)

    def __getstate__(self) -> dict[str, Any]:
        """Copies and pickles do without the index, which can be made again."""
        return {**self.__dict__, "_index": None, "_indexed": None}


def _identical(a: Tensor, b: Tensor) -> bool:
    return a.dtype == b.dtype and a.device == b.device and torch.equal(a, b)


def local_marginal(
    kernel: Kernel,
    mean: Mean,
    x: Float[Tensor, "*#chains n d"],
    near: Int[Tensor, "*#chains n k"],
    look_up: Callable[[Tensor], tuple[Tensor, Tensor, Tensor]],
    jitter: float = 0.0,
) -> tuple[Marginal, Float[Tensor, "n *chains p"]]:
    """The marginal of each row of ``x`` given its own neighbours, and the jitter that it took.

    Parameters
    ----------
    kernel, mean : Kernel, Mean
        With batch shapes (\\*chains, P) and (\\*chains,).
    x : Tensor
        The rows.
    near : Tensor
        Which training rows are their neighbours; −1 where a row has fewer than others.
    look_up : callable
        Gives inputs, targets and noise variances of such an array of training rows, along new last axes.
    jitter : float
        Share of the diagonal to start from.
    """
    gps = math.prod(kernel.diagonal(for_each_gp(x[..., :1, :])).shape[:-1])
    rows = max(1, GROUP_ENTRIES // max(1, gps * near.shape[-1] ** 2))
    groups = zip(x.split(rows, -2), near.split(rows, -2), strict=True)
    marginals, jitters = zip(*(_group(kernel, mean, x, near, look_up, jitter) for x, near in groups), strict=True)
    parts = (torch.cat([getattr(m, part) for m in marginals], -2) for part in ("mean", "residual", "spread"))
    return Marginal(*parts), torch.cat(jitters)


def _group(
    kernel: Kernel,
    mean: Mean,
    x: Float[Tensor, "*#chains n d"],
    near: Int[Tensor, "*#chains n k"],
    look_up: Callable[[Tensor], tuple[Tensor, Tensor, Tensor]],
    jitter: float,
) -> tuple[Marginal, Float[Tensor, "n *chains p"]]:
    neighbours, targets, noise = look_up(near.clamp_min(0))
    amplitude, unit = kernel.split()
    # y − mu(X)
    residual = targets - mean(neighbours.flatten(-3, -2)).unflatten(-2, neighbours.shape[-3:-1])
    # Kernels have the batch shape (*chains, P), so the rows go in front of it: K is (row, *chains, P, k, k).
    axes = residual.dim()
    rows, points = _rows_first(x.unsqueeze(-2), axes).unsqueeze(-3), _rows_first(neighbours, axes).unsqueeze(-3)
    noise, residual = _rows_first(noise, axes).mT, _rows_first(residual, axes).mT
    if amplitude is not None:
        noise = noise / amplitude.unsqueeze(-1)
    covariance, cross = unit(points) + torch.diag_embed(noise), unit(rows, points).squeeze(-2)
    if bool((near < 0).any()):
        covariance, cross = _without(_rows_first((near < 0).unsqueeze(-1), axes).mT, covariance, cross)
    latent, explained, factor = condition(covariance, cross, residual.expand(cross.shape), jitter)
    variance = (unit.diagonal(rows).squeeze(-1) - explained).clamp_min(0.0)
    if amplitude is not None:
        variance = amplitude * variance
    latent, variance = latent.movedim(0, -2), variance.movedim(0, -2)
    return Marginal(mean(x) + latent, variance, torch.zeros_like(variance)), factor.jitter


def _without(absent: Tensor, covariance: Tensor, cross: Tensor) -> tuple[Tensor, Tensor]:
    """Neighbours that are not there: independent of all others and of the row itself, so that they say nothing."""
    pairs = absent.unsqueeze(-1) | absent.unsqueeze(-2)
    alone = torch.diag_embed(absent.to(covariance.dtype))
    return covariance.masked_fill(pairs, 0.0) + alone, cross.masked_fill(absent, 0.0)


def _rows_first(values: Tensor, n_axes: int) -> Tensor:
    """(\\*chains, row, k, …) → (row, \\*chains, k, …), with chains of length one where there are none."""
    return values[(None,) * (n_axes - values.dim())].movedim(-3, 0)
