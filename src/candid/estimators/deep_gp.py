"""Training of deep GPs, whatever the targets."""

from __future__ import annotations

import math
from dataclasses import replace
from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
import torch
from sklearn.utils._param_validation import Interval, StrOptions

from candid.engines import Plan, Problem, Rows, train
from candid.estimators.core import gp_estimator
from candid.estimators.deep_pace import cold_deep_pace, warm_deep_pace
from candid.estimators.deep_parts import build_layers
from candid.estimators.deep_shape import DeepShape
from candid.estimators.deep_start import DeepStart, quieten
from candid.estimators.fitting import Setting
from candid.estimators.implicit_layers import draw_values, implicit_rates
from candid.estimators.pace import least_independence
from candid.families import DrawnPredictor, Embedded, Family, Inducing, Layers, LayersPredictor
from candid.kernels import Features
from candid.likelihoods import Likelihood
from candid.methods import Composition, layers_of_gps, usual_beta
from candid.priors import HyperPrior

__all__ = ["DeepGP"]

# Epochs for which starting points compete.
TRIAL_EPOCHS = 2
# Rows for each inducing point of a GP: where every row is one, several layers learn a table by heart.
ROWS_PER_POINT = 2


@gp_estimator
class DeepGP(DeepShape):
    """How a deep GP is trained; see the final classes for the parameters."""

    objective: str = "predictive"
    beta: float | None = None
    weight_decay: float = 0.003
    init: str = "warm"
    n_starts: int = 1
    optimizer: str = "auto"
    q_lr: float | None = None
    batch_size: int = 500
    schedule: str = "gentle"

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **DeepShape._parameter_constraints,
        "objective": [str],
        "beta": [Interval(Real, 0, None, closed="left"), None],
        "weight_decay": [Interval(Real, 0, None, closed="left")],
        "init": [StrOptions({"warm", "kmeans", "random"})],
        "n_starts": [Interval(Integral, 1, None, closed="left")],
        "optimizer": [StrOptions({"auto", "adam"})],
        "q_lr": [Interval(Real, 0, None, closed="neither"), None],
    }

    def _composition(self) -> Composition:
        return layers_of_gps(self.objective, self.covariance, self.optimizer)

    def _model_dtype(self) -> torch.dtype:
        return getattr(torch, self.dtype)

    def _plan(self, setting: Setting, problem: Problem, seed: int) -> Plan:
        n_rows = len(setting.rows)
        if self.init == "warm":
            pace = warm_deep_pace(n_rows, self.batch_size, self._independence(problem.family))
        else:
            pace = cold_deep_pace(n_rows, self.batch_size)
        rates = pace.rates(self.lr, self.q_lr)
        if self.covariance == "implicit":
            rates["rates"] |= implicit_rates(rates["rates"]["weights"])
        return Plan(
            steppers=self._composition().steppers,
            max_epochs=pace.epochs if self.max_epochs is None else self.max_epochs,
            batch_size=self.batch_size,
            **rates,
            decay={"network": self.weight_decay},
            schedule=self.schedule,
            patience=self.patience,
            seed=seed,
        )

    def _report(self) -> None:
        super()._report()
        inner = self.predictor_.inner
        mixtures = (LayersPredictor, DrawnPredictor)
        layers = inner if isinstance(inner, mixtures) else getattr(inner, "inner", None)
        # A single layer has no sites to mix.
        self.quadrature_weights_ = np.ones(1)
        if isinstance(layers, mixtures):
            self.quadrature_weights_ = layers.sites.log_weight().double().exp().flatten().numpy()

    # The model at its starting point

    def _build(self, setting: Setting, seed: int) -> Problem:
        earlier = setting.start
        if earlier is not None:
            n_points = _layers_of(earlier.family).last.points.shape[-2]
            if not setting.outgrown(n_points, self._n_points(setting)):
                problem = self._empty(setting, seed, n_points)
                problem.load_state_dict(earlier.state_dict())
                return problem
        if self.n_starts == 1:
            return self._started(setting, seed)
        return self._best_start(setting, seed)

    def _best_start(self, setting: Setting, seed: int) -> Problem:
        """Of several starts, the one whose objective is the best after a short training."""
        reached: list[tuple[float, Problem]] = []
        for start in range(self.n_starts):
            if start and setting.budget.spent():
                break
            problem = self._started(setting, seed + 1000 * start)
            plan = self._plan(setting, problem, seed)
            # One that is shaken rather than improved goes back to where it was.
            trial = replace(plan, max_epochs=TRIAL_EPOCHS, patience=None, with_start=True)
            train(problem, setting.rows, trial)
            reached.append((problem.standing(setting.rows, self.batch_size), problem))
        return min(reached, key=lambda pair: pair[0])[1]

    def _started(self, setting: Setting, seed: int) -> Problem:
        """A problem at one starting point."""
        parts, likelihood, prior, network = self._make_parts(setting, seed)
        start = DeepStart(
            setting=setting,
            likelihood=likelihood,
            prior=prior,
            seed=seed,
            weight_decay=self.weight_decay,
            wiring=self._wiring,
            covariance=self._start_covariance,
            n_inducing=self._n_points(setting),
            beta=self._beta,
            objective=self.objective,
        )
        x = setting.rows.x
        if network is not None:
            if self.init == "warm":
                start.fit_network(network, parts[0])
            x = _features(network, x)
        warm = self.init == "warm"
        layers = start.warm(parts, x) if warm else start.cold(parts, x, self.init)
        # From a cold start, networks that draw inducing values are on their own.
        problem = self._problem(self._stack(layers, seed, warm), network, likelihood, prior, setting.rows)
        if warm and self.propagation == "sampling" and len(layers) > 1:
            quieten(problem, layers[:-1], setting.rows, self.batch_size)
        return problem

    def _n_points(self, setting: Setting) -> int:
        """How many inducing points a GP of a new model may have."""
        return min(self.n_inducing, math.ceil(len(setting.rows) / ROWS_PER_POINT))

    def _empty(self, setting: Setting, seed: int, n_points: int) -> Problem:
        """A problem whose tensors are still to be loaded."""
        parts, likelihood, prior, network = self._make_parts(setting, seed)
        layers = build_layers(parts, self._start_covariance, n_points, setting.rows.x)
        learned = setting.start is None or getattr(_layers_of(setting.start.family).weights, "learned", True)
        return self._problem(self._stack(layers, seed, learned), network, likelihood, prior, setting.rows)

    @property
    def _beta(self) -> float:
        return usual_beta(self.objective, self.beta)

    @property
    def _start_covariance(self) -> str:
        """Draws of networks start from a normal q(u)."""
        return "full" if self.covariance == "implicit" else str(self._composition().weights)

    def _stack(self, layers: list[Inducing], seed: int, learned: bool) -> Layers:
        """The layers, one upon the other; of implicit q(u), the normal part may be ``learned``."""
        rule = self._rule(seed)
        if self.covariance == "implicit":
            draw_values(layers, len(rule.log_weight()), self.n_predict_sites, learned, seed)
        return Layers(layers, rule, self._wiring)

    def _independence(self, family: Family) -> float | None:
        """How free inducing points are to move, in the layer where they are least; None if that does not matter."""
        if self.objective == "predictive":
            return None
        return min(least_independence(layer) for layer in _layers_of(family).layers)  # pyright: ignore[reportArgumentType]

    def _problem(
        self, layers: Layers, network: Features | None, likelihood: Likelihood, prior: HyperPrior | None, rows: Rows
    ) -> Problem:
        family: Family = layers if network is None else Embedded(network, layers)
        return Problem(family, likelihood, self.objective, {"kl": self._beta}, prior, self._objective_options()).to(
            rows.x
        )

    def _objective_options(self) -> dict[str, float]:
        """Numbers that the objective needs."""
        return {}


def _layers_of(family: Family) -> Layers:
    inner = family.inner if isinstance(family, Embedded) else family
    assert isinstance(inner, Layers)
    return inner


@torch.no_grad()
def _features(network: Features, x: torch.Tensor) -> torch.Tensor:
    (features,) = network.settled(x)
    return features
