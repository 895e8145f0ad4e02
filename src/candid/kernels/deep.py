"""Deep kernels: features in front of a kernel, k(x, x') = base(h(x), h(x')).

References
----------
A. G. Wilson, Z. Hu, R. Salakhutdinov, E. P. Xing, Deep kernel learning (2016).
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from functools import reduce
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from candid.kernels.base import Kernel
from candid.kernels.composite import Product, Scale, Sum
from candid.kernels.features import Features
from candid.kernels.foreign import adopt
from candid.kernels.networks import adopt_network
from candid.kernels.periodic import Periodic
from candid.kernels.stationary import Stationary

__all__ = ["Deep", "Embedding", "unfold"]

#: Networks that are applied one after the other; none of them leaves the inputs as they are.
Chain = tuple[Features, ...]


class Deep(Kernel):
    """k(x, x') = base(h(x), h(x')), with one network h for all outputs.

    Called as a function of two inputs, it uses the running averages of batch normalisation, if the network has any: so
    it is one kernel, whatever rows it sees together. Training goes through :func:`unfold`.

    Parameters
    ----------
    features : str, sequence of int or torch.nn.Module
        The network, as :func:`~candid.kernels.make_network` takes it.
    base : Kernel
        A kernel of the features.
    seed : int, default=0
        Of the initial weights of the network.
    """

    network: Features
    base: Kernel

    def __init__(self, features: Any, base: Kernel, seed: int = 0) -> None:
        super().__init__()
        self.network, self.base = adopt_network(features, seed), adopt(base)

    def forward(self, x1: Tensor, x2: Tensor | None = None) -> Tensor:
        return self.base(*self.network.settled(x1, *([] if x2 is None else [x2])))

    def diagonal(self, x: Tensor) -> Tensor:
        if _has_constant_diagonal(self.base):
            # Which features these are does not matter.
            return self.base.diagonal(x.new_zeros(()).expand(*x.shape[:-1], self.network.width))
        return self.base.diagonal(*self.network.settled(x))

    def in_units(self, x_scale: Tensor, y_scale: Tensor, x_shift: Tensor | None = None) -> Kernel:
        network = self.network.in_units(x_scale, x_shift)
        return Deep(network, self.base.in_units(x_scale.new_ones(network.width), y_scale))

    @property
    def unit(self) -> Kernel:
        unit = self.base.unit
        return self if unit is self.base else Deep(self.network, unit)

    def split(self) -> tuple[Tensor | None, Kernel]:
        return self.base.split()[0], self.unit

    def _fit(self, n_features: int, ard: bool, batch_shape: tuple[int, ...]) -> None:
        """The base is built for the features, and the batch shares the network."""
        self.network = self.network.build(n_features)
        self.base._fit(self.network.width, ard, batch_shape)

    def to_spec(self) -> dict[str, Any]:
        return {**super().to_spec(), "network": self.network.to_spec()}

    def __repr__(self) -> str:
        return f"Deep({self.network!r}, {self.base!r})"


def unfold(kernel: Kernel) -> tuple[Kernel, Embedding]:
    """A kernel k' and an embedding e with k(x, x') = k'(e(x), e(x')), so that each network runs once on each input.

    A family that trains does this in every step, and gives the embedding the rows of the batch first:

        unit, embed = unfold(self.kernel.unit)
        rows, points = embed(batch.x, self.points)

    ``k'`` shares the hyper-parameters of ``kernel``; a kernel without networks is returned as it is.
    """
    unfolded, chains = _unfolded(kernel)
    return unfolded, Embedding(chains)


@dataclass(frozen=True)
class Embedding:
    """Inputs as a kernel without networks sees them: features of several networks side by side."""

    chains: tuple[Chain, ...]

    def __call__(
        self,
        rows: Float[Tensor, "*batch n d"],
        *others: Float[Tensor, "*shape d"],
        weight: Float[Tensor, "*#batch n"] | None = None,
    ) -> list[Tensor]:
        """Of the rows of a batch, and of other inputs that pass with them; see :meth:`Features.together`."""
        parts = [_through(chain, [rows, *others], weight) for chain in self.chains]
        return parts[0] if len(parts) == 1 else [torch.cat(columns, -1) for columns in zip(*parts, strict=True)]


def _through(chain: Chain, inputs: list[Tensor], weight: Tensor | None) -> list[Tensor]:
    return reduce(lambda features, network: network.together(*features, weight=weight), chain, inputs)


def _unfolded(kernel: Kernel) -> tuple[Kernel, tuple[Chain, ...]]:
    if isinstance(kernel, Deep):
        base, chains = _unfolded(kernel.base)
        return base, tuple((kernel.network, *chain) for chain in chains)
    if isinstance(kernel, Scale):
        base, chains = _unfolded(kernel.base)
        return kernel if base is kernel.base else _times_amplitude_of(kernel, base), chains
    if isinstance(kernel, (Sum, Product)):
        return _side_by_side(kernel)
    return kernel, ((),)


def _side_by_side(kernel: Sum | Product) -> tuple[Kernel, tuple[Chain, ...]]:
    """Each part of a combination gets columns of its own, those that are the inputs at the end."""
    parts = [_unfolded(part) for part in kernel._own_parts()]
    distinct = dict.fromkeys(chain for _, needed in parts for chain in needed)
    chains = tuple(sorted(distinct, key=lambda chain: not chain))
    if chains == ((),):
        return kernel, chains
    columns: dict[Chain, slice] = {}
    start = 0
    for chain in chains:
        width = chain[-1].width if chain else None
        columns[chain] = slice(start, None if width is None else start + width)
        start += width or 0
    own = [_Columns(part, tuple(columns[chain] for chain in needed)) for part, needed in parts]
    return type(kernel)(*own), chains


class _Columns(Kernel):
    """A kernel of some columns of its input."""

    def __init__(self, part: Kernel, columns: tuple[slice, ...]) -> None:
        super().__init__()
        self.part, self.columns = part, columns

    def forward(self, x1: Tensor, x2: Tensor | None = None) -> Tensor:
        return self.part(self._chosen(x1), None if x2 is None else self._chosen(x2))

    def diagonal(self, x: Tensor) -> Tensor:
        return self.part.diagonal(self._chosen(x))

    def in_units(self, x_scale: Tensor, y_scale: Tensor, x_shift: Tensor | None = None) -> Kernel:
        shift = None if x_shift is None else self._chosen(x_shift)
        return _Columns(self.part.in_units(self._chosen(x_scale), y_scale, shift), self.columns)

    def _chosen(self, x: Tensor) -> Tensor:
        return torch.cat([x[..., columns] for columns in self.columns], -1)


def _times_amplitude_of(kernel: Scale, base: Kernel) -> Scale:
    """Another base with the same amplitude: not a copy of it, as the constructor would make."""
    other = copy.copy(kernel)
    other._modules = {**kernel._modules, "base": base}
    return other


def _has_constant_diagonal(kernel: Kernel) -> bool:
    if isinstance(kernel, (Sum, Product, Scale)):
        return all(map(_has_constant_diagonal, kernel._own_parts()))
    return isinstance(kernel, (Stationary, Periodic))
