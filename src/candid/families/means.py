"""Prior mean functions: zero, constant, linear."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from candid.parameters import real

__all__ = ["Constant", "Linear", "Mean", "Zero", "make_mean", "mean_from_spec"]


class Mean(nn.Module, ABC):
    """mu(x): (…, row, feature) → (…, row, output)."""

    def __init__(self, n_features: int, n_outputs: int) -> None:
        super().__init__()
        self.n_features, self.n_outputs = n_features, n_outputs

    @abstractmethod
    def forward(self, x: Float[Tensor, "*batch n d"]) -> Float[Tensor, "*batch n p"]: ...

    def to_spec(self) -> dict[str, Any]:
        return {"type": type(self).__name__, "n_features": self.n_features, "n_outputs": self.n_outputs}


class Zero(Mean):
    """mu(x) = 0."""

    def forward(self, x: Float[Tensor, "*batch n d"]) -> Float[Tensor, "*batch n p"]:
        return x.new_zeros(()).expand(*x.shape[:-1], self.n_outputs)


class Constant(Mean):
    """mu(x) = c, learned, one for each output."""

    def __init__(self, n_features: int, n_outputs: int) -> None:
        super().__init__(n_features, n_outputs)
        self.constant = real(torch.zeros(n_outputs))

    def forward(self, x: Float[Tensor, "*batch n d"]) -> Float[Tensor, "*batch n p"]:
        return self.constant.value.expand(*x.shape[:-1], self.n_outputs)


class Linear(Mean):
    """mu(x) = c + xᵀ w, learned."""

    def __init__(self, n_features: int, n_outputs: int) -> None:
        super().__init__(n_features, n_outputs)
        self.constant = real(torch.zeros(n_outputs))
        self.slope = real(torch.zeros(n_features, n_outputs))

    def forward(self, x: Float[Tensor, "*batch n d"]) -> Float[Tensor, "*batch n p"]:
        return self.constant.value + x @ self.slope.value


MEANS: dict[str, type[Mean]] = {"zero": Zero, "constant": Constant, "linear": Linear}


def make_mean(name: str, n_features: int, n_outputs: int) -> Mean:
    """The mean function called ``name``."""
    if name not in MEANS:
        raise ValueError(f"unknown mean function {name!r}; choose one of {', '.join(MEANS)}")
    return MEANS[name](n_features, n_outputs)


def mean_from_spec(spec: dict[str, Any]) -> Mean:
    """Rebuild a mean function (without its values) from :meth:`Mean.to_spec`."""
    return make_mean(str(spec["type"]).lower(), int(spec["n_features"]), int(spec["n_outputs"]))
