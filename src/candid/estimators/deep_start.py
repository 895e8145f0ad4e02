"""Where a deep GP starts: hidden layers that pass on what matters of what they see, and a last layer that fits it.

- A hidden layer starts as linear functions of what it sees: regressions of the targets, and principal components of
  what is left, in which a column counts the more the shorter its lengthscale is in a GP of a single layer. Its GPs are
  small beside these linear functions, and have the lengthscales of that single layer.
- The last layer starts as a single layer would on what then reaches it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from candid.engines import Problem, Rows, place_points
from candid.estimators.deep_parts import LayerParts, first_gps, repeat_gps
from candid.estimators.fitting import Setting
from candid.estimators.start import FEW_ROWS, Start, common_lengthscale
from candid.estimators.start_weights import start_weights
from candid.families import Constant, Inducing, Linear, Wiring, metric_of
from candid.kernels import Deep, Features, Kernel, Scale
from candid.likelihoods import Gaussian, Likelihood, Surrogate
from candid.priors import HyperPrior

__all__ = ["DeepStart", "quieten"]

# Amplitude of hidden GPs, unless they have to be quieter; their linear mean functions have values of unit variance.
HIDDEN_AMPLITUDE = 0.1
# Hidden GPs that cost each row so many nats more than with a tenth of their amplitude are too loud; how many tenths may
# be taken.
LOUD, TENTHS = 1.0, 5
# Precision of q(v) of hidden GPs, in units of the prior's.
HIDDEN_PRECISION = 10.0
# Directions of less than this share of the largest spread do not count in linear regressions.
REGRESSION_TOLERANCE = 1e-6
# Rows that pass through a layer at once.
CHUNK = 8192


@dataclass(frozen=True)
class DeepStart:
    """The start of one training run.

    Attributes
    ----------
    setting : Setting
    likelihood : Likelihood
    prior : HyperPrior or None
    seed : int
    weight_decay : float
        Of a network.
    wiring : Wiring
    covariance : str
        Of q(u).
    n_inducing : int
    beta : float
    objective : str
    """

    setting: Setting
    likelihood: Likelihood
    prior: HyperPrior | None
    seed: int
    weight_decay: float
    wiring: Wiring
    covariance: str
    n_inducing: int
    beta: float
    objective: str

    def fit_network(self, network: Features, part: LayerParts) -> None:
        """Train a network, in place, in front of a small model with kernels like those of the first layer."""
        rows = self._first_targets(self.setting.rows.x, part.n_gps)
        kernel = Deep(network, first_gps(part.kernel, rows.y.shape[1]).to(rows.x))
        self._single(rows, in_features=True).fit(kernel, _constant(network.width, rows))

    @torch.no_grad()
    def cold(self, parts: Sequence[LayerParts], x: Tensor, how: str) -> list[Inducing]:
        """Inducing points among the inputs of each layer, linear mean functions at random, and nothing else known."""
        layers, below = [], None
        for number, part in enumerate(parts):
            inputs, mean_inputs = self._seen(number, x, below)
            if isinstance(part.mean, Linear) and number < len(parts) - 1 and not part.mean.slope.fixed:
                generator = torch.Generator().manual_seed(self.seed + number)
                slope = torch.randn(part.mean.slope.raw.shape, generator=generator) / part.mean.n_features**0.5
                part.mean.slope.set(slope)
            layers.append(part.layer(self._places(part, inputs, how), self.covariance))
            below = _means(layers[-1], inputs, mean_inputs)
        return layers

    def warm(self, parts: Sequence[LayerParts], x: Tensor) -> list[Inducing]:
        """From the first layer to the last."""
        layers, below = [], None
        for number, part in enumerate(parts[:-1]):
            inputs, mean_inputs = self._seen(number, x, below)
            layers.append(self._hidden(part, inputs, mean_inputs))
            below = _means(layers[-1], inputs, mean_inputs)
        inputs, _ = self._seen(len(parts) - 1, x, below)
        return [*layers, self._last(parts[-1], replace(self.setting.rows, x=inputs))]

    def _hidden(self, part: LayerParts, x: Tensor, mean_x: Tensor) -> Inducing:
        """GPs that hardly differ from their linear mean functions."""
        rows = self._first_targets(x, part.n_gps)
        kernel = first_gps(part.kernel, rows.y.shape[1])
        few_labels = self._stand_ins.unit is not None and len(rows) <= FEW_ROWS
        with common_lengthscale(kernel) if few_labels else nullcontext():
            self._single(rows).fit(kernel, _constant(x.shape[1], rows))
        lengths = metric_of(kernel, x.shape[1]).to(x)
        layer = part.layer(self._places(part, x, "kmeans", lengths), self.covariance)
        with torch.no_grad():
            repeat_gps(layer.kernel, kernel)
            _set_amplitude(layer.kernel, HIDDEN_AMPLITUDE)
            identity = torch.eye(layer.points.shape[-2]).to(x)
            layer.weights.assign(layer.weights.mean, HIDDEN_PRECISION * identity.expand(part.n_gps, -1, -1))
            columns = lengths if mean_x.shape[-1] == len(lengths) else torch.ones(mean_x.shape[-1]).to(x)
            assert isinstance(layer.mean, Linear)
            if not layer.mean.slope.fixed:
                layer.mean.slope.set(_directions(mean_x, self._stand_ins.targets, columns, part.n_gps, self.seed))
        return layer

    def _last(self, part: LayerParts, rows: Rows) -> Inducing:
        """As a single layer starts."""
        start = self._start(replace(self.setting, rows=rows), self.likelihood, self.prior)
        start.fit(part.kernel, part.mean)
        layer = part.layer(start.points(part.kernel, self.n_inducing, self.seed), self.covariance)
        start_weights(layer, self.likelihood, self.prior, rows, self.objective, self.beta)
        return layer

    @cached_property
    def _stand_ins(self) -> Surrogate:
        """Real numbers in place of observations, for layers that do not see these."""
        return self.likelihood.surrogate(self.setting.rows.y)

    def _first_targets(self, x: Tensor, most: int) -> Rows:
        """Rows of inputs ``x`` with so many of the stand-ins, at most."""
        targets, variance = self._stand_ins.targets, self._stand_ins.variance
        known = None if variance is None else variance[:, :most]
        return Rows(x, targets[:, :most], self.setting.rows.weight, known)

    def _single(self, rows: Rows, in_features: bool = False) -> Start:
        """The start of a single layer with normal noise."""
        n_outputs = rows.y.shape[1]
        likelihood = Gaussian(n_outputs=n_outputs, known=rows.noise, weight=rows.weight).to(rows.x)
        setting = replace(self.setting, rows=rows, n_latents=n_outputs)
        return self._start(setting, likelihood, None, in_features)

    def _start(
        self, setting: Setting, likelihood: Likelihood, prior: HyperPrior | None, in_features: bool = False
    ) -> Start:
        return Start(setting, likelihood, prior, self.seed, self.weight_decay, True, "kmeans", in_features)

    def _seen(self, number: int, x: Tensor, below: Tensor | None) -> tuple[Tensor, Tensor]:
        """What kernel and mean function of a layer see where all hidden values are at their means."""
        return self.wiring.inputs(number, x, None if below is None else below.unsqueeze(-3))

    def _places(self, part: LayerParts, x: Tensor, how: str, lengths: Tensor | None = None) -> Tensor:
        """Inducing points of each GP of a layer, (GP, M, feature)."""
        rows, metric = _numbers(x), None if lengths is None else _numbers(lengths)
        sets = [place_points(rows, self.n_inducing, how, self.seed + gp, metric) for gp in range(part.n_gps)]
        # Equal centres count once, and not every set has them.
        least = min(map(len, sets))
        return torch.as_tensor(np.stack([places[:least] for places in sets])).to(x)


@torch.no_grad()
def _means(layer: Inducing, x: Tensor, mean_x: Tensor) -> Tensor:
    """Means of the GPs of a layer at all rows, (row, GP)."""
    pairs = zip(x.split(CHUNK), mean_x.split(CHUNK), strict=True)
    return torch.cat([layer.marginal(*pair).mean for pair in pairs])


def _directions(x: Tensor, y: Tensor, lengths: Tensor, number: int, seed: int) -> Tensor:
    """Linear functions with values of unit variance, (feature, function), of x/lengths.

    First those of linear regressions of the targets, which take up to one half of them, then principal components of
    what is left; and where there are more functions than features, random ones.
    """
    scaled, targets = ((values - values.mean(0)).double() for values in (x, y))
    scaled = scaled / lengths.double()
    basis, size, _ = torch.linalg.svd(torch.linalg.pinv(scaled, rtol=REGRESSION_TOLERANCE) @ targets)
    slopes = basis[:, : int((size > 0).sum())][:, : max(number // 2, 1)]
    rest = scaled - scaled @ slopes @ slopes.mT
    _, components = torch.linalg.eigh(rest.mT @ rest)
    generator = torch.Generator().manual_seed(seed)
    random = torch.randn(x.shape[1], max(number - x.shape[1], 0), generator=generator).to(scaled)
    directions = torch.cat([slopes, components.flip(-1)[:, : x.shape[1] - slopes.shape[1]], random], -1)[:, :number]
    deviation = (scaled @ directions).std(0, correction=0)
    return (directions / torch.where(deviation > 0, deviation, 1.0) / lengths.double().unsqueeze(-1)).to(x)


def quieten(problem: Problem, hidden: Sequence[Inducing], rows: Rows, batch_size: int) -> None:
    """Make hidden GPs smaller, in place, for as long as their amplitude costs much more than a tenth of it would.

    Where lengthscales of the last layer are short, what hidden values scatter at random looks like noise of the
    targets; a noise variance that has once learned that much takes long to come back. Of a kernel whose amplitude is
    fixed, or inside a sum, nothing is changed.
    """

    def cost(amplitude: float) -> float:
        _set_amplitudes(hidden, amplitude)
        loss = problem.standing(rows, batch_size)
        return math.inf if math.isnan(loss) else loss

    amplitude = HIDDEN_AMPLITUDE
    loss = cost(amplitude)
    for _ in range(TENTHS):
        quieter = cost(0.1 * amplitude)
        if loss - quieter < LOUD:
            break
        amplitude, loss = 0.1 * amplitude, quieter
    _set_amplitudes(hidden, amplitude)


def _set_amplitudes(layers: Sequence[Inducing], value: float) -> None:
    for layer in layers:
        _set_amplitude(layer.kernel, value)


def _set_amplitude(kernel: Kernel, value: float) -> None:
    """Unless there is none, or it is fixed; a bound is respected."""
    if isinstance(kernel, Scale) and not kernel.amplitude.fixed:
        amplitude = kernel.amplitude
        amplitude.set(min(max(value, 1.001 * amplitude.lower), 0.999 * amplitude.upper))


def _constant(n_features: int, rows: Rows) -> Constant:
    return Constant(n_features, rows.y.shape[1]).to(rows.x)


def _numbers(values: Tensor) -> np.ndarray:
    return values.detach().double().cpu().numpy()
