"""Where the axes of inputs go in a batch of GPs."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor

__all__ = ["for_each_gp"]


def for_each_gp(x: Float[Tensor, "*chains n d"]) -> Tensor:
    """Inputs as kernels of batch shape (\\*chains, P) see them: shared by the P GPs of each chain."""
    return x.unsqueeze(-3) if x.dim() > 2 else x
