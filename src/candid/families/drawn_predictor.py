"""Predictions of layers whose inducing values are draws of a q(v) without a density."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from candid.families.layers_predictor import LayersPredictor
from candid.families.predictor import BasisPredictor, Joint, Predictor
from candid.families.sites import FixedSites
from candid.families.wiring import Wiring
from candid.marginal import Marginal

__all__ = ["DrawnPredictor"]


class DrawnPredictor(Predictor):
    """A mixture with one component for each site: a draw of the inducing values of all layers, with a ξ of its own.

    All draws share inducing points and factors; only the coefficients of the layers have an axis of sites.

    Parameters
    ----------
    layers : sequence of BasisPredictor
        From the inputs to the targets; one is enough.
    sites : FixedSites
        As many as there are draws, lined up.
    wiring : Wiring
    """

    def __init__(self, layers: Sequence[BasisPredictor], sites: FixedSites, wiring: Wiring) -> None:
        super().__init__()
        self.layers, self.sites, self.wiring = nn.ModuleList(layers), sites, wiring
        widest = max(layer.coefficients.shape[-2] * layer.n_points for layer in layers)
        # Kernel values of a row, for each output.
        self.n_points = -(-len(sites.log_weight()) * widest // layers[-1].coefficients.shape[-2])
        self.requires_grad_(False)

    @property
    def dtype(self) -> torch.dtype:
        return self._layer(-1).dtype

    def marginal(self, x: Float[Tensor, "n d"], mean_only: bool = False) -> Marginal:
        last = self._at(len(self.layers) - 1, x, self._hidden(x), mean_only)
        return Marginal(last.mean, last.residual.expand_as(last.mean), last.spread, self.sites.log_weight())

    def joint(self, x: Float[Tensor, "n d"]) -> Joint:
        last = self._layer(-1).joint(*self._seen(len(self.layers) - 1, x, self._hidden(x)))
        return Joint(last.mean, last.covariance, self.sites.log_weight())

    def _hidden(self, x: Tensor) -> Tensor | None:
        """Values of the last hidden layer, (site, row, GP)."""
        below = None
        for layer in range(len(self.layers) - 1):
            marginal = self._at(layer, x, below)
            below = self.sites.propagate(layer, marginal.mean, marginal.variance)
        return below

    def _at(self, layer: int, x: Tensor, below: Tensor | None, mean_only: bool = False) -> Marginal:
        """Moments of a layer; the variance, on which draws have no influence, may be that of all sites."""
        inputs, mean_inputs = self._seen(layer, x, below)
        return self._layer(layer).marginal(inputs, mean_only, mean_inputs)

    def _seen(self, layer: int, x: Tensor, below: Tensor | None) -> tuple[Tensor, Tensor]:
        """Inputs of kernel and mean function: of the first layer (row, feature), of the others (site, row, feature)."""
        inputs, mean_inputs = self.wiring.inputs(layer, x, below)
        if below is None:
            return inputs, mean_inputs
        return inputs.unflatten(-2, below.shape[:-1]), mean_inputs.unflatten(-2, below.shape[:-1])

    def _layer(self, layer: int) -> BasisPredictor:
        return self.layers[layer]  # pyright: ignore[reportReturnType]

    def to_spec(self) -> dict[str, Any]:
        # It is made of what other predictors with layers are made of.
        layers = [self._layer(layer) for layer in range(len(self.layers))]
        return {**LayersPredictor(layers, self.sites, self.wiring).to_spec(), "type": "drawn"}

    @staticmethod
    def from_spec(spec: dict[str, Any], code: Any = None) -> DrawnPredictor:
        parts = LayersPredictor.from_spec(spec, code)
        layers: list[BasisPredictor] = list(parts.layers)  # pyright: ignore[reportAssignmentType]
        n_sites = len(parts.sites.log_weight())
        if any(layer.coefficients.dim() != 3 or len(layer.coefficients) != n_sites for layer in layers):
            raise ValueError("a predictor with drawn inducing values has as many draws of each layer as sites")
        return DrawnPredictor(layers, parts.sites, parts.wiring)
