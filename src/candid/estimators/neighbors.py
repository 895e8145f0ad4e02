"""GPs in which a row sees nothing but its nearest neighbours."""

from __future__ import annotations

import math
from numbers import Integral
from typing import Any, ClassVar, Self

import numpy as np
import torch
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Interval, StrOptions

from candid.engines import Plan, Problem, Rows, fit_by_evidence, fit_by_neighbours, n_batches
from candid.estimators.base import GPRegressor, gp_estimator
from candid.estimators.fitting import Fitted, Setting, reached
from candid.estimators.inputs import Table
from candid.estimators.table_predictor import TablePredictor
from candid.families import SEARCHES, Mean, NeighbourPredictor, Neighbours, Vecchia
from candid.kernels import Kernel, networks_in
from candid.likelihoods import Gaussian, GaussianSites
from candid.linalg import ORDERINGS
from candid.methods import NEIGHBOURS, Composition

__all__ = ["NeighborGPRegressor"]

# Among how many neighbours "auto" chooses, and the share of the rows that it holds out if the user does not say.
CANDIDATES, HELD_OUT = (32, 64, 128, 256), 0.1
# Up to this many rows a warm start is that of the exact marginal likelihood; the share of the time that it may take.
FEW_ROWS, WARM_SHARE = 500, 0.25
# From a warm start a step for every so many rows, within these bounds; from a cold one always as many.
ROWS_PER_STEP, LEAST_STEPS, MOST_STEPS, COLD_STEPS = 20, 20, 600, 1500
RATE = 0.03


@gp_estimator
class NeighborGPRegressor(GPRegressor):
    """Gaussian process regression from nearest neighbours, for 10² to 10⁷ rows.

    There are no inducing points: each row is conditioned on the k training rows that are nearest to it, with distances
    in lengthscales, and only kernel, mean and noise are learned. So details of a function are resolved wherever there
    are rows close enough together, and prediction needs all training rows: model files hold them.

    Parameters
    ----------
    objective : {"loo", "mll", "vecchia"}, default="loo"
        What is maximised: the leave-one-out log-density of each row given its neighbours (LOO-k), the marginal
        likelihood of groups that consist of a row and its k − 1 neighbours (MLL-k), or the marginal likelihood with
        each row given its neighbours among the rows before it in some order (Vecchia). Predictions are made in the same
        way for all of them.
    n_neighbors : int or "auto", default=64
        k; in a shorter table, all other rows are neighbours. "auto" trains with 32, 64, 128 and 256 and keeps the model
        with the best NLL of held-out rows, which are a tenth unless ``validation_fraction`` says otherwise.
    ordering : {"pca", "maxmin", "random"} or array of shape (N,), default="pca"
        Of Vecchia's rows: along the first principal component of the inputs; from the middle, always to the row that is
        farthest from all before it (up to 50,000 rows); at random; or as given, the index of the first row first (for
        ``partial_fit``, of the new rows, which come after the earlier ones).
    search : {"exact", "hnsw"}, default="exact"
        How neighbours are found. A graph ("hnsw") finds most of them, and pays off for predictions from very long
        tables; not with Vecchia's objective.
    refresh : int, default=50
        Steps after which distances follow the lengthscales.
    init : {"warm", "cold"}, default="warm"
        Whether kernel and noise start from the exact marginal likelihood (up to 500 rows) or from 150 cheap steps with
        32 neighbours, or from nothing.
    batch_size : int, default=128
    max_epochs : int, optional
        By default as many as make a step for every twenty rows, from 20 to 600; from a cold start 1500.
    lr : float, optional
        By default 0.03.
    schedule : {"cosine", "step", "thirds", "quarters", "constant"}, default="cosine"
    kernel : str or Kernel, default="matern52"
        As for :class:`SparseGPRegressor`, but without a network: neighbours of features would change at every step.
    validation_fraction : float, default=0.0
        Share of the rows that is held out to watch the NLL. Once training is over, they are neighbours like any other.
    ard, mean, likelihood, priors, fixed, alpha, standardize, time_budget, patience, n_restarts, device, dtype, \
n_threads, predict_dtype, random_state, verbose, checkpoint_dir, callbacks
        As for :class:`SparseGPRegressor`.

    Attributes
    ----------
    n_neighbors_ : int
        k, as given or chosen.
    search_ : dict
        The ``kind`` of search, and its ``recall``: the share of the true neighbours that it finds.
    predictor_, kernel_, noise_, history_, jitter_, n_features_in_, feature_names_in_
        As for :class:`SparseGPRegressor`.

    Notes
    -----
    A row is never its own neighbour, but a row with the same numbers may be. In tables of up to 20,000 rows such twins
    are one row of their total weight w, whose other w − 1 copies stay when one of them is left out: they do not count
    among the k, and otherwise the result is the same.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from candid import NeighborGPRegressor
    >>> X, y = load_diabetes(return_X_y=True)
    >>> gp = NeighborGPRegressor(n_neighbors=32, random_state=0).fit(X, y)
    >>> mean, std = gp.predict(X[:3], return_std=True)
    """

    objective: str = "loo"
    n_neighbors: int | str = 64
    ordering: str | np.ndarray = "pca"
    search: str = "exact"
    refresh: int = 50
    init: str = "warm"
    batch_size: int = 128

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **GPRegressor._parameter_constraints,
        "objective": [StrOptions(set(NEIGHBOURS))],
        "n_neighbors": [Interval(Integral, 1, None, closed="left"), StrOptions({"auto"})],
        "ordering": [StrOptions(set(ORDERINGS)), "array-like"],
        "search": [StrOptions(set(SEARCHES))],
        "refresh": [Interval(Integral, 1, None, closed="left")],
        "init": [StrOptions({"warm", "cold"})],
    }

    @property
    def n_neighbors_(self) -> int:
        return self._inner.n_neighbours

    @property
    def search_(self) -> dict[str, Any]:
        rows = self._inner.rows
        return {"kind": rows.search, "recall": rows.recall(self.n_neighbors_)}

    @property
    def _inner(self) -> NeighbourPredictor:
        return self.predictor_.inner  # pyright: ignore[reportReturnType]

    def _composition(self) -> Composition:
        return NEIGHBOURS[self.objective]

    def _model_dtype(self) -> torch.dtype:
        return getattr(torch, self.dtype)

    def _given_order(self) -> Any:
        return None if isinstance(self.ordering, str) or self.objective != "vecchia" else self.ordering

    def _check_table(self, table: Table) -> None:
        if self.objective == "vecchia" and self.search != "exact":
            raise ValueError(
                f"with objective='vecchia' each row searches among other rows, and search={self.search!r} has one "
                "graph of all of them; use search='exact', or objective='loo'"
            )

    def _make_kernel(self, n_features: int, n_outputs: int, seed: int) -> Kernel:
        kernel = super()._make_kernel(n_features, n_outputs, seed)
        if any(networks_in(kernel)):
            raise ValueError(
                "neighbours are searched among the inputs, and behind a network other rows are near; use a kernel "
                "without one, or SparseGPRegressor(features=...)"
            )
        return kernel

    # Training

    def _train(self, table: Table, start: Fitted | None) -> Self:
        if self.n_neighbors != "auto" or start is not None:
            return super()._train(table, start)
        # One number of neighbours that takes in all rows is enough.
        enough = sum(k < len(table) - 1 for k in CANDIDATES) + 1
        trials = self._trials(table, CANDIDATES[:enough])
        best = min(trials, key=lambda trial: reached(trial.history_, trial.patience))
        self.__dict__.update({name: value for name, value in vars(best).items() if name not in self.get_params()})
        return self

    def _trials(self, table: Table, candidates: tuple[int, ...]) -> list[Self]:
        """The same fit with each of some numbers of neighbours, which share the time, and the rows to judge them by."""
        parameters = self.get_params(deep=False)
        if len(candidates) > 1:
            parameters["validation_fraction"] = self.validation_fraction or HELD_OUT
        if self.time_budget is not None:
            parameters["time_budget"] = self.time_budget / len(candidates)
        parameters["random_state"] = int(check_random_state(self._repeatable_state()).randint(2**31 - 1))
        return [type(self)(**{**parameters, "n_neighbors": k})._train(table, None) for k in candidates]

    def _plan(self, setting: Setting, problem: Problem, seed: int) -> Plan:
        return Plan(
            steppers=self._composition().steppers,
            max_epochs=self._epochs(len(setting.rows)) if self.max_epochs is None else self.max_epochs,
            batch_size=self.batch_size,
            lr=RATE if self.lr is None else self.lr,
            schedule=self.schedule,
            patience=self.patience,
            seed=seed,
        )

    def _epochs(self, n_rows: int) -> int:
        warm_steps = min(max(n_rows // ROWS_PER_STEP, LEAST_STEPS), MOST_STEPS)
        steps = warm_steps if self.init == "warm" else COLD_STEPS
        return math.ceil(steps / n_batches(n_rows, self.batch_size))

    def _build(self, setting: Setting, seed: int) -> Problem:
        rows = setting.rows
        kernel, mean, likelihood, prior = self._parts(setting, seed)
        if self.init == "warm" and setting.start is None:
            fit = fit_by_evidence if len(rows) <= FEW_ROWS else fit_by_neighbours
            time_left = setting.budget.left()
            seconds = None if time_left is None else WARM_SHARE * time_left
            fit(kernel, mean, likelihood, prior, rows, seed, time_budget=seconds)
        family = self._family(setting, kernel, mean, likelihood.sites(rows.y), seed)
        return Problem(family, likelihood, self._composition().objective, prior=prior)

    def _family(self, setting: Setting, kernel: Kernel, mean: Mean, sites: GaussianSites, seed: int) -> Neighbours:
        rows = setting.rows
        parts = kernel, mean, rows.x, sites, rows.weight
        options = {"n_neighbours": self._k(setting.start), "refresh_every": self.refresh}
        if self.objective == "vecchia":
            return Vecchia(*parts, self._order(setting, seed), **options).to(rows.x)
        return Neighbours(*parts, **options, search=self.search, with_copies=True).to(rows.x)

    def _k(self, start: Problem | None) -> int:
        """The number of neighbours; once it was chosen, it stays."""
        if self.n_neighbors != "auto":
            return int(self.n_neighbors)
        assert start is not None
        assert isinstance(start.family, Neighbours)
        return start.family.n_neighbours

    def _order(self, setting: Setting, seed: int) -> torch.Tensor:
        if setting.place is not None:
            return torch.as_tensor(setting.place.argsort(), device=setting.rows.x.device)
        return ORDERINGS[str(self.ordering)](setting.rows.x, seed)

    def _complete(self, predictor: TablePredictor, likelihood: Gaussian, held_out: Rows) -> None:
        rows = held_out.to(torch.float64)
        noise = likelihood.at(None, rows.noise).variance.detach().double().expand_as(rows.y)
        inner: NeighbourPredictor = predictor.inner  # pyright: ignore[reportAssignmentType]
        inner.append(rows.x.cpu(), rows.y.cpu(), (noise / rows.weight.unsqueeze(-1)).cpu())
