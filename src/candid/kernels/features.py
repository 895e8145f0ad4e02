"""What turns the inputs of a table into features, for kernels and mean functions.

Two ways to ask for features make training and prediction consistent where a network has batch normalisation
(:mod:`candid.kernels.row_norm`):

- :meth:`Features.together`, for the rows of a batch and whatever else passes with them. While the network learns, which
  is where gradients of its parameters are recorded, statistics are those of the rows.
- :meth:`Features.settled`, with running averages: the same function of a row wherever that row comes from. It is all
  that a network does once it has stopped learning.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, Self

import torch
from jaxtyping import Float
from torch import Tensor, nn

from candid.kernels.row_norm import counting_rows

__all__ = ["Features", "networks_in"]


class Features(nn.Module, ABC):
    """h(x): (…, row, D) → (…, row, W), the same function for all outputs and chains.

    Attributes
    ----------
    n_features : int or None
        D; None before :meth:`build`.
    width : int
        W; zero before :meth:`build`.
    x_shift, x_scale : Tensor or None
        h sees (x − shift)/scale; zeros and ones, unless the network is told in units of a table.
    """

    n_features: int | None
    width: int
    x_shift: Tensor | None
    x_scale: Tensor | None

    def __init__(self) -> None:
        super().__init__()
        self.n_features, self.width = None, 0
        self.register_buffer("x_shift", None)
        self.register_buffer("x_scale", None)

    @property
    def learning(self) -> bool:
        """Whether gradients of the parameters are being recorded."""
        return torch.is_grad_enabled() and any(parameter.requires_grad for parameter in self.parameters())

    def forward(self, x: Float[Tensor, "*batch n d"]) -> Float[Tensor, "*batch n w"]:
        """Features of the rows of a batch; see :meth:`together`."""
        return self.together(x)[0]

    def together(
        self,
        rows: Float[Tensor, "*batch n d"],
        *others: Float[Tensor, "*shape d"],
        weight: Float[Tensor, "*#batch n"] | None = None,
    ) -> list[Tensor]:
        """Features of the rows of a batch, and of other inputs, from one pass.

        While the network learns, batch normalisation takes its statistics from ``rows``, in which each row counts with
        its ``weight``, and applies them to ``others``, too. Otherwise this is :meth:`settled`.
        """
        if not self.learning:
            return self.settled(rows, *others)
        if weight is not None:
            weight = weight.expand(rows.shape[:-1]).flatten()
        with counting_rows(self, rows.shape[:-1].numel(), weight):
            return self._pass(rows, *others)

    def settled(self, *inputs: Float[Tensor, "*shape d"]) -> list[Tensor]:
        """Features of any inputs, from one pass; batch normalisation uses its running averages."""
        return self._pass(*inputs)

    def build(self, n_features: int) -> Self:
        """A copy for tables of ``n_features`` columns; one that was built already keeps its values."""
        if self.n_features not in (None, n_features):
            raise ValueError(f"the network was built for {self.n_features} features, but the table has {n_features}")
        built = copy.deepcopy(self)
        if built.n_features is None:
            built._make(n_features)
            built.n_features = n_features
            built.x_shift, built.x_scale = torch.zeros(n_features), torch.ones(n_features)
        return built

    @torch.no_grad()
    def in_units(self, x_scale: Float[Tensor, " d"], x_shift: Float[Tensor, " d"] | None = None) -> Self:
        """The network h'(x) = h((x − x_shift)/x_scale); without ``x_shift``, h(x/x_scale)."""
        shift, scale = self._units()
        rescaled = copy.deepcopy(self)
        rescaled.x_shift = shift * x_scale + (0.0 if x_shift is None else x_shift)
        rescaled.x_scale = scale * x_scale
        return rescaled

    @abstractmethod
    def initialise(self, seed: int) -> None:
        """Start anew from random numbers that depend on nothing but ``seed``."""

    @abstractmethod
    def to_spec(self) -> dict[str, Any]:
        """A description in JSON; the tensors are in ``state_dict()``."""

    @abstractmethod
    def _make(self, n_features: int) -> None:
        """Prepare for inputs of so many features, and set the width."""

    @abstractmethod
    def _compute(self, x: Float[Tensor, "n d"]) -> Float[Tensor, "n w"]:
        """Features of standardised inputs."""

    def _pass(self, *inputs: Tensor) -> list[Tensor]:
        shift, scale = self._units()
        for x in inputs:
            if x.shape[-1] != self.n_features:
                raise ValueError(f"the network was built for {self.n_features} features, got {x.shape[-1]}")
        flat = [x.flatten(0, -2) for x in inputs]
        features = self._compute(((torch.cat(flat) if len(flat) > 1 else flat[0]) - shift) / scale)
        parts = features.split([len(rows) for rows in flat])
        return [part.unflatten(0, x.shape[:-1]) for part, x in zip(parts, inputs, strict=True)]

    def _units(self) -> tuple[Tensor, Tensor]:
        if self.x_shift is None or self.x_scale is None:
            raise ValueError("the network does not know its number of features yet: call build(n_features) first")
        return self.x_shift, self.x_scale

    def _dtype(self) -> str | None:
        """For a description; None before the network is built."""
        return None if self.x_scale is None else str(self.x_scale.dtype).removeprefix("torch.")


def networks_in(module: nn.Module) -> Iterator[Features]:
    """All networks of a kernel, a mean function, a family or a whole problem."""
    return (part for part in module.modules() if isinstance(part, Features))
