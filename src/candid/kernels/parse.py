"""Kernels by name: ``"matern52"``, ``"matern52 + linear"``, ``"rbf * periodic"``."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from typing import Any

from candid.kernels.base import Kernel
from candid.kernels.composite import Product, Scale, Sum
from candid.kernels.foreign import adopt
from candid.kernels.linear import Linear
from candid.kernels.periodic import Periodic
from candid.kernels.stationary import RBF, Matern12, Matern32, Matern52, RationalQuadratic

__all__ = ["make_kernel"]


def _unit_linear(n_features: int) -> Kernel:
    linear = Linear(variance=1.0 / n_features)
    linear.variance.fix()
    return linear


_KNOWN: dict[str, Callable[[int], Kernel]] = {
    "rbf": lambda n_features: RBF(),
    "matern12": lambda n_features: Matern12(),
    "matern32": lambda n_features: Matern32(),
    "matern52": lambda n_features: Matern52(),
    "rq": lambda n_features: RationalQuadratic(),
    "periodic": lambda n_features: Periodic(),
    "linear": _unit_linear,
}


def make_kernel(kernel: Any, n_features: int, ard: bool = True, batch_shape: tuple[int, ...] = ()) -> Kernel:
    """A kernel for tables of ``n_features`` columns, from a name, an expression or a kernel object.

    Parameters
    ----------
    kernel : str, Kernel or gpytorch.kernels.Kernel
        A name ("rbf", "matern12", "matern32", "matern52", "rq", "periodic", "linear"), or several joined by ``+`` and
        ``*``, where ``*`` binds tighter. Every summand gets an amplitude of its own. A kernel object is copied as it
        is; no amplitude is added. For kernels of GPyTorch see :func:`~candid.kernels.from_gpytorch`.
    n_features : int
        The number of features D.
    ard : bool, default=True
        Whether each feature gets a lengthscale of its own.
    batch_shape : tuple of int, default=()
        Leading dimensions of every hyper-parameter.

    Notes
    -----
    In an expression "linear" has the fixed slope variance 1/D, which makes its average variance on a standardised
    table one; its amplitude is what is learned. ``Linear(variance=[…])`` has one learned variance per feature.
    """
    if isinstance(kernel, str):
        summands = [Scale(_product(term, kernel, n_features)) for term in kernel.split("+")]
        kernel = summands[0] if len(summands) == 1 else Sum(*summands)
    return adopt(kernel).build(n_features, ard, batch_shape)


def _product(term: str, expression: str, n_features: int) -> Kernel:
    factors = [_named(name.strip().lower(), expression, n_features) for name in term.split("*")]
    return factors[0] if len(factors) == 1 else Product(*factors)


def _named(name: str, expression: str, n_features: int) -> Kernel:
    known = ", ".join(_KNOWN)
    if not name:
        raise ValueError(f"the kernel expression {expression!r} lacks a name beside an operator; names are {known}")
    if name not in _KNOWN:
        close = difflib.get_close_matches(name, _KNOWN, n=1, cutoff=0.0)[0]
        raise ValueError(f"unknown kernel {name!r}; did you mean {close!r}? Known names are {known}")
    return _KNOWN[name](n_features)
