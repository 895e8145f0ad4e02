"""What a GP with inducing points is made of: kernels and networks, mean function, inducing points, family."""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
import torch
from sklearn.utils._param_validation import Interval, StrOptions
from torch import Tensor

from candid.engines import JITTER
from candid.estimators.core import gp_estimator
from candid.estimators.gp import GP
from candid.estimators.start import Start
from candid.families import (
    Centred,
    Conditional,
    Decoupled,
    Embedded,
    Inducing,
    Mean,
    NetworkMean,
    Orthogonal,
    Sparse,
    decoupled_kernel,
)
from candid.kernels import Deep, Kernel, make_network
from candid.weights import WEIGHTS

__all__ = ["SparseParts"]

# Ω is estimated from so many draws of q(u): in a step it counts little, and exactly it would take half of the time.
OMEGA_DRAWS = 16


@gp_estimator
class SparseParts(GP):
    """Parameters that shape a GP with inducing points, and the parts that they stand for."""

    covariance: str = "full"
    decouple: str | None = None
    decoupled: tuple[str, ...] = ("lengthscale",)
    whiten: str = "mean"
    omega_weight: float = 0.001
    omega_scale: str = "paper"
    features: str | tuple[int, ...] | torch.nn.Module | None = None
    covariance_features: str | tuple[int, ...] | torch.nn.Module | None = "same"
    inducing_space: str = "input"
    n_inducing: int = 500
    n_mean_inducing: int | None = None
    init: str | np.ndarray = "warm"

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **GP._parameter_constraints,
        "covariance": [StrOptions({"none", "diagonal", "full"})],
        "decouple": [StrOptions({"inducing", "orthogonal", "kernel", "features", "mean"}), None],
        "decoupled": [tuple, list],
        "whiten": [StrOptions({"mean", "covariance"})],
        "omega_weight": [Interval(Real, 0, None, closed="left")],
        "omega_scale": [StrOptions({"paper", "n_over_b"})],
        "features": [str, tuple, list, torch.nn.Module, None],
        "covariance_features": [str, tuple, list, torch.nn.Module, None],
        "inducing_space": [StrOptions({"input", "feature"})],
        "n_inducing": [Interval(Integral, 1, None, closed="left")],
        "n_mean_inducing": [Interval(Integral, 1, None, closed="left"), None],
        "init": [StrOptions({"warm", "kmeans", "random"}), "array-like"],
    }
    _shaping: ClassVar[tuple[str, ...]] = (
        *GP._shaping,
        "covariance",
        "decouple",
        "decoupled",
        "whiten",
        "omega_weight",
        "omega_scale",
        "features",
        "covariance_features",
        "inducing_space",
        "dtype",
    )

    @property
    def _warm(self) -> bool:
        """Whether a new model starts close to the optimum."""
        return not (isinstance(self.init, str) and self.init in ("kmeans", "random"))

    @property
    def _same_features(self) -> bool:
        return isinstance(self.covariance_features, str) and self.covariance_features == "same"

    def _make_kernel(self, n_features: int, n_outputs: int, seed: int) -> Kernel:
        """That of the covariance."""
        if self.decouple == "mean":
            features = None
        else:
            features = self.features if self._same_features else self.covariance_features
        return self._kernel_behind(features, n_features, n_outputs, seed)

    def _kernel_behind(self, features: Any, n_features: int, n_outputs: int, seed: int) -> Kernel:
        """The kernel of the inputs, or of what a network makes of them."""
        if features is None:
            return super()._make_kernel(n_features, n_outputs, seed)
        network = make_network(features, n_features, seed)
        return Deep(network, super()._make_kernel(network.width, n_outputs, seed))

    def _make_mean(self, kernel: Kernel, n_features: int, n_outputs: int, seed: int) -> Mean:
        if self.decouple == "mean":
            return NetworkMean(self.features, n_features, n_outputs, seed=seed)
        if self.inducing_space == "feature":
            if not isinstance(kernel, Deep):
                raise ValueError("inducing_space='feature' needs a network: give features, for example features='dc'")
            # The mean sees what the inducing points see.
            n_features = kernel.network.width
        return super()._make_mean(kernel, n_features, n_outputs, seed)

    def _family(self, start: Start, kernel: Kernel, mean: Mean) -> Sparse | Embedded:
        """The family with its inducing points in place, and nothing else known."""
        points = self._points(start, kernel)
        more = {}
        if self.decouple in ("inducing", "orthogonal"):
            more["mean_points"] = start.points(kernel, self.n_mean_inducing or self.n_inducing, start.seed + 1)
        if self.inducing_space == "feature":
            assert isinstance(kernel, Deep)
            return Embedded(kernel.network, self._sparse(start, kernel.base, mean, points, **more))
        return self._sparse(start, kernel, mean, points, **more)

    def _sparse(
        self, start: Start, kernel: Kernel, mean: Mean, points: Tensor, mean_points: Tensor | None = None
    ) -> Sparse:
        made_of = self._composition()
        weights = WEIGHTS[str(made_of.weights)](points.shape[-2], tuple(points.shape[:-2])).to(points)
        jitter = JITTER[points.dtype]
        if made_of.family == "conditional":
            omega = {
                "with_omega": self.omega_weight > 0,
                "omega_scale": self.omega_scale,
                "omega_draws": OMEGA_DRAWS,
                "seed": start.seed,
            }
            mean_kernel = self._mean_kernel(start, kernel, mean)
            family = Conditional(kernel, mean_kernel, mean, points, weights, jitter, self.whiten, **omega)
        elif mean_points is not None:
            kind = Decoupled if made_of.family == "decoupled" else Orthogonal
            family = kind(kernel, mean, mean_points, points, weights, jitter)
        else:
            kind = Centred if made_of.family == "centred" else Inducing
            family = kind(kernel, mean, points, weights, jitter)
        return family.to(points)

    def _mean_kernel(self, start: Start, kernel: Kernel, mean: Mean) -> Kernel:
        """That of the mean: it starts at the covariance's, or has been fitted in the same way."""
        if self.decouple == "kernel":
            return decoupled_kernel(kernel, tuple(self.decoupled))
        if self._same_features:
            return decoupled_kernel(kernel, ("network",))
        rows = start.setting.rows
        own = self._kernel_behind(self.features, rows.x.shape[1], start.setting.n_latents, start.seed + 1).to(rows.x)
        if self._warm:
            start.fit(own, mean)
        return own.unit

    def _points(self, start: Start, kernel: Kernel) -> Tensor:
        """Inducing points of each output, (P, M, D)."""
        if isinstance(self.init, str):
            return start.points(kernel, self.n_inducing, start.seed)
        n_features = start.setting.rows.x.shape[1]
        given = np.asarray(self.init, dtype=np.float64)
        if given.ndim != 2 or given.shape[1] != n_features or not len(given):
            raise ValueError(f"init must have shape (M, {n_features}), a column for each feature; got {given.shape}")
        if not np.isfinite(given).all():
            raise ValueError("init has inducing points at NaN or infinity; give finite ones, in the units of X")
        return start.given(given)
