"""The table as tensors, and the order in which training visits it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache

import torch
from torch import Tensor

from candid.marginal import Batch

__all__ = ["Rows", "n_batches"]


@dataclass(frozen=True)
class Rows:
    """All rows of a (training or held-out) table, on the device and in the dtype of the model."""

    x: Tensor  # N×D
    y: Tensor  # N×P
    weight: Tensor  # N
    noise: Tensor | None = None  # N×P, known noise variances, or numbers of trials

    def __len__(self) -> int:
        return self.x.shape[0]

    @cached_property
    def total(self) -> float:
        return float(self.weight.double().sum())

    def to(self, dtype: torch.dtype) -> Rows:
        noise = None if self.noise is None else self.noise.to(dtype)
        return Rows(self.x.to(dtype), self.y.to(dtype), self.weight.to(dtype), noise)

    def subset(self, index: Tensor) -> Rows:
        noise = None if self.noise is None else self.noise[index]
        return Rows(self.x[index], self.y[index], self.weight[index], noise)

    def batch(self, index: Tensor) -> Batch:
        """The training rows ``index`` as a mini-batch."""
        return Batch(self.x[index], self.y[index], self.weight[index], self.total, index)

    def whole(self) -> Batch:
        """All training rows, in order."""
        return Batch(self.x, self.y, self.weight, self.total, torch.arange(len(self), device=self.x.device))


def n_batches(n_rows: int, batch_size: int) -> int:
    """Batches in an epoch."""
    return math.ceil(n_rows / min(batch_size, n_rows))


def batch_at(rows: Rows, step: int, batch_size: int, seed: int) -> Batch:
    """The mini-batch of a step: a pure function of the seed and the step, so that a resumed run sees the same ones.

    Each epoch visits every row once, in an order of its own; the batches of an epoch differ in size by one at most.
    """
    per_epoch = n_batches(len(rows), batch_size)
    if per_epoch == 1:
        return rows.whole()
    epoch, position = divmod(step, per_epoch)
    return rows.batch(_order(len(rows), per_epoch, seed, epoch)[position].to(rows.x.device))


@lru_cache(maxsize=2)
def _order(n_rows: int, per_epoch: int, seed: int, epoch: int) -> tuple[Tensor, ...]:
    generator = torch.Generator().manual_seed(seed * 1_000_003 + epoch)
    return torch.tensor_split(torch.randperm(n_rows, generator=generator), per_epoch)
