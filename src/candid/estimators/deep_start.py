"""Where a deep GP starts: hidden layers that pass on what matters of what they see, and a last layer that fits it.

- A hidden layer starts as linear functions of what it sees: regressions of the targets, and principal components of
  what is left, in which a column counts the more the shorter its lengthscale is in a GP of a single layer. Its GPs are
  small beside these linear functions, and have the lengthscales of that single layer.
- The last layer starts as a single layer would on what then reaches it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from candid.engines import Rows, match_noise, place_points, solve_weights
from candid.estimators.deep_parts import LayerParts, first_gps, repeat_gps
from candid.estimators.fitting import Setting
from candid.estimators.pace import share_of_many
from candid.estimators.start import Start
from candid.families import Constant, Inducing, Linear, Wiring, metric_of
from candid.kernels import Deep, Features, Kernel, Scale
from candid.likelihoods import Gaussian
from candid.priors import HyperPrior

__all__ = ["DeepStart"]

# q(u) has a closed form for every β > 0, and takes this one for β = 0.
LEAST_BETA = 1e-3
# Amplitude of hidden GPs; their linear mean functions have values of unit variance.
HIDDEN_AMPLITUDE = 0.1
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
    likelihood : Gaussian
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
    likelihood: Gaussian
    prior: HyperPrior | None
    seed: int
    weight_decay: float
    wiring: Wiring
    covariance: str
    n_inducing: int
    beta: float
    objective: str

    def fit_network(self, network: Features, kernel: Kernel) -> None:
        """Train a network, in place, in front of a small model with a kernel like this."""
        rows = self.setting.rows
        small = first_gps(kernel, 1).to(rows.x)
        likelihood = _gaussian(rows, 1)
        start = self._start(_of_output(rows, 0), likelihood, in_features=True)
        start.fit(Deep(network, small), _constant(network.width, rows.x))

    @torch.no_grad()
    def cold(self, parts: Sequence[LayerParts], x: Tensor, how: str) -> list[Inducing]:
        """Inducing points among the inputs of each layer, linear mean functions at random, and nothing else known."""
        layers, below = [], None
        for number, part in enumerate(parts):
            inputs, mean_inputs = self._seen(number, x, below)
            if isinstance(part.mean, Linear) and number < len(parts) - 1:
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
        rows = replace(self.setting.rows, x=x)
        n_kinds = min(part.n_gps, rows.y.shape[1])
        kernel = first_gps(part.kernel, n_kinds)
        self._start(_columns(rows, n_kinds), _gaussian(rows, n_kinds)).fit(kernel, _constant(x.shape[1], x, n_kinds))
        lengths = metric_of(kernel, x.shape[1]).to(x)
        layer = part.layer(self._places(part, x, "kmeans", lengths), self.covariance)
        with torch.no_grad():
            repeat_gps(layer.kernel, kernel)
            _set_amplitude(layer.kernel)
            identity = torch.eye(layer.points.shape[-2]).to(x)
            layer.weights.assign(layer.weights.mean, HIDDEN_PRECISION * identity.expand(part.n_gps, -1, -1))
            columns = lengths if mean_x.shape[-1] == len(lengths) else torch.ones(mean_x.shape[-1]).to(x)
            assert isinstance(layer.mean, Linear)
            layer.mean.slope.set(_directions(mean_x, rows.y, columns, part.n_gps, self.seed))
        return layer

    def _last(self, part: LayerParts, rows: Rows) -> Inducing:
        """As a single layer starts."""
        start = self._start(rows, self.likelihood, self.prior)
        start.fit(part.kernel, part.mean)
        layer = part.layer(start.points(part.kernel, self.n_inducing, self.seed), self.covariance)
        bound = self.objective != "predictive"
        match_noise(layer, self.likelihood, self.prior, rows, share=1.0 if bound else 0.5)
        openness = 0.0 if bound else share_of_many(len(rows))
        solve_weights(layer, self.likelihood, rows, max(self.beta, LEAST_BETA), not bound, openness)
        return layer

    def _start(
        self, rows: Rows, likelihood: Gaussian, prior: HyperPrior | None = None, in_features: bool = False
    ) -> Start:
        setting = replace(self.setting, rows=rows, n_latents=rows.y.shape[1])
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


def _set_amplitude(kernel: Kernel) -> None:
    """Unless there is none, or it is fixed; a bound is respected."""
    if isinstance(kernel, Scale) and not kernel.amplitude.fixed:
        amplitude = kernel.amplitude
        amplitude.set(min(max(HIDDEN_AMPLITUDE, 1.001 * amplitude.lower), 0.999 * amplitude.upper))


def _gaussian(rows: Rows, n_outputs: int) -> Gaussian:
    """A likelihood of the first outputs."""
    known = None if rows.noise is None else rows.noise[:, :n_outputs]
    return Gaussian(n_outputs=n_outputs, known=known, weight=rows.weight).to(rows.x)


def _columns(rows: Rows, n_outputs: int) -> Rows:
    """The rows with the first outputs."""
    return replace(rows, y=rows.y[:, :n_outputs], noise=None if rows.noise is None else rows.noise[:, :n_outputs])


def _of_output(rows: Rows, output: int) -> Rows:
    """The rows with one of the outputs."""
    one = slice(output, output + 1)
    return replace(rows, y=rows.y[:, one], noise=None if rows.noise is None else rows.noise[:, one])


def _constant(n_features: int, like: Tensor, n_outputs: int = 1) -> Constant:
    return Constant(n_features, n_outputs).to(like)


def _numbers(values: Tensor) -> np.ndarray:
    return values.detach().double().cpu().numpy()
