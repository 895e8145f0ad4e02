"""GPs of nearest neighbours with other objectives than the leave-one-out likelihood."""

from __future__ import annotations

from numbers import Integral, Real
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np
import torch
from sklearn.utils._param_validation import Interval, StrOptions

from candid.engines import JITTER, Rows, fit_locally, place_points
from candid.estimators.core import gp_estimator
from candid.estimators.fitting import Setting
from candid.estimators.inputs import Table
from candid.estimators.neighbor_parts import NeighborParts
from candid.families import SWSGP, Family, Mean, Neighbours, Vecchia, metric_of, pick_search
from candid.kernels import Kernel
from candid.likelihoods import Sites
from candid.linalg import ORDERINGS
from candid.methods import NEIGHBOURS, compatible

__all__ = ["NeighborVariants"]

# Inducing points, unless the user says otherwise: at most so many. Up to this many are placed by k-means, more of them
# are rows.
MOST_POINTS, MOST_CENTRES = 10_000, 1000
# What there is only with leave-one-out densities, in the words of the parameters.
ONLY_LOO = MappingProxyType({"coregionalised": "outputs='coregionalised'", "partly-observed": "missing entries of y"})
# Neighbours whose posterior inducing values start from.
START_NEIGHBOURS = 64


@gp_estimator
class NeighborVariants(NeighborParts):
    """What Vecchia's chain of rows, inducing points of which few are seen, and local designs need beyond it."""

    n_inducing: int | None = None
    beta: float | None = None
    ordering: str | np.ndarray = "pca"

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **NeighborParts._parameter_constraints,
        "n_inducing": [Interval(Integral, 1, None, closed="left"), None],
        "beta": [Interval(Real, 0, None, closed="left"), None],
        "ordering": [StrOptions(set(ORDERINGS)), "array-like"],
    }

    def _given_order(self) -> Any:
        return None if isinstance(self.ordering, str) or self.objective != "vecchia" else self.ordering

    def _check_combination(self) -> None:
        likelihood, loo = self._likelihood_name(), NEIGHBOURS["loo"]
        if self.objective == "loo" or likelihood == "gaussian" or not compatible(loo.family, loo.objective, likelihood):
            return super()._check_combination()
        what = ONLY_LOO.get(likelihood, f"likelihood={likelihood!r}")
        raise ValueError(f"objective={self.objective!r} does not go with {what}; use objective='loo'")

    def _check_table(self, table: Table) -> None:
        super()._check_table(table)
        if self.objective == "vecchia" and self.search == "hnsw":
            raise ValueError(
                "with objective='vecchia' each row searches among other rows, and search='hnsw' has one graph of all "
                "of them; use search='exact', or objective='loo'"
            )

    def _start_cold(self, kernel: Kernel, mean: Mean, likelihood: Any, rows: Rows, seed: int) -> None:
        if self.objective == "alc":
            fit_locally(kernel, mean, likelihood, rows, seed)

    def _coefficients(self, family: Family) -> dict[str, float]:
        """By default such that, all in all, the prior of every inducing value counts once."""
        if self.beta is not None or not isinstance(family, SWSGP):
            return {"kl": 1.0 if self.beta is None else self.beta}
        return {"kl": max(1.0, len(family.points) / family.n_neighbours)}

    def _family(self, setting: Setting, kernel: Kernel, mean: Mean, sites: Sites, seed: int) -> Family:
        rows = setting.rows
        if self.objective == "swsgp":
            family = self._kept(setting, kernel, mean)
            return self._with_points(rows, kernel, mean, sites, seed) if family is None else family
        if self.objective == "vecchia":
            parts = kernel, mean, rows.x, sites, rows.weight, self._order(setting, seed)
            refresh = self._refresh_every(kernel, len(rows))
            return Vecchia(*parts, n_neighbours=self._k(setting.start), refresh_every=refresh).to(rows.x)
        return super()._family(setting, kernel, mean, sites, seed)

    def _kept(self, setting: Setting, kernel: Kernel, mean: Mean) -> SWSGP | None:
        """The points and values of an earlier fit, with kernel and mean of this one."""
        if setting.start is None:
            return None
        family = setting.start.family
        assert isinstance(family, SWSGP)
        family.kernel, family.mean = kernel, mean
        return family

    def _with_points(self, rows: Rows, kernel: Kernel, mean: Mean, sites: Sites, seed: int) -> SWSGP:
        n_points = self.n_inducing or MOST_POINTS
        lengths = metric_of(kernel, rows.x.shape[1]).double().cpu().numpy() if self.init == "warm" else None
        how = "kmeans" if n_points <= MOST_CENTRES else "random"
        places = place_points(rows.x.double().cpu().numpy(), n_points, how, seed, lengths)
        points = torch.as_tensor(places).to(rows.x)
        search = pick_search(self.search, len(points))
        family = SWSGP(kernel, mean, points, self._k(None), self.refresh, JITTER[points.dtype], search).to(points)
        if self.init == "warm":
            # What the rows around a point say of its value
            neighbours = Neighbours(kernel, mean, rows.x, sites, rows.weight, START_NEIGHBOURS).to(points)
            marginal = neighbours.predictor().marginal(points.double())
            family.assign(marginal.mean.to(points), marginal.variance.to(points))
        return family

    def _order(self, setting: Setting, seed: int) -> torch.Tensor:
        if setting.place is not None:
            return torch.as_tensor(setting.place.argsort(), device=setting.rows.x.device)
        return ORDERINGS[str(self.ordering)](setting.rows.x, seed)
