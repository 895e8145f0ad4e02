"""Several parameters as one vector: of small tensors, one long one is updated faster."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

__all__ = ["Vector"]


class Vector:
    """Parameters as the columns of a matrix with one row for each chain.

    With several chains, every parameter has these as its first axis.
    """

    def __init__(self, parameters: Sequence[nn.Parameter]) -> None:
        self.parameters = list(parameters)

    def values(self, n_chains: int = 1) -> Tensor:
        return self._joined([parameter.detach() for parameter in self.parameters], n_chains)

    def gradients(self, n_chains: int = 1) -> Tensor:
        """A parameter that the loss does not depend on has a gradient of zero."""
        gradients = [
            torch.zeros_like(parameter) if parameter.grad is None else parameter.grad for parameter in self.parameters
        ]
        return self._joined(gradients, n_chains)

    @torch.no_grad()
    def assign(self, values: Tensor) -> None:
        sizes = [parameter.numel() // len(values) for parameter in self.parameters]
        for parameter, part in zip(self.parameters, values.split(sizes, -1), strict=True):
            parameter.copy_(part.reshape(parameter.shape))

    @torch.no_grad()
    def move(self, change: Tensor) -> None:
        """Add to the values."""
        sizes = [parameter.numel() // len(change) for parameter in self.parameters]
        for parameter, part in zip(self.parameters, change.split(sizes, -1), strict=True):
            parameter.add_(part.reshape(parameter.shape))

    def _joined(self, tensors: list[Tensor], n_chains: int) -> Tensor:
        return torch.cat([tensor.reshape(n_chains, -1) for tensor in tensors], -1)
