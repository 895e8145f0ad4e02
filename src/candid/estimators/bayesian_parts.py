"""What a GP whose parameters are sampled is made of: layers, a likelihood, priors, and chains of all that."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any, ClassVar

import numpy as np
import torch
from sklearn.utils._param_validation import Interval, StrOptions
from torch import Tensor

from candid.estimators.core import gp_estimator
from candid.estimators.deep_parts import LayerParts
from candid.estimators.fitting import Setting
from candid.estimators.gp import GP
from candid.estimators.inputs import Table
from candid.families import Inducing, Layers, Linear, MonteCarlo, Posterior, Wiring
from candid.kernels import GPyTorchKernel, Kernel, Scale, networks_in
from candid.likelihoods import Likelihood
from candid.parameters import hyperparameters
from candid.priors import POINT_PRIORS, Box, HyperPrior, attach, complete

__all__ = ["AS_INPUTS", "BayesianParts", "Parts"]

# What can be sampled.
SAMPLED = {"u", "theta", "z", "noise"}
#: The width of a hidden layer that has as many GPs as the table has features.
AS_INPUTS = "D"
# Amplitude of a kernel that starts cold, as published.
COLD_AMPLITUDE = 0.1


@dataclass(frozen=True)
class Parts:
    """The parts of one model, before it has inducing points.

    Attributes
    ----------
    layers : list of LayerParts
        From the inputs to the targets; hidden ones have mean functions that stay as they are.
    inputs : list of Tensor
        What each layer sees if the layers below it are no more than their mean functions, (row, feature).
    wiring : Wiring
    likelihood : Likelihood
    prior : HyperPrior or None
        Of all that is sampled, and of what else the user has named.
    """

    layers: list[LayerParts]
    inputs: list[Tensor]
    wiring: Wiring
    likelihood: Likelihood
    prior: HyperPrior | None


@gp_estimator
class BayesianParts(GP):
    """Parameters that say what a model is made of and which of its parameters are sampled."""

    sample: tuple[str, ...] = ("u", "theta", "z")
    inducing_prior: str = "normal"
    hidden_widths: tuple[int | str, ...] = ()
    n_inducing: int = 100
    init: str | np.ndarray = "warm"
    n_chains: int | None = None

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **GP._parameter_constraints,
        "sample": [tuple, list],
        "inducing_prior": [StrOptions(set(POINT_PRIORS))],
        "hidden_widths": [tuple, list],
        "n_inducing": [Interval(Integral, 1, None, closed="left")],
        "init": [StrOptions({"warm", "kmeans", "random"}), "array-like"],
        "n_chains": [Interval(Integral, 1, None, closed="left"), None],
    }
    _shaping: ClassVar[tuple[str, ...]] = (
        *GP._shaping,
        "sample",
        "inducing_prior",
        "hidden_widths",
        "n_chains",
        "dtype",
    )

    @property
    def _warm(self) -> bool:
        return not (isinstance(self.init, str) and self.init in ("kmeans", "random"))

    def _check_table(self, table: Table) -> None:
        super()._check_table(table)
        if not self.sample or not set(self.sample) <= SAMPLED:
            raise ValueError(f"sample must name some of {', '.join(sorted(SAMPLED))}; got {self.sample!r}")
        if not all(width == AS_INPUTS or _is_count(width) for width in self.hidden_widths):
            raise ValueError(
                "hidden_widths are the numbers of GPs in each hidden layer, such as (5,), or 'D' for as many as there "
                f"are features; got {self.hidden_widths!r}"
            )
        if self.hidden_widths and not isinstance(self.init, str):
            raise ValueError(
                "init places inducing points among the rows of the table, which only a single layer sees; with "
                "hidden_widths use init='warm', 'kmeans' or 'random'"
            )

    def _make_kernel(self, n_features: int, n_outputs: int, seed: int) -> Kernel:
        kernel = super()._make_kernel(n_features, n_outputs, seed)
        if any(networks_in(kernel)):
            raise ValueError(
                "weights of networks are not sampled; use a kernel without networks, or one of "
                "SparseGPRegressor(features=...) and DeepGPRegressor(features=...), or their classifiers"
            )
        if any(isinstance(part, GPyTorchKernel) for part in kernel.modules()):
            raise ValueError(
                "a kernel of GPyTorch cannot be sampled, because it is one kernel and not one for each chain; use a "
                "kernel of candid.kernels, or SparseGPRegressor"
            )
        if not self._warm and isinstance(self.kernel, str) and isinstance(kernel, Scale):
            kernel.amplitude.set(COLD_AMPLITUDE)
        return kernel

    def _make_parts(self, setting: Setting, seed: int) -> Parts:
        x = setting.rows.x
        wiring = self._wiring(x.shape[1])
        if not self.hidden_widths:
            kernel, mean, likelihood, prior = self._parts(setting, seed)
            last, inputs = LayerParts(kernel, mean, x.shape[1], setting.n_latents), [x]
            return Parts([last], inputs, wiring, likelihood, self._completed([last], likelihood, prior))
        layers, inputs = self._make_layers(setting, wiring, seed)
        likelihood = self._make_likelihood(setting.rows).to(x)
        prior = attach(_named(layers, likelihood), self.priors, self.fixed)
        return Parts(layers, inputs, wiring, likelihood, self._completed(layers, likelihood, prior))

    def _make_layers(self, setting: Setting, wiring: Wiring, seed: int) -> tuple[list[LayerParts], list[Tensor]]:
        x = setting.rows.x
        layers, inputs = [], [x]
        for width in self._widths(x.shape[1]):
            below = inputs[-1]
            kernel = self._make_kernel(below.shape[1], width, seed)
            part = LayerParts.make(kernel, below.shape[1], "linear", below.shape[1], width)
            assert isinstance(part.mean, Linear)
            slope = _passing_on(below, width)
            part.mean.slope.set(slope)
            for _, parameter in hyperparameters(part.mean):
                parameter.fix()
            layers.append(part)
            inputs.append(below @ slope)
        inputs[-1], _ = wiring.inputs(len(layers), x, inputs[-1].unsqueeze(-3))
        n_inputs, n_outputs = inputs[-1].shape[1], setting.n_latents
        kernel = self._make_kernel(n_inputs, n_outputs, seed)
        layers.append(LayerParts.make(kernel, n_inputs, self.mean, n_inputs, n_outputs))
        for part in layers:
            part.module().to(x)
        return layers, inputs

    def _widths(self, n_features: int) -> list[int]:
        return [n_features if width == AS_INPUTS else int(width) for width in self.hidden_widths]

    def _wiring(self, n_features: int) -> Wiring:
        """A chain; if some layer is too narrow to pass all features on, the last one sees these besides."""
        widths = self._widths(n_features)
        return Wiring(len(widths) + 1, skip=any(width < n_features for width in widths))

    def _completed(
        self, layers: Sequence[LayerParts], likelihood: Likelihood, prior: HyperPrior | None
    ) -> HyperPrior | None:
        """The prior, with a density of everything that is sampled."""
        sampled = [part.module() for part in layers] if "theta" in self.sample else []
        if "noise" in self.sample:
            sampled.append(torch.nn.ModuleDict({"likelihood": likelihood}))
        return complete(torch.nn.ModuleList(sampled), prior)

    def _chained(
        self, parts: Parts, layers: Sequence[Inducing], n_chains: int, seed: int
    ) -> tuple[Posterior, HyperPrior | None]:
        """Several models with these layers, which start alike, and the prior of each."""
        family = layers[0]
        if len(layers) > 1:
            widths = [part.n_gps for part in parts.layers[:-1]]
            # Hidden values are drawn once for each row and step.
            rule = MonteCarlo(1, widths, n_settled=1, seed=seed)
            family = Layers(layers, rule, parts.wiring).to(parts.inputs[0])
        places = []
        if "z" in self.sample:
            boxes = map(Box.around, parts.inputs)
            places = [(layer, POINT_PRIORS[self.inducing_prior](box)) for layer, box in zip(layers, boxes, strict=True)]
        if "noise" in self.sample:
            for _, parameter in hyperparameters(parts.likelihood):
                if not parameter.fixed:
                    parameter.expand((n_chains, *parameter.raw.shape))
        prior = parts.prior
        if places or prior is not None:
            prior = HyperPrior([] if prior is None else prior.terms, places)
            prior.chains = (n_chains,)
        return Posterior(family, n_chains, self.sample), prior


def _named(layers: Sequence[LayerParts], likelihood: Likelihood) -> torch.nn.Module:
    """All parts by the names under which priors speak of them."""
    *hidden, last = layers
    return torch.nn.ModuleDict(
        {
            "kernel": last.kernel,
            "mean": last.mean,
            "likelihood": likelihood,
            "hidden": torch.nn.ModuleList([part.module() for part in hidden]),
        }
    )


def _is_count(width: Any) -> bool:
    return isinstance(width, Integral) and int(width) > 0


def _passing_on(x: Tensor, width: int) -> Tensor:
    """A linear function (feature, GP) that keeps what it can of its inputs.

    It is the identity, with zeros in columns beyond that, or where there are fewer GPs than features the projection on
    principal components.
    """
    n_features = x.shape[1]
    if width >= n_features:
        return torch.eye(n_features, width).to(x)
    centred = (x - x.mean(0)).double()
    _, components = torch.linalg.eigh(centred.mT @ centred)
    return components.flip(-1)[:, :width].to(x)
