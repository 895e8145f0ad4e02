"""Where chains start: hyper-parameters at an optimum, inducing values drawn from what is known of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
import torch
from torch import Tensor

from candid.engines import fit_points
from candid.estimators.bayesian_parts import Parts
from candid.estimators.deep_parts import LayerParts
from candid.estimators.deep_start import DeepStart
from candid.estimators.fitting import Setting
from candid.estimators.start import Start
from candid.estimators.start_weights import start_weights
from candid.families import Inducing, Layers
from candid.kernels import Kernel
from candid.likelihoods import Gaussian

__all__ = ["ChainStart", "draw_values"]

# Bounds whose best q(u) is close to the posterior of u under an objective: they treat the residual alike.
BOUNDS: Mapping[str, str] = MappingProxyType({"fitc": "vfitc", "vfe": "elbo"})
# Evidences in which u is integrated as an objective has it, and the share of the time that they may take. They see at
# most so many rows; with no more than the least number, points would find places for the noise of single rows.
EVIDENCES: Mapping[str, str] = MappingProxyType({"fitc": "fitc", "vfe": "sgpr"})
EVIDENCE_SHARE, LEAST_ROWS, MOST_ROWS = 0.25, 200, 5000


@dataclass(frozen=True)
class ChainStart:
    """The start of the chains of one model.

    Attributes
    ----------
    setting : Setting
        Its start, if there is one, is a single model.
    parts : Parts
    seed : int
    n_inducing : int
    init : {"warm", "kmeans", "random"} or array of shape (M, D)
    objective : {"fitc", "vfe"}
    """

    setting: Setting
    parts: Parts
    seed: int
    n_inducing: int
    init: str | np.ndarray
    objective: str

    def layers(self) -> list[Inducing]:
        """Layers with inducing points and, from a warm start, a q(u) with a covariance."""
        if len(self.parts.layers) == 1:
            return [self._single(self.parts.layers[0])]
        return self._earlier() or self._deep()

    @property
    def _warm(self) -> bool:
        return not (isinstance(self.init, str) and self.init in ("kmeans", "random"))

    @property
    def _covariance(self) -> str:
        return "full" if self._warm else "delta"

    def _single(self, part: LayerParts) -> Inducing:
        setting, likelihood, prior = self.setting, self.parts.likelihood, self.parts.prior
        how = "random" if isinstance(self.init, str) and self.init == "random" else "kmeans"
        start = Start(setting, likelihood, prior, self.seed, 0.0, self._warm, how, in_features=False)
        if self._warm and setting.start is None:
            start.fit(part.kernel, part.mean)
        points = self._points(start, part.kernel)
        anew = setting.start is None and isinstance(self.init, str) and self.init == "warm"
        improved = False
        if anew and isinstance(likelihood, Gaussian) and len(setting.rows) > LEAST_ROWS:
            points, improved = self._improved(part, points, likelihood), True
        layer = part.layer(points, self._covariance)
        if self._warm:
            # To what the points cannot explain, "fitc" has variances of its own.
            bound, settled = BOUNDS[self.objective], improved and self.objective == "fitc"
            start_weights(layer, likelihood, prior, setting.rows, bound, beta=1.0, noise_is_settled=settled)
        return layer

    def _points(self, start: Start, kernel: Kernel) -> Tensor:
        """Inducing points of each output, (P, M, D)."""
        if self.setting.start is not None:
            earlier = self.setting.start.family
            assert isinstance(earlier, Inducing)
            wanted = self.n_inducing if isinstance(self.init, str) else 1
            if not self.setting.outgrown(earlier.points.shape[-2], wanted):
                return earlier.points.detach()
        if isinstance(self.init, str):
            return start.points(kernel, self.n_inducing, self.seed)
        return start.given(self._given_points(self.init))

    def _improved(self, part: LayerParts, points: Tensor, likelihood: Gaussian) -> Tensor:
        """Better places of the points; kernel and mean move, in place, with them.

        Samples would find all that, too, but in far more steps than an optimiser needs.
        """
        rows, seconds = self.setting.rows, self.setting.budget.left()
        if len(rows) > MOST_ROWS:
            some = torch.randperm(len(rows), generator=torch.Generator().manual_seed(self.seed))[:MOST_ROWS]
            rows, likelihood = rows.subset(some), likelihood.subset(some)
        layer = part.layer(points, "solved")
        time_budget = None if seconds is None else EVIDENCE_SHARE * seconds
        share = rows.total / self.setting.rows.total
        fit_points(layer, likelihood, self.parts.prior, rows, EVIDENCES[self.objective], self.seed, share, time_budget)
        return layer.points.detach()

    def _given_points(self, init: np.ndarray) -> np.ndarray:
        n_features = self.setting.rows.x.shape[1]
        given = np.asarray(init, dtype=np.float64)
        if given.ndim != 2 or given.shape[1] != n_features or not len(given):
            raise ValueError(f"init must have shape (M, {n_features}), a column for each feature; got {given.shape}")
        if not np.isfinite(given).all():
            raise ValueError("init has inducing points at NaN or infinity; give finite ones, in the units of X")
        return given

    def _deep(self) -> list[Inducing]:
        parts, rows = self.parts, self.setting.rows
        start = DeepStart(
            setting=self.setting,
            likelihood=parts.likelihood,
            prior=parts.prior,
            seed=self.seed,
            weight_decay=0.0,
            wiring=parts.wiring,
            covariance=self._covariance,
            n_inducing=self.n_inducing,
            beta=1.0,
            objective=BOUNDS[self.objective],
        )
        if self._warm:
            return start.warm(parts.layers, rows.x)
        return start.cold(parts.layers, rows.x, str(self.init))

    def _earlier(self) -> list[Inducing]:
        """The layers of the model that training goes on from; none if there is no such, or it had far fewer points."""
        start = self.setting.start
        if start is None:
            return []
        assert isinstance(start.family, Layers)
        if self.setting.outgrown(start.family.last.points.shape[-2], self.n_inducing):
            return []
        self.parts.likelihood.load_state_dict(start.likelihood.state_dict())
        layers = []
        for part, earlier in zip(self.parts.layers, start.family.layers, strict=True):
            assert isinstance(earlier, Inducing)
            layer = part.layer(earlier.points.detach(), "delta")
            layer.load_state_dict(earlier.state_dict())
            layers.append(layer)
        return layers


@torch.no_grad()
def draw_values(layers: Sequence[Inducing], n_chains: int, seed: int, at_mean: bool) -> list[Tensor]:
    """Inducing values of each layer, (chain, GP, M): drawn from q(u), or at its mean."""
    values, generator = [], torch.Generator().manual_seed(seed)
    for layer in layers:
        mean, root = layer.weights.mean, layer.weights.root()
        together = mean.expand(n_chains, *mean.shape)
        if root is not None and not at_mean:
            numbers = torch.randn(*together.shape, 1, generator=generator).to(mean)
            together = together + (root @ numbers).squeeze(-1)
        values.append(together)
    return values
