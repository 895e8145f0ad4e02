"""Gradients written by hand have no gradient of their own; asking for one must not be answered with zero."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

__all__ = ["first_order"]


def first_order(rule: Callable[..., Any]) -> Callable[..., Any]:
    """Mark the backward pass of an autograd function as one that cannot be differentiated again.

    Torch's own ``once_differentiable`` complains only if the incoming gradient depends on something; otherwise second
    derivatives come out as zero. This one refuses every backward pass that is to be recorded (``create_graph=True``).
    """

    @functools.wraps(rule)
    def guarded(ctx: Any, *gradients: Any) -> Any:
        # Gradients are enabled inside a backward pass exactly if it is recorded.
        if torch.is_grad_enabled():
            raise RuntimeError(
                "second derivatives of a Gaussian process are not available, because its first ones are written by "
                "hand: leave out create_graph=True (or torch's hessian), and take finite differences of the gradient"
            )
        return rule(ctx, *gradients)

    return guarded
