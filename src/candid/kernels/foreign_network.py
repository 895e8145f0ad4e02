"""Networks whose code is not ours: any module of torch that maps rows to features."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from candid.kernels.base import Kernel
from candid.kernels.code import describe_code
from candid.kernels.features import Features, networks_in
from candid.kernels.gpytorch_kernel import is_gpytorch
from candid.kernels.row_norm import with_row_norms

__all__ = ["ForeignNetwork", "foreign_from_spec", "may_be_network"]


class ForeignNetwork(Features):
    """A copy of a module, with its present values.

    Its code stays its own: parameters that are fixed (``requires_grad=False``) stay so, and a model file holds its
    tensors only, so that loading needs the module again. It runs in evaluation mode; for batch normalisation
    (``BatchNorm1d``) the rule is ours, see :mod:`candid.kernels.row_norm`.

    Parameters
    ----------
    module : torch.nn.Module
        From (row, D) to (row, W), without random numbers: a kernel is a function.
    """

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        _check(module)
        self.module = with_row_norms(copy.deepcopy(module)).eval()

    def initialise(self, seed: int) -> None:
        """Nothing: the module has brought its values along."""

    def train(self, mode: bool = True) -> ForeignNetwork:
        super().train(mode)
        self.module.eval()
        return self

    def to_spec(self) -> dict[str, Any]:
        return {
            "type": "ForeignNetwork",
            "code": describe_code(self.module.modules()),
            "n_features": [self.n_features],
            "tensors": {name: list(tensor.shape) for name, tensor in self.module.state_dict().items()},
            "dtype": _name(_dtype_of(self.module)),
        }

    def described(self, spec: dict[str, Any]) -> ForeignNetwork:
        """A network of this one's code that fits what :meth:`to_spec` told, or an error that says why there is none."""
        own = self.to_spec()
        # Settings that only one side knows belong to another version of a library.
        same = (
            mine.get(name, value) == value
            for theirs, mine in zip(spec["code"], own["code"], strict=False)
            for name, value in theirs.items()
        )
        if len(spec["code"]) != len(own["code"]) or not all(same):
            raise ValueError(f"the model has the network {spec['code']}, but the one that was given is {own['code']}")
        if spec["tensors"] != own["tensors"]:
            raise ValueError(
                f"the network that was given has the tensors {own['tensors']}, but those of the model are "
                f"{spec['tensors']}"
            )
        (n_features,) = spec["n_features"]
        return copy.deepcopy(self) if n_features is None else self.build(int(n_features))

    def __repr__(self) -> str:
        return f"ForeignNetwork({type(self.module).__name__})"

    def _make(self, n_features: int) -> None:
        rows = torch.zeros(2, n_features, dtype=_dtype_of(self.module))
        try:
            with torch.no_grad():
                features = self.module(rows)
        except Exception as error:
            raise ValueError(
                f"{type(self.module).__name__} does not take a table of {n_features} features ({error})"
            ) from error
        shape = tuple(features.shape) if isinstance(features, Tensor) else ()
        if len(shape) != 2 or shape[0] != len(rows) or not shape[1]:
            raise ValueError(
                f"{type(self.module).__name__} turns a table of the shape {tuple(rows.shape)} into "
                f"{shape or type(features).__name__}; a network gives each row its features, as (row, feature)"
            )
        self.width = shape[1]

    def _compute(self, x: Float[Tensor, "n d"]) -> Float[Tensor, "n w"]:
        return self.module(x)


def foreign_from_spec(spec: dict[str, Any], code: Any) -> ForeignNetwork:
    """The network that was described, from the first module in ``code`` that fits."""
    candidates = list(_modules_in(code))
    if not candidates:
        raise ValueError(
            "the model has a network whose code is not part of its description: give the module that it was fitted "
            "with, as features=…"
        )
    reasons = []
    for module in candidates:
        try:
            return ForeignNetwork(module).described(spec)
        except ValueError as error:
            reasons.append(str(error))
        except (KeyError, TypeError, AttributeError):
            raise ValueError("the description of a network needs its code, n_features, tensors and dtype") from None
    raise ValueError("; ".join(reasons))


def may_be_network(thing: Any) -> bool:
    """Whether this is a module, and not a kernel of ours or of GPyTorch."""
    return isinstance(thing, nn.Module) and not isinstance(thing, Kernel) and not is_gpytorch(thing)


def _modules_in(code: Any) -> Iterator[nn.Module]:
    """Modules that somebody else has written, in a module, a kernel or a list of such things."""
    for given in code if isinstance(code, (list, tuple)) else [code]:
        if isinstance(given, nn.Module):
            inside = [network.module for network in networks_in(given) if isinstance(network, ForeignNetwork)]
            yield from inside or ([given] if may_be_network(given) else [])


def _check(module: nn.Module) -> None:
    for part in module.modules():
        if isinstance(part, nn.modules.dropout._DropoutNd) and part.p > 0:
            raise ValueError("a network cannot have dropout: its features must be the same whenever they are computed")
    if any(is_lazy(tensor) for tensor in (*module.parameters(), *module.buffers())):
        raise ValueError("a network cannot have lazy layers: give each layer its number of inputs")


def _dtype_of(module: nn.Module) -> torch.dtype:
    floats = (tensor.dtype for tensor in module.state_dict().values() if tensor.is_floating_point())
    return next(floats, torch.get_default_dtype())


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
