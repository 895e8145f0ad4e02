"""A limit for gradients that are much longer than usual."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import nn

__all__ = ["GradientLimit"]

# What the present gradient counts in the usual length.
NOVELTY = 0.05


class GradientLimit:
    """Shortens the gradient of a group of parameters to ``multiple`` times its usual length.

    A deep model can be taken by surprise: one mini-batch far from all others has a gradient a hundred times as long.
    Adam divides by the root of an average of squares over a thousand steps, and would hardly move for all of them.

    Parameters
    ----------
    multiple : float
        ``math.inf`` leaves gradients alone, and their length unknown.

    Attributes
    ----------
    usual : float or None
        The running average of lengths, as shortened; None before the first.
    """

    def __init__(self, multiple: float = math.inf) -> None:
        self.multiple = multiple
        self.usual: float | None = None

    def shorten(self, parameters: Sequence[nn.Parameter]) -> None:
        """Change the gradients of these parameters in place."""
        gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
        if self.multiple == math.inf or not gradients:
            return
        # Where there has been no gradient yet, nothing is unusual.
        longest = self.multiple * self.usual if self.usual else math.inf
        length = float(torch.stack([torch.linalg.vector_norm(gradient) for gradient in gradients]).norm())
        if length > longest:
            torch._foreach_mul_(gradients, longest / length)
            length = longest
        if math.isfinite(length):
            self.usual = (1 - NOVELTY) * self.usual + NOVELTY * length if self.usual else length
