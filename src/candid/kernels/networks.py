"""Networks by the widths of their layers or by name, and from their descriptions.

References
----------
A. G. Wilson, Z. Hu, R. Salakhutdinov, E. P. Xing, Deep kernel learning (2016).
M. Jankowiak, G. Pleiss, J. Gardner, Parametric Gaussian process regressors (2020), appendix on calibration.
M. Jankowiak, G. Pleiss, J. Gardner, Deep sigma point processes (2020), appendix A.5.
X. Zhu, K. Wu, N. Maus, J. Gardner, D. Bindel, Variational Gaussian processes with decoupled conditionals (2023).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from numbers import Integral
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.utils import skip_init

from candid.kernels.features import Features
from candid.kernels.foreign_network import ForeignNetwork, foreign_from_spec, may_be_network
from candid.kernels.row_norm import RowNorm

__all__ = ["DTYPES", "PRESETS", "Network", "adopt_network", "make_network", "network_from_spec"]

DTYPES = {"float32": torch.float32, "float64": torch.float64}


class Network(Features):
    """Fully connected layers with ReLU between them; the last one is linear.

    Weights start from normal numbers of such variances that features of a standardised table are of order one (He et
    al. 2015), biases from zero.

    Parameters
    ----------
    widths : sequence of int
        Of each layer; the last one is the number of features.
    normalise : bool, default=False
        Whether every layer but the last has batch normalisation before its ReLU.
    scaled_output : bool, default=False
        Whether features are standardised, by batch normalisation without learned parameters.
    seed : int, default=0
        Of the initial weights.
    """

    def __init__(
        self, widths: Sequence[int], normalise: bool = False, scaled_output: bool = False, seed: int = 0
    ) -> None:
        super().__init__()
        self.widths = tuple(int(width) for width in widths)
        if not self.widths or min(self.widths) < 1:
            raise ValueError(f"a network needs at least one layer, of at least one unit each; got {tuple(widths)}")
        self.normalise, self.scaled_output, self.seed = normalise, scaled_output, int(seed)
        self.layers = nn.Sequential()

    @torch.no_grad()
    def initialise(self, seed: int) -> None:
        self.seed = int(seed)
        generator = torch.Generator().manual_seed(self.seed)
        linear = [layer for layer in self.layers if isinstance(layer, nn.Linear)]
        for layer in linear:
            # A ReLU leaves half of the mean square, the last layer has none.
            gain = 1.0 if layer is linear[-1] else 2.0
            draw = torch.randn(layer.weight.shape, dtype=torch.float64, generator=generator)
            layer.weight.copy_(math.sqrt(gain / layer.in_features) * draw)
            layer.bias.zero_()
        for norm in self.layers:
            if isinstance(norm, RowNorm):
                fresh = RowNorm(len(norm.running_mean), norm.weight is not None)
                norm.load_state_dict(fresh.state_dict())

    def to_spec(self) -> dict[str, Any]:
        return {
            "type": "Network",
            "layers": [list(sizes) for sizes in pairwise((self.n_features, *self.widths))],
            "normalise": self.normalise,
            "scaled_output": self.scaled_output,
            # Whole numbers of a description are sizes.
            "seed": str(self.seed),
            "dtype": self._dtype(),
        }

    @staticmethod
    def from_spec(spec: dict[str, Any]) -> Network:
        """The network that :meth:`to_spec` described, with arbitrary values."""
        try:
            sizes = [(None if before is None else int(before), int(after)) for before, after in spec["layers"]]
            options = {name: bool(spec[name]) for name in ("normalise", "scaled_output")}
            network, dtype = Network([after for _, after in sizes], **options, seed=int(spec["seed"])), spec["dtype"]
            consistent = all(first[1] == second[0] for first, second in pairwise(sizes))
            n_features = sizes[0][0]
            if not consistent or (n_features is None) != (dtype is None):
                raise ValueError
            return network if n_features is None else network.build(n_features).to(DTYPES[dtype])
        except (KeyError, TypeError, ValueError):
            raise ValueError(
                "a network is described by the sizes of its layers, normalise, scaled_output, seed and dtype"
            ) from None

    def __repr__(self) -> str:
        sizes = "-".join(str(size) for size in (self.n_features, *self.widths) if size is not None)
        options = [name for name in ("normalise", "scaled_output") if getattr(self, name)]
        return f"Network({', '.join([sizes, *options])})"

    def _make(self, n_features: int) -> None:
        *hidden, last = pairwise((n_features, *self.widths))
        layers: list[nn.Module] = []
        for before, after in hidden:
            layers += [skip_init(nn.Linear, before, after), *([RowNorm(after)] if self.normalise else []), nn.ReLU()]
        layers += [skip_init(nn.Linear, *last), *([RowNorm(last[1], affine=False)] if self.scaled_output else [])]
        self.layers, self.width = nn.Sequential(*layers), last[1]
        self.initialise(self.seed)

    def _compute(self, x: Float[Tensor, "n d"]) -> Float[Tensor, "n w"]:
        return self.layers(x)


#: Networks of papers, from the seed of their initial weights.
#:
#: - "ppgpr": five layers with ReLU, as for the calibration of deep regression in the paper on parametric GP regressors.
#:   It gives the widths as hidden ones, with nothing after them but the GP; here the last layer is linear, because
#:   features that cannot be negative would be an odd input of a stationary kernel.
#: - "dspp": that of Wilson et al. with 20 features, normalised, as in the paper on deep sigma point processes.
#: - "dc": the paper on decoupled conditionals does not say what its feature extractors are. It attributes its baseline
#:   with a predictive objective to the paper on parametric GP regressors; so this is the network of that paper.
PRESETS: dict[str, Callable[[int], Network]] = {
    "ppgpr": lambda seed: Network((256, 256, 128, 128, 64), seed=seed),
    "dspp": lambda seed: Network((1000, 1000, 500, 50, 20), normalise=True, scaled_output=True, seed=seed),
    "dc": lambda seed: Network((256, 256, 128, 128, 64), seed=seed),
}


def make_network(features: Any, n_features: int, seed: int = 0) -> Features:
    """A network for tables of ``n_features`` columns; it shares nothing with ``features``.

    Parameters
    ----------
    features : str, sequence of int, Network or torch.nn.Module
        A name ("ppgpr", "dspp", "dc": see :data:`PRESETS`), the widths of layers with ReLU between them, or a module
        that maps (row, D) to (row, W); for these see :class:`~candid.kernels.foreign_network.ForeignNetwork`.
    n_features : int
        D.
    seed : int, default=0
        Of the initial weights, where ``features`` does not bring them along.
    """
    return adopt_network(features, seed).build(n_features)


def adopt_network(features: Any, seed: int = 0) -> Features:
    """What :func:`make_network` accepts as a network that may not know its number of features yet."""
    if isinstance(features, str):
        if features not in PRESETS:
            raise ValueError(f"unknown network {features!r}; choose one of {', '.join(PRESETS)}, or give widths")
        return PRESETS[features](seed)
    if isinstance(features, Features):
        return features
    if may_be_network(features):
        return ForeignNetwork(features)
    if isinstance(features, Sequence) and all(isinstance(width, Integral) for width in features):
        return Network([int(width) for width in features], seed=seed)
    raise TypeError(
        f"features are a name ({', '.join(PRESETS)}), the widths of layers or a torch module, got {features!r}"
    )


def network_from_spec(spec: dict[str, Any], code: Any = None) -> Features:
    """Rebuild a network, with arbitrary values, from :meth:`Features.to_spec`.

    ``code`` is a module that the network was made of, or anything that holds it (a kernel, a list of several): a
    description holds no code.
    """
    kind = spec.get("type")
    if kind == "Network":
        return Network.from_spec(spec)
    if kind == "ForeignNetwork":
        return foreign_from_spec(spec, code).to(DTYPES[spec["dtype"]])
    raise ValueError(f"unknown kind of network {kind!r}")
