"""Prior mean functions: zero, constant, linear, a network."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from candid.kernels import Features, make_network, network_from_spec
from candid.parameters import real

__all__ = ["Constant", "Linear", "Mean", "NetworkMean", "Zero", "make_mean", "mean_from_spec"]


class Mean(nn.Module, ABC):
    """mu(x): (…, row, feature) → (…, row, output).

    Parameters
    ----------
    n_features, n_outputs : int
    batch_shape : tuple of int, default=()
        Leading dimensions (chains); each entry is a function of its own. They broadcast with those of the inputs.
    """

    def __init__(self, n_features: int, n_outputs: int, batch_shape: tuple[int, ...] = ()) -> None:
        super().__init__()
        self.n_features, self.n_outputs, self.batch_shape = n_features, n_outputs, tuple(batch_shape)

    @abstractmethod
    def forward(self, x: Float[Tensor, "*#batch n d"]) -> Float[Tensor, "*#batch n p"]: ...

    def plus(self, x: Float[Tensor, "*#batch n d"], latent: Float[Tensor, "*#batch n p"]) -> Tensor:
        """mu(x) + ``latent``."""
        return self(x) + latent

    def to_spec(self) -> dict[str, Any]:
        return {"type": type(self).__name__, "shape": [*self.batch_shape, self.n_features, self.n_outputs]}

    def _shape_at(self, x: Tensor) -> tuple[int, ...]:
        chains = np.broadcast_shapes(x.shape[:-2], self.batch_shape) if self.batch_shape else x.shape[:-2]
        return (*chains, x.shape[-2], self.n_outputs)


class Zero(Mean):
    """mu(x) = 0."""

    def forward(self, x: Float[Tensor, "*#batch n d"]) -> Float[Tensor, "*#batch n p"]:
        return x.new_zeros(()).expand(self._shape_at(x))

    def plus(self, x: Float[Tensor, "*#batch n d"], latent: Float[Tensor, "*#batch n p"]) -> Tensor:
        return latent


class Constant(Mean):
    """mu(x) = c, learned, one for each output."""

    def __init__(self, n_features: int, n_outputs: int, batch_shape: tuple[int, ...] = ()) -> None:
        super().__init__(n_features, n_outputs, batch_shape)
        self.constant = real(torch.zeros(*batch_shape, n_outputs))

    def forward(self, x: Float[Tensor, "*#batch n d"]) -> Float[Tensor, "*#batch n p"]:
        return self.constant.value.unsqueeze(-2).expand(self._shape_at(x))


class Linear(Mean):
    """mu(x) = c + xᵀ w, learned."""

    def __init__(self, n_features: int, n_outputs: int, batch_shape: tuple[int, ...] = ()) -> None:
        super().__init__(n_features, n_outputs, batch_shape)
        self.constant = real(torch.zeros(*batch_shape, n_outputs))
        self.slope = real(torch.zeros(*batch_shape, n_features, n_outputs))

    def forward(self, x: Float[Tensor, "*#batch n d"]) -> Float[Tensor, "*#batch n p"]:
        return self.constant.value.unsqueeze(-2) + x @ self.slope.value


class NetworkMean(Mean):
    """mu(x) = c + h(x)ᵀ w: a network with one linear head for each output; it starts at zero.

    While it learns, batch normalisation in the network takes its statistics from the rows that the mean is asked for.

    Parameters
    ----------
    features : str, sequence of int or torch.nn.Module
        The network h, as :func:`~candid.kernels.make_network` takes it. Chains share it.
    n_features, n_outputs, batch_shape
        As of :class:`Mean`; each entry of the batch has heads of its own.
    seed : int, default=0
        Of the initial weights of the network.
    """

    network: Features

    def __init__(
        self, features: Any, n_features: int, n_outputs: int, batch_shape: tuple[int, ...] = (), seed: int = 0
    ) -> None:
        super().__init__(n_features, n_outputs, batch_shape)
        self.network = make_network(features, n_features, seed)
        self.constant = real(torch.zeros(*batch_shape, n_outputs))
        self.slope = real(torch.zeros(*batch_shape, self.network.width, n_outputs))

    def forward(self, x: Float[Tensor, "*#batch n d"]) -> Float[Tensor, "*#batch n p"]:
        return self.constant.value.unsqueeze(-2) + self.network(x) @ self.slope.value

    def to_spec(self) -> dict[str, Any]:
        return {**super().to_spec(), "network": self.network.to_spec()}


MEANS: dict[str, type[Mean]] = {"zero": Zero, "constant": Constant, "linear": Linear}


def make_mean(name: str, n_features: int, n_outputs: int, batch_shape: tuple[int, ...] = ()) -> Mean:
    """The mean function called ``name``; a batch of them if ``batch_shape`` says so."""
    if name not in MEANS:
        raise ValueError(f"unknown mean function {name!r}; choose one of {', '.join(MEANS)}")
    return MEANS[name](n_features, n_outputs, batch_shape)


def mean_from_spec(spec: dict[str, Any], code: Any = None) -> Mean:
    """Rebuild a mean function (without its values) from :meth:`Mean.to_spec`.

    ``code`` is, or holds, the module that the features of a network come from, if its code is not ours.
    """
    *batch_shape, n_features, n_outputs = (int(size) for size in spec["shape"])
    if spec["type"] == NetworkMean.__name__:
        return NetworkMean(network_from_spec(spec["network"], code), n_features, n_outputs, tuple(batch_shape))
    return make_mean(str(spec["type"]).lower(), n_features, n_outputs, tuple(batch_shape))
