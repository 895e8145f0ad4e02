"""Where a GP with inducing points starts: kernel, mean and noise close to where they belong, points among the rows."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch
from torch import Tensor

from candid.engines import (
    JITTER,
    SMALL_POINTS,
    Rows,
    find_outliers,
    fit_by_evidence,
    fit_by_neighbours,
    fit_small,
    likeliest_shift,
    nearest_rows,
    place_points,
)
from candid.estimators.fitting import Setting
from candid.estimators.mixed_start import fit_mixed
from candid.families import Centred, Constant, Embedded, Family, Inducing, Linear, Mean, NetworkMean, metric_of
from candid.kernels import Deep, Kernel, Scale, networks_in
from candid.likelihoods import (
    Bernoulli,
    Binomial,
    Coregionalised,
    Gaussian,
    Likelihood,
    NegativeBinomial,
    PartlyObserved,
    StudentT,
)
from candid.parameters import hyperparameters
from candid.priors import HyperPrior
from candid.weights import Full

__all__ = ["FEW_ROWS", "Start", "common_lengthscale", "seen_by"]

#: Up to this many rows hyper-parameters are fitted to the exact marginal likelihood.
FEW_ROWS = 500
# Likelihoods whose surrogates are far from the latent function where events are rare, or failures are.
LEVELLED = (Bernoulli, Binomial, NegativeBinomial)
# Variances of targets so far from one tell that these are not standardised; the noise starts as a share of such.
UNUSUAL, NOISE_SHARE = 100.0, 0.1
# Amplitude of a kernel that should not matter.
FAINT = 1e-6
# A latent function that explains nearly all labels is made so many times larger, in variance, at most.
MOST_LOUDER = 25.0
# How often, at most, a kernel is fitted anew after outliers have been found.
REFITS = 2
# Share of the time that this may take, and that a network may.
WARM_SHARE, NETWORK_SHARE = 0.25, 0.5


@contextmanager
def common_lengthscale(kernel: Kernel) -> Iterator[None]:
    """Lengthscales of all features move together: few labels do not tell features apart."""
    handles = [
        parameter.raw.register_hook(lambda grad: grad.mean(-1, keepdim=True).expand_as(grad))
        for name, parameter in hyperparameters(kernel)
        if name.rpartition(".")[-1] == "lengthscale" and not parameter.fixed
    ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


@dataclass(frozen=True)
class Start:
    """The start of one training run.

    Attributes
    ----------
    setting : Setting
    likelihood : Likelihood
    prior : HyperPrior or None
    seed : int
    weight_decay : float
        Of networks.
    warm : bool
        Whether kernel and mean have been fitted before points are placed, so that distances are known.
    how : {"kmeans", "random"}
        How points are placed.
    in_features : bool
        Whether they are features of rows rather than rows.
    has_points : bool
        Whether there are any; if not, there is no jitter that limits how large a kernel may become.
    """

    setting: Setting
    likelihood: Likelihood
    prior: HyperPrior | None
    seed: int
    weight_decay: float
    warm: bool
    how: str
    in_features: bool
    has_points: bool = True

    def fit(self, kernel: Kernel, mean: Mean) -> None:
        """Move kernel, mean and noise, in place."""
        if isinstance(mean, NetworkMean):
            self._fit_network_mean(kernel, mean)
        elif any(networks_in(kernel)):
            self._fit_deep(kernel, mean)
        else:
            self._fit_plain(kernel, mean)

    def points(self, kernel: Kernel, n_points: int, seed: int) -> Tensor:
        """Inducing points of each output, (P, M, D); from a warm start, distances are in lengthscales."""
        rows = self.setting.rows
        x = _numbers(rows.x)
        if not isinstance(kernel, Deep) or not (self.warm or self.in_features):
            return self._for_each_output(place_points(x, n_points, self.how, seed, self._lengths(kernel, x.shape[1])))
        features = _numbers(_features(kernel, rows))
        lengths = self._lengths(kernel.base, features.shape[1])
        places = place_points(features, n_points, self.how, seed, lengths)
        if self.in_features:
            return self._for_each_output(places)
        unit = np.ones(features.shape[1]) if lengths is None else lengths
        return self._for_each_output(x[nearest_rows(features / unit, places / unit)])

    def given(self, points: np.ndarray) -> Tensor:
        """Points that the user has given, in the units of the table."""
        return self._for_each_output(self.setting.inputs(points))

    def _fit_plain(self, kernel: Kernel, mean: Mean) -> None:
        if isinstance(self.likelihood, Gaussian):
            self._fit_gaussian(kernel, mean, self.likelihood, self.setting.rows)
            return
        if isinstance(self.likelihood, Coregionalised):
            fit_mixed(kernel, mean, self.likelihood, self.setting.rows, partial(self._fit_gaussian, kernel, mean))
            return
        rows, surrogate = self.setting.rows, self.likelihood.surrogate(self.setting.rows.y)
        stand_ins = Rows(rows.x, surrogate.targets, rows.weight, surrogate.variance)
        share = 0.1 if isinstance(self.likelihood, PartlyObserved) else 1.0
        noise = Gaussian(share, self.setting.n_latents, surrogate.variance, rows.weight).to(rows.x)
        few_labels = surrogate.unit is not None and len(rows) <= FEW_ROWS
        with common_lengthscale(kernel) if few_labels else nullcontext():
            self._fit_gaussian(kernel, mean, noise, stand_ins)
            if isinstance(self.likelihood, StudentT):
                self._without_outliers(kernel, mean, noise, stand_ins)
        if noise.noise is not None:
            self.likelihood.adopt(noise.noise.value, rows.y)
            if surrogate.unit is not None:
                _multiply(kernel, mean, (surrogate.unit / noise.noise.value).clamp(1.0, MOST_LOUDER).squeeze(-2))
        if isinstance(self.likelihood, LEVELLED):
            _shift(mean, likeliest_shift(self.likelihood, rows, mean(rows.x), kernel.diagonal(rows.x).mT))

    def _without_outliers(self, kernel: Kernel, mean: Mean, noise: Gaussian, stand_ins: Rows) -> None:
        """Fit again, with outliers replaced by what their neighbours say."""
        for _ in range(REFITS):
            assert noise.noise is not None
            targets = find_outliers(kernel, mean, noise.noise.value, self.setting.rows, stand_ins.y).targets
            if torch.equal(targets, stand_ins.y):
                return
            stand_ins = replace(stand_ins, y=targets)
            self._fit_gaussian(kernel, mean, noise, stand_ins)

    def _fit_gaussian(self, kernel: Kernel, mean: Mean, likelihood: Gaussian, rows: Rows) -> None:
        _meet(kernel, mean, likelihood, rows)
        fit = fit_by_evidence if len(rows) <= FEW_ROWS else fit_by_neighbours
        jitter = JITTER[rows.x.dtype] if self.has_points else None
        seconds = self._seconds(WARM_SHARE)
        fit(kernel, mean, likelihood, self.prior, rows, self.seed, time_budget=seconds, jitter=jitter)

    def _fit_deep(self, kernel: Kernel, mean: Mean) -> None:
        """With the network, in a small model."""
        if self.in_features and isinstance(kernel, Deep):
            self._fit_small(Embedded(kernel.network, self._small(Inducing, kernel, kernel.base, mean)))
        else:
            self._fit_small(self._small(Inducing, kernel, kernel, mean))

    def _fit_network_mean(self, kernel: Kernel, mean: NetworkMean) -> None:
        """The kernel as if the mean were constant, then the mean as if there were hardly any kernel."""
        rows = self.setting.rows
        self._fit_plain(kernel, Constant(mean.n_features, mean.n_outputs).to(rows.x))
        if isinstance(self.likelihood, Gaussian):
            # At first the mean explains nothing.
            _set_noise(self.likelihood, rows.y.var(0, correction=0))
        self._fit_small(self._small(Centred, kernel, _faint(kernel), mean))
        if isinstance(self.likelihood, Gaussian):
            _share_out(kernel, self.likelihood)

    def _small(self, kind: type[Inducing], kernel: Kernel, own: Kernel, mean: Mean) -> Inducing:
        """A model with few points: of ``kernel``'s rows, or of its features if ``own`` is a kernel of these."""
        points = replace(self, warm=False, how="kmeans").points(kernel, SMALL_POINTS, self.seed)
        weights = Full(points.shape[-2], tuple(points.shape[:-2]))
        return kind(own, mean, points, weights, JITTER[points.dtype]).to(points)

    def _fit_small(self, family: Family) -> None:
        rows, seconds = self.setting.rows, self._seconds(NETWORK_SHARE)
        fit_small(family, self.likelihood, self.prior, rows, self.seed, self.weight_decay, seconds)

    def _lengths(self, kernel: Kernel, n_features: int) -> np.ndarray | None:
        return _numbers(metric_of(kernel, n_features)) if self.warm else None

    def _for_each_output(self, points: np.ndarray) -> Tensor:
        rows = self.setting.rows
        return torch.as_tensor(points).to(rows.x).expand(self.setting.n_latents, *points.shape)

    def _seconds(self, share: float) -> float | None:
        time_left = self.setting.budget.left()
        return None if time_left is None else share * time_left


@torch.no_grad()
def seen_by(family: Family, rows: Rows) -> Rows:
    """The rows as inducing points see them: behind a network if there is one in front of the family."""
    return replace(rows, x=_features(family, rows)) if isinstance(family, Embedded) else rows


@torch.no_grad()
def _features(owner: Deep | Embedded, rows: Rows) -> Tensor:
    (features,) = owner.network.settled(rows.x)
    return features


@torch.no_grad()
def _set_noise(likelihood: Gaussian, variance: Tensor) -> None:
    """Unless the noise is known or fixed."""
    noise = likelihood.noise
    if noise is not None and not noise.fixed:
        noise.set(variance.expand_as(noise.value).clamp_min(2 * noise.lower))


@torch.no_grad()
def _meet(kernel: Kernel, mean: Mean, likelihood: Gaussian, rows: Rows) -> None:
    """Begin at level and size of targets that are not standardised: steps of a usual length would not get there."""
    level, variance = rows.weight @ rows.y / rows.total, rows.y.var(0, correction=0)
    if isinstance(mean, (Constant, Linear)) and not mean.constant.fixed:
        present = mean.constant.value
        mean.constant.set(torch.where((level - present).abs() > variance.sqrt(), level, present))
    unusual = (variance > UNUSUAL) | ((variance < 1 / UNUSUAL) & (variance > 0))
    if isinstance(kernel, Scale) and not kernel.amplitude.fixed and kernel.amplitude.upper == math.inf:
        present = kernel.amplitude.value
        kernel.amplitude.set(torch.where(unusual, variance, present).reshape(present.shape))
    if likelihood.noise is not None and likelihood.noise.upper == math.inf:
        _set_noise(likelihood, torch.where(unusual, NOISE_SHARE * variance, likelihood.noise.value))


@torch.no_grad()
def _shift(mean: Mean, amount: Tensor) -> None:
    """Add a constant, where the mean function has one."""
    if isinstance(mean, (Constant, Linear)) and not mean.constant.fixed:
        mean.constant.set(mean.constant.value + amount)


@torch.no_grad()
def _multiply(kernel: Kernel, mean: Mean, factor: Tensor) -> None:
    """Multiply the variance of each output, as far as a kernel with an amplitude that is not fixed allows."""
    if not isinstance(kernel, Scale) or kernel.amplitude.fixed:
        return
    kernel.amplitude.set(kernel.amplitude.value * factor.reshape(kernel.amplitude.raw.shape))
    for _, parameter in hyperparameters(mean):
        if not parameter.fixed:
            parameter.set(parameter.value * factor.sqrt())


@torch.no_grad()
def _faint(kernel: Kernel) -> Kernel:
    """A copy of hardly any variance, which stays so; a kernel without an amplitude cannot be told to."""
    faint = copy.deepcopy(kernel)
    if isinstance(faint, Scale):
        faint.amplitude.set(torch.full_like(faint.amplitude.value, FAINT))
        faint.amplitude.fix()
    return faint


@torch.no_grad()
def _share_out(kernel: Kernel, likelihood: Gaussian) -> None:
    """Give the kernel one half of what the mean leaves over, and the noise the other."""
    if likelihood.noise is not None and isinstance(kernel, Scale) and not kernel.amplitude.fixed:
        half = 0.5 * likelihood.noise.value
        kernel.amplitude.set(half.reshape(kernel.amplitude.raw.shape))
        _set_noise(likelihood, half)


def _numbers(values: Tensor) -> np.ndarray:
    return values.double().cpu().numpy()
