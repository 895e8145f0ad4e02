"""A limit for gradients that are much longer than usual."""

from __future__ import annotations

import math
from collections.abc import Sequence

from torch import nn
from torch.nn.utils import clip_grad_norm_

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
        if self.multiple == math.inf or not parameters:
            return
        # Where there has been no gradient yet, nothing is unusual.
        longest = self.multiple * self.usual if self.usual else math.inf
        length = min(float(clip_grad_norm_(parameters, longest)), longest)
        self.usual = length if self.usual is None else (1 - NOVELTY) * self.usual + NOVELTY * length
