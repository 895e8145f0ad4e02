"""Kernels from plain data: the way back from :meth:`Kernel.to_spec`. Only the types named here can be made."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch

from candid.kernels.base import Kernel
from candid.kernels.composite import Product, Scale, Sum
from candid.kernels.deep import Deep
from candid.kernels.foreign import adopt, foreign_parts
from candid.kernels.foreign_network import may_be_network
from candid.kernels.gpytorch_kernel import GPyTorchKernel
from candid.kernels.linear import Linear
from candid.kernels.networks import DTYPES, network_from_spec
from candid.kernels.periodic import Periodic
from candid.kernels.stationary import RBF, Matern12, Matern32, Matern52, RationalQuadratic
from candid.parameters import Hyperparameter

__all__ = ["kernel_from_spec"]

_LEAVES = {kind.__name__: kind for kind in (RBF, Matern12, Matern32, Matern52, RationalQuadratic, Periodic, Linear)}
_COMBINATIONS = {kind.__name__: kind for kind in (Sum, Product)}


def kernel_from_spec(spec: dict[str, Any], code: Any = None) -> Kernel:
    """Rebuild a kernel from :meth:`Kernel.to_spec`.

    The hyper-parameters have the right shapes and domains and arbitrary values; ``load_state_dict`` brings the values.

    Parameters
    ----------
    spec : dict
    code : Kernel, gpytorch.kernels.Kernel, torch.nn.Module or a list of them, optional
        The kernel that the model was fitted with, or the module that its features come from, whatever their values: a
        description holds no code, so parts that come from another library are taken from here.

    Raises
    ------
    ValueError
        If the description names an unknown type, does not fit the type it names, or needs other code.
    """
    given = code if isinstance(code, (list, tuple)) else [] if code is None else [code]
    foreign = (part for kernel in given if not may_be_network(kernel) for part in foreign_parts(adopt(kernel)))
    return _rebuild(spec, foreign, code)


def _rebuild(spec: dict[str, Any], foreign: Iterator[GPyTorchKernel], code: Any) -> Kernel:
    try:
        name, parameters, parts = spec["type"], dict(spec["parameters"]), list(spec["parts"])
    except (KeyError, TypeError, ValueError):
        raise ValueError("a kernel is described by its type, parameters and parts; some of them are missing") from None
    if name == GPyTorchKernel.__name__:
        return _foreign(spec, next(foreign, None))
    rebuilt = [_rebuild(part, foreign, code) for part in parts]
    kernel = _deep(spec, rebuilt, code) if name == Deep.__name__ else _empty(name, rebuilt)
    expected = {own for own, _ in kernel._own_parameters()}
    if set(parameters) != expected:
        raise ValueError(f"{name} has the parameters {sorted(expected)}, but its description has {sorted(parameters)}")
    for own, description in parameters.items():
        setattr(kernel, own, None if description is None else _parameter(description, own))
    return kernel


def _deep(spec: dict[str, Any], parts: list[Kernel], code: Any) -> Kernel:
    if len(parts) != 1 or not isinstance(spec.get("network"), dict):
        raise ValueError("a deep kernel is described by its network and one kernel of the features")
    return Deep(network_from_spec(spec["network"], code), parts[0])


def _foreign(spec: dict[str, Any], code: GPyTorchKernel | None) -> Kernel:
    if code is None:
        raise ValueError(
            "the model has a GPyTorch kernel, whose code is not part of its description: give the kernel that it was "
            "fitted with, as kernel=…"
        )
    try:
        return code.described(spec).to(DTYPES[spec["dtype"]])
    except (KeyError, TypeError, AttributeError):
        raise ValueError("the description of a GPyTorch kernel needs its code, batch, x_scale and dtype") from None


def _empty(name: Any, parts: list[Kernel]) -> Kernel:
    known = [*_LEAVES, *_COMBINATIONS, Scale.__name__, Deep.__name__]
    if name not in known:
        raise ValueError(f"unknown kernel type {name!r}; known ones are {', '.join(sorted(known))}")
    if name in _COMBINATIONS and parts:
        return _COMBINATIONS[name](*parts)
    if name == Scale.__name__ and len(parts) == 1:
        return Scale(parts[0])
    if name in _LEAVES and not parts:
        return _LEAVES[name]()
    raise ValueError(f"a description of {name} with {len(parts)} parts is not a kernel")


def _parameter(description: dict[str, Any], name: str) -> Hyperparameter:
    try:
        lower = -math.inf if description["lower"] is None else float(description["lower"])
        upper = math.inf if description["upper"] is None else float(description["upper"])
        shape, fixed, dtype = tuple(map(int, description["shape"])), bool(description["fixed"]), description["dtype"]
        parameter = Hyperparameter(torch.full(shape, _inside(lower, upper)), lower, upper).to(DTYPES[dtype])
    except (KeyError, TypeError, ValueError, RuntimeError):
        raise ValueError(
            f"the description of {name} needs a shape, a domain, whether it is fixed, and a dtype"
        ) from None
    if fixed:
        parameter.fix()
    return parameter


def _inside(lower: float, upper: float) -> float:
    if math.isfinite(lower) and math.isfinite(upper):
        return 0.5 * (lower + upper)
    return lower + 1.0 if math.isfinite(lower) else upper - 1.0 if math.isfinite(upper) else 0.0
