"""Deep GPs: what comes out of a layer of GPs, at some sites, goes into the next.

Each layer is a batch of GPs with inducing points, and its rows are sites × rows: so each kernel matrix is built and
factorised once for each GP, whatever the number of sites.

References
----------
A. Damianou, N. Lawrence, Deep Gaussian processes (2013); H. Salimbeni, M. Deisenroth, Doubly stochastic variational
inference for deep Gaussian processes (2017); M. Jankowiak, G. Pleiss, J. R. Gardner, Deep sigma point processes (2020).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from candid.families.base import Family
from candid.families.drawn_predictor import DrawnPredictor
from candid.families.inducing import Inducing
from candid.families.layers_predictor import LayersPredictor
from candid.families.means import Mean
from candid.families.predictor import Predictor
from candid.families.sites import Rule
from candid.families.wiring import Wiring
from candid.kernels import Kernel
from candid.marginal import Batch, Evaluation, Marginal
from candid.weights import Implicit, Weights

__all__ = ["Layers"]


class Layers(Family):
    """GPs upon GPs; one layer is an ordinary GP with inducing points.

    Where q(v) has no density, each site has a draw of the inducing values of all layers.

    Parameters
    ----------
    layers : sequence of Inducing
        From the inputs to the targets: hidden layers, whose outputs are hidden values, and the last one. Kernels, mean
        functions and inducing points are those of what ``wiring`` lets a layer see.
    rule : Rule
        Sites of the hidden layers.
    wiring : Wiring

    Attributes
    ----------
    kernel, mean, weights
        Those of the last layer; its inputs are not those of the table.
    """

    def __init__(self, layers: Sequence[Inducing], rule: Rule, wiring: Wiring) -> None:
        super().__init__()
        if len(layers) != wiring.n_layers:
            raise ValueError(f"the wiring is for {wiring.n_layers} layers, got {len(layers)}")
        self.layers, self.rule, self.wiring = nn.ModuleList(layers), rule, wiring

    @property
    def last(self) -> Inducing:
        return self.layers[-1]  # pyright: ignore[reportReturnType]

    @property
    def kernel(self) -> Kernel:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.last.kernel

    @property
    def mean(self) -> Mean:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.last.mean

    @property
    def weights(self) -> Weights:
        return self.last.weights

    @property
    def drawn(self) -> bool:
        """Whether inducing values are drawn, as many times as there are sites."""
        return isinstance(self.weights, Implicit)

    @property
    def jitter(self) -> Tensor:  # pyright: ignore[reportIncompatibleVariableOverride]
        return torch.cat([layer.jitter.flatten() for layer in self.layers])  # pyright: ignore[reportCallIssue]

    @property
    def hidden_inputs(self) -> int | None:
        return self.last.points.shape[-1] if len(self.layers) > 1 else None

    def shares_rows(self, n_rows: int) -> bool:
        # Layers on top have more rows, not fewer.
        return len(self.layers) > 1 and all(layer.in_blocks(n_rows) for layer in self.layers)  # pyright: ignore

    def evaluate(self, batch: Batch) -> Evaluation:
        below = self.hidden(batch.x, batch.weight)
        marginal = self._at(len(self.layers) - 1, batch.x, below, batch.weight)
        if below is not None or self.drawn:
            marginal = Marginal(marginal.mean, marginal.residual, marginal.spread, self.rule.log_weight())
        # Σ KL of all layers
        penalty = torch.stack([layer.weights.penalty() for layer in self.layers]).sum(0)  # pyright: ignore
        return Evaluation(marginal, {"kl": penalty})

    def hidden(self, x: Tensor, weight: Tensor | None = None) -> Tensor | None:
        """Values of the last hidden layer, (\\*chains, site, row, GP); None without one."""
        below = None
        for layer in range(len(self.layers) - 1):
            marginal = self._at(layer, x, below, weight)
            mean, variance = marginal.mean, marginal.variance
            if below is None and not self.drawn:
                mean, variance = mean.unsqueeze(-3), variance.unsqueeze(-3)
            below = self.rule.propagate(layer, mean, variance)
        return below

    def _at(self, layer: int, x: Tensor, below: Tensor | None, weight: Tensor | None) -> Marginal:
        """Moments of a layer at the sites of the one below it, (\\*chains, site, row, output)."""
        inputs, mean_inputs = self.wiring.inputs(layer, x, below)
        gps: Inducing = self.layers[layer]  # pyright: ignore[reportAssignmentType]
        if below is None:
            return gps.marginal(inputs, mean_inputs, weight)
        flat = gps.marginal(inputs, mean_inputs)
        axes = below.shape[-3:-1]
        return Marginal(*(part.unflatten(-2, axes) for part in (flat.mean, flat.residual, flat.spread)))

    def refresh(self, step: int) -> None:
        self.rule.refresh(step)
        for layer in self.layers:
            layer.weights.refresh(step)  # pyright: ignore

    def weight_parameters(self) -> list[nn.Parameter]:
        return [parameter for layer in self.layers for parameter in layer.weight_parameters()]  # pyright: ignore

    def point_parameters(self) -> list[nn.Parameter]:
        return [parameter for layer in self.layers for parameter in layer.point_parameters()]  # pyright: ignore

    def hidden_mean_parameters(self) -> list[nn.Parameter]:
        return [parameter for layer in self.layers[:-1] for parameter in layer.mean.parameters()]  # pyright: ignore

    @torch.no_grad()
    def predictor(self) -> Predictor:
        return self._predictor([layer.predictor() for layer in self.layers])  # pyright: ignore

    @torch.no_grad()
    def draft_predictor(self) -> Predictor:
        return self._predictor([layer.draft_predictor() for layer in self.layers])  # pyright: ignore

    def _predictor(self, layers: list) -> Predictor:
        if self.drawn:
            return DrawnPredictor(layers, self.rule.settled().double(), self.wiring)
        if len(layers) == 1:
            return layers[0]
        return LayersPredictor(layers, self.rule.settled().double(), self.wiring)
