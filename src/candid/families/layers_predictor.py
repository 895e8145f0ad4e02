"""Predictions of deep GPs: a mixture with one component for each site."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from candid.families.predictor import BasisPredictor, Joint, Predictor
from candid.families.sites import FixedSites
from candid.families.wiring import Wiring
from candid.marginal import Marginal

__all__ = ["LayersPredictor"]

# What describes a predictor with layers, and its sites.
PARTS = {"type", "layers", "sites", "wiring"}
PARTS_OF_SITES = {"points", "log_weight", "crossed"}
PARTS_OF_WIRING = {"n_layers", "topology", "skip"}


class LayersPredictor(Predictor):
    """Predictors of the layers, one upon the other, with sites between them.

    At a site, hidden values are certain: each hidden GP is its mean function plus the site's ξ times its standard
    deviation. So joint predictions of several rows are mixtures of joint normals, in which hidden values of all rows
    deviate together.

    Parameters
    ----------
    layers : sequence of BasisPredictor
        From the inputs to the targets, two or more.
    sites : FixedSites
    wiring : Wiring
    """

    def __init__(self, layers: Sequence[BasisPredictor], sites: FixedSites, wiring: Wiring) -> None:
        super().__init__()
        self.layers, self.sites, self.wiring = nn.ModuleList(layers), sites, wiring
        self.n_points = _largest(layers, sites)
        self.requires_grad_(False)

    @property
    def dtype(self) -> torch.dtype:
        return self._layer(-1).dtype

    def marginal(self, x: Float[Tensor, "*#chains n d"], mean_only: bool = False) -> Marginal:
        below = self._hidden(x)
        last = self._at(len(self.layers) - 1, x, below, mean_only)
        return Marginal(last.mean, last.residual, last.spread, self.sites.log_weight())

    def joint(self, x: Float[Tensor, "n d"]) -> Joint:
        below = self._hidden(x)
        inputs, mean_inputs = self.wiring.inputs(len(self.layers) - 1, x, below)
        by_site, mean_by_site = (seen.unflatten(-2, below.shape[-3:-1]) for seen in (inputs, mean_inputs))
        if below.dim() == 3:
            # Sites are to the last layer what chains are: batches of rows.
            joint = self._layer(-1).joint(by_site, mean_by_site)
            return Joint(joint.mean, joint.covariance, self.sites.log_weight())
        pairs = zip(by_site.unbind(-3), mean_by_site.unbind(-3), strict=True)
        each = [self._layer(-1).joint(*pair) for pair in pairs]
        mean, covariance = torch.stack([j.mean for j in each], -3), torch.stack([j.covariance for j in each], -4)
        return Joint(mean, covariance, self.sites.log_weight())

    def _hidden(self, x: Tensor) -> Tensor:
        first = self._layer(0).marginal(x)
        below = self.sites.propagate(0, first.mean.unsqueeze(-3), first.variance.unsqueeze(-3))
        for layer in range(1, len(self.layers) - 1):
            marginal = self._at(layer, x, below)
            below = self.sites.propagate(layer, marginal.mean, marginal.variance)
        return below

    def _at(self, layer: int, x: Tensor, below: Tensor, mean_only: bool = False) -> Marginal:
        inputs, mean_inputs = self.wiring.inputs(layer, x, below)
        flat = self._layer(layer).marginal(inputs, mean_only, mean_inputs)
        axes = below.shape[-3:-1]
        return Marginal(*(part.unflatten(-2, axes) for part in (flat.mean, flat.residual, flat.spread)))

    def _layer(self, layer: int) -> BasisPredictor:
        return self.layers[layer]  # pyright: ignore[reportReturnType]

    def to_spec(self) -> dict[str, Any]:
        sites = self.sites
        return {
            "type": "layers",
            "layers": [self._layer(layer).to_spec() for layer in range(len(self.layers))],
            "sites": {
                "points": [list(sites.points(layer).squeeze(-2).shape) for layer in range(sites.n_layers)],
                "log_weight": list(sites.log_weight().shape),
                "crossed": sites.crossed,
            },
            "wiring": asdict(self.wiring),
        }

    @staticmethod
    def from_spec(spec: dict[str, Any], code: Any = None) -> LayersPredictor:
        if spec.keys() != PARTS or spec["sites"].keys() != PARTS_OF_SITES or spec["wiring"].keys() != PARTS_OF_WIRING:
            raise ValueError(
                f"a predictor with layers has the parts {sorted(PARTS)}, but its description {sorted(spec)}"
            )
        layers = [BasisPredictor.from_spec(layer, code) for layer in spec["layers"]]
        wiring, described = Wiring(**spec["wiring"]), spec["sites"]
        if not len(layers) == wiring.n_layers == len(described["points"]) + 1:
            raise ValueError("layers, sites and wiring are not those of one model")
        points = [_empty(shape) for shape in described["points"]]
        sites = FixedSites(points, _empty(described["log_weight"]), bool(described["crossed"]))
        return LayersPredictor(layers, sites, wiring)


def _largest(layers: Sequence[BasisPredictor], sites: FixedSites) -> int:
    """Kernel values of a row in the layer that has most of them, for each output of the last one."""
    n_sites, most = 1, 0
    for layer, predictor in enumerate(layers):
        most = max(most, n_sites * predictor.coefficients.shape[-2] * predictor.n_points)
        if layer < sites.n_layers:
            own = sites.points(layer).shape[-3]
            n_sites = n_sites * own if sites.crossed else own
    return -(-most // layers[-1].coefficients.shape[-2])


def _empty(shape: list[int]) -> Tensor:
    return torch.empty([int(size) for size in shape], device="meta")
