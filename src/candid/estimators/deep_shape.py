"""What a deep GP is made of: widths and connections of its layers, sites, kernels, a network in front."""

from __future__ import annotations

from numbers import Integral
from typing import Any, ClassVar

import torch
from sklearn.utils._param_validation import Interval, StrOptions

from candid.estimators.core import gp_estimator
from candid.estimators.deep_parts import LayerParts
from candid.estimators.fitting import Setting
from candid.estimators.gp import GP
from candid.estimators.inputs import Table
from candid.families import RULES, TOPOLOGIES, FixedSites, MonteCarlo, Rule, Wiring, make_rule
from candid.kernels import Features, make_network
from candid.priors import HyperPrior, attach

__all__ = ["DeepShape"]

# Sites, unless the user says otherwise: of rules whose sites are lined up, and along each side of a grid.
LINED_UP, GRID = 10, 3


@gp_estimator
class DeepShape(GP):
    """Parameters that shape a deep GP, and the parts that they stand for."""

    hidden_widths: tuple[int, ...] = (5,)
    propagation: str = "quadrature"
    quadrature: str = "qr3"
    n_sites: int | None = None
    n_predict_sites: int = 32
    topology: str = "chain"
    skip: bool = False
    covariance: str = "diagonal"
    n_inducing: int = 300
    features: str | tuple[int, ...] | torch.nn.Module | None = None

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **GP._parameter_constraints,
        "hidden_widths": [tuple, list],
        "propagation": [StrOptions({"quadrature", "sampling"})],
        "quadrature": [StrOptions(set(RULES))],
        "n_sites": [Interval(Integral, 1, None, closed="left"), None],
        "n_predict_sites": [Interval(Integral, 1, None, closed="left")],
        "topology": [StrOptions(set(TOPOLOGIES))],
        "skip": ["boolean"],
        "covariance": [StrOptions({"none", "diagonal", "full", "implicit"})],
        "n_inducing": [Interval(Integral, 1, None, closed="left")],
        "features": [str, tuple, list, torch.nn.Module, None],
    }
    _shaping: ClassVar[tuple[str, ...]] = (
        *GP._shaping,
        "hidden_widths",
        "propagation",
        "quadrature",
        "n_sites",
        "topology",
        "skip",
        "covariance",
        "features",
        "dtype",
    )

    def _check_table(self, table: Table) -> None:
        super()._check_table(table)
        widths = self.hidden_widths
        if not all(isinstance(width, Integral) and width > 0 for width in widths):
            raise ValueError(f"hidden_widths are the numbers of GPs in each hidden layer, such as (5,); got {widths!r}")
        if self.covariance == "implicit" and self.propagation != "sampling":
            raise ValueError(
                "covariance='implicit' draws inducing values at random, a draw for each site; use "
                "propagation='sampling' with it, or another covariance"
            )

    def _make_parts(
        self, setting: Setting, seed: int
    ) -> tuple[list[LayerParts], Any, HyperPrior | None, Features | None]:
        """Kernels and mean functions of the layers, the likelihood, the priors of all these, and a network."""
        rows, widths = setting.rows, self._widths
        network = None if self.features is None else make_network(self.features, rows.x.shape[1], seed).to(rows.x)
        n_features = rows.x.shape[1] if network is None else network.width
        layers = []
        for layer, n_outputs in enumerate([*widths, setting.n_latents]):
            n_kernel, n_mean = self._wiring.widths(layer, n_features, widths)
            mean = self.mean if layer == len(widths) else "linear"
            kernel = self._make_kernel(n_kernel, n_outputs, seed)
            layers.append(LayerParts.make(kernel, n_kernel, mean, n_mean, n_outputs))
        *hidden, last = layers
        parts = torch.nn.ModuleDict(
            {
                "kernel": last.kernel,
                "mean": last.mean,
                "likelihood": self._make_likelihood(rows),
                "hidden": torch.nn.ModuleList([layer.module() for layer in hidden]),
            }
        ).to(rows.x)
        return layers, parts["likelihood"], attach(parts, self.priors, self.fixed), network

    @property
    def _widths(self) -> list[int]:
        return [int(width) for width in self.hidden_widths]

    @property
    def _wiring(self) -> Wiring:
        return Wiring(len(self.hidden_widths) + 1, self.topology, self.skip)

    def _rule(self, seed: int) -> Rule:
        if not self.hidden_widths and self.covariance != "implicit":
            return FixedSites((), torch.zeros(1, 1), crossed=False)
        if self.propagation == "sampling":
            return MonteCarlo(self.n_sites or LINED_UP, self._widths, self.n_predict_sites, seed)
        n_sites = self.n_sites or (LINED_UP if self.quadrature == "qr3" else GRID)
        return make_rule(self.quadrature, n_sites, self._widths, seed)
