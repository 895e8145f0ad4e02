"""A network with linear heads, whose hidden units can be left out: the function that dropout thins."""

from __future__ import annotations

from contextlib import nullcontext
from itertools import chain
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from candid.kernels import Features, ForeignNetwork, Network, network_from_spec
from candid.kernels.row_norm import counting_rows

__all__ = ["HeadedNetwork"]

# What describes a network with heads.
PARTS = {"network", "heads"}


class HeadedNetwork(Features):
    """The features of a network, and one linear head for each output behind them; the heads start at zero.

    A network of ours ends with a linear layer, and a ReLU follows it here, so that all its widths are those of hidden
    layers. A module of somebody else's ends as it likes.

    Hidden units are those that a linear layer or the heads take in, apart from the inputs of the first layer. They are
    found in networks of ours and in modules made of ``torch.nn.Sequential``; whatever is inside another module is one
    layer, and only what comes out of it can be left out.

    Parameters
    ----------
    network : Features
        Built for the inputs.
    n_outputs : int

    Attributes
    ----------
    hidden : list of int
        How many units each layer takes in that can be left out; the last entry is that of the heads.
    """

    def __init__(self, network: Features, n_outputs: int) -> None:
        super().__init__()
        if network.n_features is None:
            raise ValueError("the network does not know its number of features yet: call build(n_features) first")
        self.network, self.heads = network, nn.Linear(network.width, n_outputs)
        self.n_features, self.width = network.n_features, n_outputs
        self.x_shift, self.x_scale = network.x_shift, network.x_scale
        self._reset_heads()

    @property
    def hidden(self) -> list[int]:
        return [layer.in_features for layer, hidden in self._layers() if hidden]

    def passes(
        self,
        x: Float[Tensor, "n d"],
        masks: Float[Tensor, "sites rows units"],
        weight: Float[Tensor, " n"] | None = None,
    ) -> Float[Tensor, "sites n p"]:
        """Outputs of S passes, in each of which a hidden unit counts with its mask.

        A mask holds a factor for each of the hidden units, one layer after the other; in a pass it may be the same for
        all rows. While the network learns, batch normalisation takes its statistics from the rows, with their weights.
        """
        shift, scale = self._units()
        with counting_rows(self, len(x), weight) if self.learning else nullcontext():
            outputs = self._through((x - shift) / scale, masks)
        return outputs.unflatten(0, (len(masks), len(x)))

    def initialise(self, seed: int) -> None:
        self.network.initialise(seed)
        self._reset_heads()

    def to_spec(self) -> dict[str, Any]:
        return {"network": self.network.to_spec(), "heads": [self.network.width, self.width]}

    @staticmethod
    def from_spec(spec: dict[str, Any], code: Any = None) -> HeadedNetwork:
        """The network that :meth:`to_spec` described, with arbitrary values; ``code`` as for its features."""
        if spec.keys() != PARTS:
            raise ValueError(f"a network with heads has the parts {sorted(PARTS)}, but its description {sorted(spec)}")
        network, (width, n_outputs) = network_from_spec(spec["network"], code), spec["heads"]
        if width != network.width:
            raise ValueError(f"heads of {width} features do not fit a network with {network.width}")
        return HeadedNetwork(network, int(n_outputs)).to(network.x_scale)

    def _make(self, n_features: int) -> None:
        raise TypeError("a network with heads is made of one that was built")

    def _compute(self, x: Float[Tensor, "n d"]) -> Float[Tensor, "n p"]:
        return self._through(x, x.new_ones(1, 1, sum(self.hidden)))

    def _through(self, x: Tensor, masks: Tensor) -> Tensor:
        """All rows of the first pass, then all of the second, …; until the first mask they are the same."""
        n_rows, values, of_layers = len(x), x, iter(masks.split(self.hidden, dim=-1))
        for layer, hidden in self._layers():
            if hidden:
                values = (values.unflatten(0, (-1, n_rows)) * next(of_layers)).flatten(0, 1)
            values = layer(values)
        return values

    def _layers(self) -> list[tuple[Any, bool]]:
        """One after the other, with the heads; and whether each takes in hidden units."""
        if isinstance(self.network, Network):
            layers = [*self.network.layers, nn.ReLU()]
        else:
            assert isinstance(self.network, ForeignNetwork)
            layers = _links(self.network.module)
        linear = [position for position, layer in enumerate(layers) if isinstance(layer, nn.Linear)]
        return [*((layer, position in linear[1:]) for position, layer in enumerate(layers)), (self.heads, True)]

    @torch.no_grad()
    def _reset_heads(self) -> None:
        self.heads.weight.zero_()
        self.heads.bias.zero_()


def _links(module: nn.Module) -> list[nn.Module]:
    """The modules that a chain is made of."""
    if type(module) is not nn.Sequential:
        return [module]
    return list(chain.from_iterable(_links(link) for link in module))
