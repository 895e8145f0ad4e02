"""Hyper-parameters: numbers the model learns, kept without constraint and read back inside their domain.

Every hyper-parameter of a kernel, mean function or likelihood is one :class:`Hyperparameter`. Optimisers and samplers
see ``raw``, which may be any real number; formulas see ``value``. Leading dimensions (chains, the GPs of a layer,
outputs) are part of the tensor, so a hyper-parameter is batched by giving it a larger value.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cache

import torch
from torch import Tensor, nn
from torch.nn.functional import hardtanh, logsigmoid

__all__ = ["Hyperparameter", "hyperparameters", "positive", "real"]

# Where restrict() puts a value that lies outside: about a thousandth inside the domain.
NEAR_BOUND = math.log(1e-3)


class Hyperparameter(nn.Module):
    """A learned tensor whose entries stay strictly between ``lower`` and ``upper``.

    ========================  ================================================================
    domain                    value as a function of raw
    ========================  ================================================================
    (−∞, ∞)                   raw
    (lower, ∞)                lower + exp(raw)
    (−∞, upper)               upper − exp(−raw)
    (lower, upper)            lower + (upper − lower)·sigmoid(raw)
    (lower, upper), 0 < lower the same on the logarithmic scale
    ========================  ================================================================

    So a positive parameter without bounds is sampled and regularised through its logarithm. An optimiser that walks off
    along a flat direction (the lengthscale of a feature that does not matter) meets the ends of the floating-point
    range as bounds.
    """

    raw: nn.Parameter

    def __init__(self, value, lower: float = -math.inf, upper: float = math.inf) -> None:
        super().__init__()
        self.lower, self.upper = float(lower), float(upper)
        value = torch.as_tensor(value, dtype=torch.get_default_dtype())
        self._check(value)
        self.raw = nn.Parameter(self._to_raw(value))

    @property
    def value(self) -> Tensor:
        if self.upper < math.inf:
            if self.lower == -math.inf:
                return self.upper - torch.exp(-self.raw)
            share = torch.sigmoid(self.raw)
            if self.lower > 0:
                return self.lower * torch.exp(share * math.log(self.upper / self.lower))
            return self.lower + (self.upper - self.lower) * share
        if self.lower > -math.inf:
            largest = _largest_logarithm(self.raw.dtype)
            # As a clamp, whose gradient takes five operations.
            above = hardtanh(self.raw, -largest, largest).exp()
            return self.lower + above if self.lower else above
        return self.raw

    def log_slope(self) -> Tensor:
        """log dvalue/draw, what a density of values becomes more of as a density of raw ones."""
        if self.upper < math.inf:
            if self.lower == -math.inf:
                return -self.raw
            # σ' = σ(1 − σ)
            slope = logsigmoid(self.raw) + logsigmoid(-self.raw)
            if self.lower > 0:
                return slope + self.value.log() + math.log(math.log(self.upper / self.lower))
            return slope + math.log(self.upper - self.lower)
        return self.raw if self.lower > -math.inf else torch.zeros_like(self.raw)

    @property
    def fixed(self) -> bool:
        return not self.raw.requires_grad

    def fix(self) -> None:
        """Keep the present value from now on."""
        self.raw.requires_grad_(False)

    @torch.no_grad()
    def set(self, value) -> None:
        """Overwrite the value in place; a value of smaller shape is broadcast."""
        value = torch.as_tensor(value, dtype=self.raw.dtype, device=self.raw.device)
        self._check(value)
        self.raw.copy_(self._to_raw(value).expand_as(self.raw))

    @torch.no_grad()
    def expand(self, shape: tuple[int, ...]) -> None:
        """Give every entry of a larger ``shape`` a value of its own, all starting at the present one."""
        self.raw = nn.Parameter(self.raw.expand(shape).clone(), requires_grad=self.raw.requires_grad)

    @torch.no_grad()
    def restrict(self, lower: float, upper: float) -> None:
        """Change the domain; the present value moves inside it if it has to."""
        if not lower < upper:
            raise ValueError(f"a hyper-parameter needs lower < upper, got ({lower}, {upper})")
        value = self.value.clone()
        self.lower, self.upper = float(lower), float(upper)
        raw = torch.where(value > self.lower, self._to_raw(value), NEAR_BOUND)
        self.raw.copy_(torch.where(value < self.upper, raw, -NEAR_BOUND))

    def _check(self, value: Tensor) -> None:
        if not bool(((value > self.lower) & (value < self.upper)).all()):
            raise ValueError(
                f"a hyper-parameter must lie between {self.lower:g} and {self.upper:g}, got {value.tolist()}"
            )

    def _to_raw(self, value: Tensor) -> Tensor:
        if self.upper < math.inf:
            if self.lower == -math.inf:
                return -torch.log(self.upper - value)
            share = (value - self.lower) / (self.upper - self.lower)
            if self.lower > 0:
                share = torch.log(value / self.lower) / math.log(self.upper / self.lower)
            return torch.logit(share, eps=torch.finfo(value.dtype).eps)
        if self.lower > -math.inf:
            return torch.log(value - self.lower)
        return value.clone()

    def extra_repr(self) -> str:
        domain = "" if (self.lower, self.upper) == (-math.inf, math.inf) else f", in ({self.lower:g}, {self.upper:g})"
        return f"{tuple(self.raw.shape)}{domain}{', fixed' if self.fixed else ''}"


@cache
def _largest_logarithm(dtype: torch.dtype) -> float:
    return 0.98 * math.log(torch.finfo(dtype).max)


def real(value) -> Hyperparameter:
    """A hyper-parameter that may take any value."""
    return Hyperparameter(value)


def positive(value, floor: float = 0.0) -> Hyperparameter:
    """A hyper-parameter above ``floor`` (zero unless told otherwise)."""
    return Hyperparameter(value, lower=floor)


def hyperparameters(module: nn.Module) -> Iterator[tuple[str, Hyperparameter]]:
    """All hyper-parameters below ``module`` with their dotted names, e.g. ``"kernel.base.lengthscale"``."""
    for name, part in module.named_modules():
        if isinstance(part, Hyperparameter):
            yield name, part
