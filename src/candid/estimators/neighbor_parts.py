"""GPs of nearest neighbours at their starting point."""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Integral, Real
from types import MappingProxyType
from typing import Any, ClassVar

import torch
from sklearn.utils._param_validation import Interval, StrOptions

from candid.engines import Problem, Rows, find_outliers
from candid.estimators.core import gp_estimator
from candid.estimators.fitting import Setting
from candid.estimators.gp import GP
from candid.estimators.start import Start
from candid.families import ALC, SEARCHES, CoregionalisedNeighbours, Family, Mean, Neighbours, pick_search
from candid.kernels import Deep, Kernel, make_network, networks_in
from candid.likelihoods import CoregionalisedSites, Sites, StudentTSites, make_sites
from candid.methods import NEIGHBOURS, Composition

__all__ = ["NeighborParts"]

#: Objectives that go with a network.
BEHIND_NETWORKS = ("loo", "mll", "vecchia")
# Behind a network, neighbours are searched anew after a step for every so many rows, if not sooner: at least ten times
# while a short table is trained. Rows that are not each other's neighbours may otherwise get the same features.
ROWS_PER_REFRESH = 40
KINDS: Mapping[str, type[Neighbours]] = MappingProxyType({"loo": Neighbours, "mll": Neighbours, "alc": ALC})


@gp_estimator
class NeighborParts(GP):
    """What a GP of nearest neighbours is made of; see the final classes for the parameters."""

    objective: str = "loo"
    n_neighbors: int | str = 64
    search: str = "auto"
    refresh: int = 50
    features: str | tuple[int, ...] | torch.nn.Module | None = None
    weight_decay: float = 0.003
    init: str = "warm"
    batch_size: int = 128

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **GP._parameter_constraints,
        "objective": [StrOptions(set(NEIGHBOURS))],
        "n_neighbors": [Interval(Integral, 1, None, closed="left"), StrOptions({"auto"})],
        "search": [StrOptions({"auto", *SEARCHES})],
        "refresh": [Interval(Integral, 1, None, closed="left")],
        "features": [str, tuple, list, torch.nn.Module, None],
        "weight_decay": [Interval(Real, 0, None, closed="left")],
        "init": [StrOptions({"warm", "cold"})],
    }
    _shaping: ClassVar[tuple[str, ...]] = (*GP._shaping, "objective", "features")

    def _composition(self) -> Composition:
        return NEIGHBOURS[self.objective]

    def _model_dtype(self) -> torch.dtype:
        return getattr(torch, self.dtype)

    def _make_kernel(self, n_features: int, n_outputs: int, seed: int) -> Kernel:
        if self.features is None:
            kernel = super()._make_kernel(n_features, n_outputs, seed)
        else:
            network = make_network(self.features, n_features, seed)
            kernel = Deep(network, super()._make_kernel(network.width, n_outputs, seed))
        if any(networks_in(kernel)):
            self._check_network(kernel)
        return kernel

    def _check_network(self, kernel: Kernel) -> None:
        if not isinstance(kernel, Deep):
            raise ValueError(
                "neighbours are searched among the features of one network, which is in front of all of the kernel; "
                "give it as features, or as kernel=Deep(features, kernel)"
            )
        if self.objective not in BEHIND_NETWORKS:
            raise ValueError(
                f"objective={self.objective!r} has no network; use objective='loo', or SparseGPRegressor(features=...)"
            )

    def _make_mean(self, kernel: Kernel, n_features: int, n_outputs: int, seed: int) -> Mean:
        # The mean sees what neighbours are searched by.
        width = kernel.network.width if isinstance(kernel, Deep) else n_features
        return super()._make_mean(kernel, width, n_outputs, seed)

    def _build(self, setting: Setting, seed: int) -> Problem:
        rows = setting.rows
        kernel, mean, likelihood, prior = self._parts(setting, seed)
        sites = make_sites(likelihood, rows.y, rows.weight, seed)
        if setting.start is None and self.init == "warm":
            where = {"warm": True, "how": "kmeans", "in_features": True, "has_points": False}
            Start(setting, likelihood, prior, seed, self.weight_decay, **where).fit(kernel, mean)
            if isinstance(sites, StudentTSites):
                _begin(sites, kernel, mean, rows)
        elif setting.start is None:
            self._start_cold(kernel, mean, likelihood, rows, seed)
        family = self._family(setting, kernel, mean, sites, seed)
        return Problem(family, likelihood, self._composition().objective, self._coefficients(family), prior)

    def _start_cold(self, kernel: Kernel, mean: Mean, likelihood: Any, rows: Rows, seed: int) -> None:
        """Where a cold start is not the beginning of everything, go there."""

    def _coefficients(self, family: Family) -> dict[str, float]:
        """What penalties count, unless it is one."""
        return {}

    def _family(self, setting: Setting, kernel: Kernel, mean: Mean, sites: Sites, seed: int) -> Family:
        rows = setting.rows
        # Features change at every refresh, and the graph would have to be built anew.
        search = "exact" if self.search == "auto" and isinstance(kernel, Deep) else self.search
        refresh = self._refresh_every(kernel, len(rows))
        options: dict[str, Any] = {"n_neighbours": self._k(setting.start), "refresh_every": refresh}
        options |= {"search": pick_search(search, len(rows)), "with_copies": True}
        kind = CoregionalisedNeighbours if isinstance(sites, CoregionalisedSites) else KINDS[self.objective]
        return kind(kernel, mean, rows.x, sites, rows.weight, **options).to(rows.x)

    def _refresh_every(self, kernel: Kernel, n_rows: int) -> int:
        return min(self.refresh, max(1, n_rows // ROWS_PER_REFRESH)) if isinstance(kernel, Deep) else self.refresh

    def _k(self, start: Problem | None) -> int:
        """The number of neighbours; once it was chosen, it stays."""
        if self.n_neighbors != "auto":
            return int(self.n_neighbors)
        assert start is not None
        return start.family.n_neighbours  # pyright: ignore[reportReturnType]


def _begin(sites: StudentTSites, kernel: Kernel, mean: Mean, rows: Rows) -> None:
    """Let auxiliary variables of outliers start where they belong: training alone would take long to get there."""
    likelihood = sites.likelihood
    shown = likelihood.surrogate(rows.y).targets
    outliers = find_outliers(kernel, mean, likelihood.scale.value.square(), rows, shown)
    sites.begin(outliers.where, outliers.mean, outliers.variance)
