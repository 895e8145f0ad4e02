"""Profiles: stationary covariances as functions of one number per pair of points.

With d² = Σ_i (x_i − x'_i)²/ℓ_i², a profile takes ``q = stretch·d²`` and returns the covariance k(q), a matrix ``w``
with ``dk/dq = slope·w``, and the derivative of k with respect to each shape parameter. The stretch is chosen so that
the formulas need no constants inside.

A profile owns the ``q`` it is given: it may overwrite it. Rounding may have left ``q`` a little below zero. Exponents
are cut where exp would leave the normal range of the dtype, because subnormal numbers slow the exponential down by
an order of magnitude; what is cut is below 1e-37.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor

__all__ = ["MATERN12", "MATERN32", "MATERN52", "RATIONAL_QUADRATIC", "RBF", "Profile"]


class Profile(NamedTuple):
    """One stationary covariance function; ``evaluate(q, *shapes)`` returns ``(k, w, *shape derivatives)``."""

    stretch: float
    slope: float
    evaluate: Callable[..., tuple[Tensor, ...]]


@cache
def _largest_exponent(dtype: torch.dtype) -> int:
    return int(-math.log(torch.finfo(dtype).tiny))


def _root(q: Tensor) -> Tensor:
    return q.clamp_(0.0, _largest_exponent(q.dtype) ** 2).sqrt_()


def _rbf(q: Tensor) -> tuple[Tensor, ...]:
    # k = exp(−q),  dk/dq = −k
    k = q.clamp_(0.0, _largest_exponent(q.dtype)).neg_().exp_()
    return k, k


def _matern12(q: Tensor) -> tuple[Tensor, ...]:
    # k = exp(−r), r = √q,  dk/dq = −exp(−r)/(2r); two points at the same place have no gradient
    r = _root(q)
    k = torch.neg(r).exp_()
    w = torch.div(k, r, out=r).nan_to_num_(nan=math.nan, posinf=0.0)
    return k, w


def _matern32(q: Tensor) -> tuple[Tensor, ...]:
    # k = (1 + r) exp(−r), r = √q,  dk/dq = −½ exp(−r)
    r = _root(q)
    w = torch.neg(r).exp_()
    k = r.mul_(w).add_(w)
    return k, w


def _matern52(q: Tensor) -> tuple[Tensor, ...]:
    # k = (1 + r + r²/3) exp(−r), r = √q,  dk/dq = −(1 + r) exp(−r)/6
    r = _root(q)
    e = torch.neg(r).exp_()
    w = torch.addcmul(e, e, r)
    k = torch.addcmul(w, e.mul_(r), r, value=1 / 3, out=e)
    return k, w


def _rational_quadratic(q: Tensor, alpha: Tensor) -> tuple[Tensor, ...]:
    # s = q/α,  k = (1 + s)^(−α),  dk/dq = −k/(1 + s),  dk/dα = k (s/(1 + s) − log(1 + s)); exact also where α is huge
    s = q.clamp_(0.0) / alpha
    log_u = torch.log1p(s)
    k = torch.mul(log_u, -alpha).exp_()
    u = s + 1.0
    k_alpha = s.div_(u).sub_(log_u).mul_(k)
    w = torch.div(k, u, out=u)
    return k, w, k_alpha


RBF = Profile(stretch=0.5, slope=-1.0, evaluate=_rbf)
MATERN12 = Profile(stretch=1.0, slope=-1 / 2, evaluate=_matern12)
MATERN32 = Profile(stretch=3.0, slope=-1 / 2, evaluate=_matern32)
MATERN52 = Profile(stretch=5.0, slope=-1 / 6, evaluate=_matern52)
RATIONAL_QUADRATIC = Profile(stretch=0.5, slope=-1.0, evaluate=_rational_quadratic)
