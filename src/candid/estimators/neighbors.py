"""GPs in which a row sees nothing but its nearest neighbours."""

from __future__ import annotations

import math
from typing import Any, ClassVar, Self

import torch
from sklearn.utils import check_random_state

from candid.engines import Plan, Problem, Rows, n_batches
from candid.estimators.core import gp_estimator
from candid.estimators.fitting import Fitted, Setting, add_rows, add_rows_to_loaded, reached
from candid.estimators.inputs import Table, read_table
from candid.estimators.likelihood_choice import COUNTS, LikelihoodChoice
from candid.estimators.neighbor_parts import NeighborParts
from candid.estimators.neighbor_variants import NeighborVariants
from candid.estimators.several_outputs import knows_gaps
from candid.estimators.table_predictor import TablePredictor
from candid.families import (
    DesignPredictor,
    EmbeddedPredictor,
    MixedPredictor,
    NeighbourPredictor,
    Predictor,
    SubsetPredictor,
)
from candid.kernels import networks_in
from candid.likelihoods import Gaussian, Likelihood, new_observations

__all__ = ["NeighborGP", "NeighborGPRegressor"]

#: What predicts from rows or points nearby.
Local = NeighbourPredictor | DesignPredictor | MixedPredictor | SubsetPredictor

# Among how many neighbours "auto" chooses, and the share of the rows that it holds out if the user does not say.
CANDIDATES, HELD_OUT = (32, 64, 128, 256), 0.1
# From a warm start a step for every so many rows, within these bounds; from a cold one always as many.
ROWS_PER_STEP, LEAST_STEPS, MOST_STEPS, COLD_STEPS = 20, 20, 600, 1500
# A network has more to learn; from a cold start, inducing points have.
DEEP_PER_STEP, DEEP_STEPS, COLD_POINT_STEPS = 4, 1500, 6400
# Learning rates: of kernel, mean and noise, of networks, and where there are inducing points, of everything.
RATE, NETWORK_RATE, POINT_RATE = 0.03, 0.01, 0.01
# Auxiliary variables of rows: their rate, and how many steps they need at least to get away from their start.
SITE_RATE, SITE_STEPS = 0.05, 60
# Counts: the rate of what stands for them, in their own deviations.
COUNT_RATE = 0.2


@gp_estimator
class NeighborGP(NeighborParts):
    """How a GP of nearest neighbours is trained; see the final classes for the parameters."""

    @property
    def n_neighbors_(self) -> int:
        return self._inner.n_neighbours

    @property
    def search_(self) -> dict[str, Any]:
        rows = self._inner.rows
        return {"kind": rows.search, "recall": rows.recall(self.n_neighbors_)}

    @property
    def _inner(self) -> Local:
        return _behind_network(self.predictor_.inner)

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
        trials = [type(self)(**{**parameters, "n_neighbors": k}) for k in candidates]
        for trial in trials:
            # What is known of the table
            trial.__dict__.update({name: value for name, value in vars(self).items() if name not in parameters})
        return [trial._train(table, None) for trial in trials]

    def _plan(self, setting: Setting, problem: Problem, seed: int) -> Plan:
        rate = POINT_RATE if self.objective == "swsgp" else RATE
        least = SITE_STEPS if problem.family.site_parameters() else LEAST_STEPS
        epochs = self._epochs(len(setting.rows), any(networks_in(problem)), least)
        return Plan(
            steppers=self._composition().steppers,
            max_epochs=epochs if self.max_epochs is None else self.max_epochs,
            batch_size=self.batch_size,
            lr=rate if self.lr is None else self.lr,
            rates={"network": NETWORK_RATE, "sites": self._site_rate()} if self.lr is None else {},
            decay={"network": self.weight_decay},
            schedule=self.schedule,
            patience=self.patience,
            seed=seed,
        )

    def _site_rate(self) -> float:
        return COUNT_RATE if self._likelihood_name() in COUNTS else SITE_RATE

    def _epochs(self, n_rows: int, deep: bool = False, least: int = LEAST_STEPS) -> int:
        per_step, most = (DEEP_PER_STEP, DEEP_STEPS) if deep else (ROWS_PER_STEP, MOST_STEPS)
        cold = COLD_POINT_STEPS if self.objective == "swsgp" else COLD_STEPS
        steps = min(max(n_rows // per_step, least), most) if self.init == "warm" else cold
        return math.ceil(steps / n_batches(n_rows, self.batch_size))

    # More rows

    def _grow(self, table: Table) -> Self:
        """Add rows to predict from, to an earlier fit or to a model that was loaded from a file."""
        self._check_table(table)
        start: Fitted | None = getattr(self, "_fitted", None)
        if start is None:
            add_rows_to_loaded(self, table, self.predictor_)
        elif self._starts_anew(table, start) and start.training.place is None:
            return self._go_on(table, start)
        else:
            self._fitted = add_rows(self, table, start)
        return self

    def _complete(self, predictor: TablePredictor, likelihood: Likelihood, held_out: Rows) -> None:
        outer, inner = predictor.inner, _behind_network(predictor.inner)
        if isinstance(inner, SubsetPredictor):
            return
        rows = held_out.to(torch.float64)
        x = rows.x.cpu()
        if isinstance(outer, EmbeddedPredictor):
            x = outer.features(x.to(outer.dtype))
        targets, precision = _seen(likelihood, rows, x, inner)
        inner.append(x, targets.cpu(), (precision * rows.weight.unsqueeze(-1)).reciprocal().cpu())


@gp_estimator
class NeighborGPRegressor(NeighborVariants, NeighborGP, LikelihoodChoice):
    """Gaussian process regression from nearest neighbours, for 10² to 10⁷ rows.

    Each row is conditioned on the k training rows that are nearest to it, with distances in lengthscales, and only
    kernel, mean and noise are learned. So details of a function are resolved wherever there are rows close enough
    together, and prediction needs all training rows: model files hold them. (With ``objective="swsgp"`` there are
    inducing points in place of the rows.)

    Parameters
    ----------
    objective : {"loo", "mll", "vecchia", "swsgp", "alc"}, default="loo"
        What is maximised: the leave-one-out log-density of each row given its neighbours (LOO-k), the marginal
        likelihood of groups that consist of a row and its k − 1 neighbours (MLL-k), or the marginal likelihood with
        each row given its neighbours among the rows before it in some order (Vecchia). Predictions are made in the same
        way for these. "swsgp": the evidence lower bound of many inducing points, of which each row sees the k nearest.
        "alc": nothing. For each prediction, k rows are chosen that reduce its variance the most, and a lengthscale
        (relative to the kernel's) and an amplitude of its own maximise their likelihood. The noise is the model's.
    n_neighbors : int or "auto", default=64
        k; in a shorter table, all other rows are neighbours. "auto" trains with 32, 64, 128 and 256 and keeps the model
        with the best NLL of held-out rows, which are a tenth unless ``validation_fraction`` says otherwise.
    n_inducing : int, optional
        Number of inducing points of "swsgp". By default 10,000, or in a shorter table as many as it has rows.
    beta : float, optional
        Weight of the penalty of "swsgp", which is the divergence of the points that a row sees, on average over the
        rows. As published it is 1; then the prior of a value counts only as often as its point is seen. By default it
        is the number of points divided by k, with which the prior of every value counts once.
    ordering : {"pca", "maxmin", "random"} or array of shape (N,), default="pca"
        Of Vecchia's rows: along the first principal component of the inputs; from the middle, always to the row that is
        farthest from all before it (up to 50,000 rows); at random; or as given, the index of the first row first.
    search : {"auto", "exact", "hnsw"}, default="auto"
        How neighbours are found. A graph ("hnsw") finds most of them; building it takes as long as hundreds of steps of
        training, and it pays off on very long tables: "auto" is exact up to 200,000 rows, and with networks and
        Vecchia's objective (which have no use for a graph) always.
    refresh : int, default=50
        Steps after which the search follows lengthscales, features and inducing points. On short tables it follows
        the features of a network sooner, after a step for every 40 rows.
    features : str, tuple of int or torch.nn.Module, optional
        A network between the inputs and the kernel, as for :class:`SparseGPRegressor`; rows are near if their features
        are, and the mean function is one of features. Hold out some rows and set ``patience``, as
        ``make_gp("loo-k-dkl")`` does: a network can learn a table by heart. Not with "swsgp" and "alc".
    weight_decay : float, default=0.003
        Of the network.
    init : {"warm", "cold"}, default="warm"
        Whether kernel and noise start from the exact marginal likelihood (up to 500 rows) or from 150 cheap steps with
        32 neighbours, or from nothing. With "alc", which trains no further, "cold" is the published way: one
        lengthscale for all features, amplitude and noise are medians of those of some small groups of rows. Inducing
        values start warm from what the rows around them say, and a network is trained, with kernel and noise, in a
        small model of 32 inducing points.
    batch_size : int, default=128
    max_epochs : int, optional
        By default as many as make a step for every twenty rows, from 20 to 600 (with a network for every four, up to
        1500); from a cold start 1500 (with inducing points 6400).
    lr : float, optional
        By default 0.03, with inducing points 0.01, and for a network 0.01.
    schedule : {"cosine", "gentle", "step", "thirds", "quarters", "constant"}, default="cosine"
    kernel : str or Kernel, default="matern52"
        As for :class:`SparseGPRegressor`.
    validation_fraction : float, default=0.0
        Share of the rows that is held out to watch the NLL. Once training is over, they are neighbours like any other.
    likelihood : {"gaussian", "student-t", "binomial", "negative-binomial"}, default="gaussian"
        How observations scatter around the latent function; all but the first are for "loo" only. With "student-t" the
        noise of every row has a scale of its own, which is learned, so that outliers do not mislead the rows around
        them. Counts are as for :class:`SparseGPRegressor`, and every row has an auxiliary variable of its own.
    n_trials : int or array of shape (N,), optional
        Of binomial counts. If it is an array, new rows have numbers of their own:
        ``predict_distribution(X, n_trials=...)``.
    freedom : float, optional
        Degrees of freedom of "student-t", above two; by default they are learned.
    outputs, n_latents
        As for :class:`SparseGPRegressor`, for "loo" only. A row is then conditioned on all P outputs of its neighbours
        together, which takes P² to P³ times as long: 16 or 32 neighbours are often enough. So it is wherever entries of
        y are missing. The shortest lengthscales of all latent functions decide who is near.
    ard, mean, priors, fixed, alpha, standardize, time_budget, patience, n_restarts, device, dtype, \
n_threads, predict_dtype, random_state, verbose, checkpoint_dir, callbacks
        As for :class:`SparseGPRegressor`.

    Attributes
    ----------
    n_neighbors_ : int
        k, as given or chosen.
    search_ : dict
        The ``kind`` of search, and its ``recall``: the share of the true neighbours that it finds.
    predictor_, kernel_, noise_, mixing_, history_, jitter_, n_features_in_, feature_names_in_
        As for :class:`SparseGPRegressor`. With "alc", ``history_`` is one record, of plain neighbours.

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

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **NeighborVariants._parameter_constraints,
        **LikelihoodChoice._parameter_constraints,
    }
    _shaping: ClassVar[tuple[str, ...]] = (*NeighborGP._shaping, "likelihood", "outputs", "n_latents")

    def _takes_gaps(self, reset: bool) -> bool:
        fitted: Fitted | None = getattr(self, "_fitted", None)
        if not reset and fitted is None:
            return isinstance(self._inner, MixedPredictor)
        # With rows in an order that was given, a model does not start anew.
        able = reset or fitted is None or fitted.training.place is None or knows_gaps(fitted)
        return able and super()._takes_gaps(reset)

    def partial_fit(self, X, y, sample_weight=None) -> Self:
        """Add rows to predict from; kernel, mean and noise stay as they are if 20 rows or more have been fitted.

        The first call is a fit. With ``objective="swsgp"``, which predicts from inducing points, training goes on, on
        all rows seen so far, and a model that was loaded from a file, which does not have them, is fitted anew; all
        others bring their rows along. Parameters that shape the model must not have changed.
        """
        if self.objective == "swsgp" or not self.__sklearn_is_fitted__():
            return super().partial_fit(X, y, sample_weight)
        self._check_shape()
        name, known = self._known()
        return self._grow(read_table(self, X, y, sample_weight, known, reset=False, name=name))


@torch.no_grad()
def _seen(likelihood: Likelihood, rows: Rows, x: torch.Tensor, inner: Local) -> tuple[torch.Tensor, torch.Tensor]:
    """Targets and precisions that new rows have as neighbours; where these depend on f, it is what is predicted."""
    at_rows = likelihood.at(None, rows.noise)
    if isinstance(inner, MixedPredictor):
        # Outputs as they are, missing ones among them.
        return rows.y, at_rows.variance.double().reciprocal().expand_as(rows.y)
    if isinstance(likelihood, Gaussian):
        mean = variance = torch.zeros_like(rows.y)
    else:
        marginal = inner.marginal(x.to(inner.dtype))
        mean, variance = marginal.mean.to(rows.y), marginal.variance.to(rows.y)
    targets, precision = new_observations(likelihood, at_rows, rows.y, mean, variance)
    return targets.double(), precision.double()


def _behind_network(predictor: Predictor) -> Local:
    inner = predictor.inner if isinstance(predictor, EmbeddedPredictor) else predictor
    assert isinstance(inner, Local)
    return inner
