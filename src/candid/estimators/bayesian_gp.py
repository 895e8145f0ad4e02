"""How GPs are sampled, whatever the targets."""

from __future__ import annotations

from dataclasses import replace
from numbers import Integral, Real
from typing import Any, ClassVar, Self

import numpy as np
import torch
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted

from candid.engines import Plan, Problem, Sampling, n_batches
from candid.estimators.bayesian_parts import BayesianParts
from candid.estimators.bayesian_start import ChainStart, draw_values
from candid.estimators.chains import Chains, chains_for
from candid.estimators.core import gp_estimator
from candid.estimators.diagnostics import diagnostics, inference_data, read_samples
from candid.estimators.fitting import Fitted, Setting
from candid.estimators.inputs import Table
from candid.methods import SAMPLED_OBJECTIVES, Composition, sampled_points

__all__ = ["BayesianGP"]

# Up to this many rows sampler="auto" is HMC; its trajectories start with steps of this size, and find their own.
HMC_ROWS, HMC_STEP = 1000, 0.1
# Learning rate of everything before samples are drawn, and of what is optimised in burn-in.
RATE = 0.01


@gp_estimator
class BayesianGP(BayesianParts):
    """How a GP, or layers of GPs, are sampled; see the final classes for the parameters."""

    objective: str = "fitc"
    sampler: str = "sghmc"
    optimizer: str = "adam"
    n_samples: int | None = None
    burn_in: int | None = None
    thin: int | None = None
    step_size: float | None = None
    max_steps: int | None = None
    batch_size: int = 1000

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **BayesianParts._parameter_constraints,
        "objective": [str],
        "sampler": [StrOptions({"sghmc", "hmc", "auto"})],
        "optimizer": [StrOptions({"adam", "window"})],
        "n_samples": [Interval(Integral, 1, None, closed="left"), None],
        "burn_in": [Interval(Integral, 0, None, closed="left"), None],
        "thin": [Interval(Integral, 1, None, closed="left"), None],
        "step_size": [Interval(Real, 0, None, closed="neither"), None],
        "max_steps": [Interval(Integral, 0, None, closed="left"), None],
    }

    def _composition(self) -> Composition:
        return sampled_points(self.objective, self.sample, self.sampler, self.optimizer, self.hidden_widths)

    def _model_dtype(self) -> torch.dtype:
        return getattr(torch, self.dtype)

    def _check_table(self, table: Table) -> None:
        super()._check_table(table)
        if self.objective not in SAMPLED_OBJECTIVES:
            raise ValueError(f"objective must be one of {', '.join(SAMPLED_OBJECTIVES)}; got {self.objective!r}")
        if self.optimizer == "window" and set(self.sample) != {"u"}:
            raise ValueError("optimizer='window' remembers inducing values: use it with sample=('u',)")
        if self.sampler == "hmc" and self.hidden_widths:
            raise ValueError("HMC needs an energy that stays the same, and hidden values are random; use 'sghmc'")

    # The model at its starting point

    def _build(self, setting: Setting, seed: int) -> Problem:
        if setting.start is not None:
            setting = replace(setting, start=setting.start.middle())
        parts = self._make_parts(setting, seed)
        started = ChainStart(setting, parts, seed, self.n_inducing, self.init, self.objective).layers()
        n_chains = self._chains(len(setting.rows), self.batch_size, hmc=False).n_chains
        values = draw_values(started, n_chains, seed, at_mean="u" not in self.sample)
        layers = [part.layer(layer.points.detach(), "delta") for part, layer in zip(parts.layers, started, strict=True)]
        family, prior = self._chained(parts, layers, n_chains, seed)
        for weights, value in zip(family.weight_parameters(), values, strict=True):
            weights.data.copy_(value)
        return Problem(family, parts.likelihood, SAMPLED_OBJECTIVES[self.objective], prior=prior)

    # Training

    def _plan(self, setting: Setting, problem: Problem, seed: int) -> Plan:
        n_rows = len(setting.rows)
        short = n_rows <= HMC_ROWS and not self.hidden_widths
        hmc = self.sampler == "hmc" or (self.sampler == "auto" and short)
        batch_size = n_rows if hmc else self.batch_size
        chains = self._chains(n_rows, batch_size, hmc)
        made_of = sampled_points(self.objective, self.sample, "hmc" if hmc else "sghmc", self.optimizer)
        rate = RATE if self.lr is None else self.lr
        step_size = HMC_STEP if hmc and self.step_size is None else chains.step_size
        # Whitened values mean another function once points have moved: between trajectories of HMC they are at rest.
        steppers = {
            group: kind for group, kind in made_of.steppers.items() if not hmc or kind == "hmc" or group != "points"
        }
        samplers = ("sghmc", "hmc")
        rates = {group: step_size if kind in samplers else rate for group, kind in steppers.items()}
        return Plan(
            steppers={"all": "adam"},
            max_epochs=chains.epochs,
            max_steps=self.max_steps,
            batch_size=batch_size,
            lr=rate,
            schedule=self.schedule,
            patience=self.patience,
            seed=seed,
            sampling=Sampling(steppers, chains.burn_in, chains.n_samples, chains.thin, rates),
        )

    def _chains(self, n_rows: int, batch_size: int, hmc: bool) -> Chains:
        """The default lengths, and what the user says instead."""
        given = {"burn_in": self.burn_in, "n_samples": self.n_samples, "thin": self.thin, "step_size": self.step_size}
        if self.max_epochs is not None:
            given["epochs"] = self.max_epochs
        elif self.max_steps is not None:
            given["epochs"] = -(-self.max_steps // n_batches(n_rows, batch_size))
        chosen = {name: value for name, value in given.items() if value is not None}
        default = chains_for(n_rows, batch_size, self._warm, bool(self.hidden_widths), self.n_chains, hmc)
        return replace(default, **chosen)

    # Samples

    def _train(self, table: Table, start: Fitted | None) -> Self:
        super()._train(table, start)
        self.samples_ = read_samples(self._fitted.problem)
        return self

    @property
    def diagnostics_(self) -> dict[str, dict[str, float]]:
        return diagnostics(self._own_samples())

    def to_inference_data(self, X=None):
        """Samples as ArviZ's ``InferenceData``, with the latent function of each at the rows of ``X`` if given.

        Parameters
        ----------
        X : array-like of shape (N, D), optional
            Then a variable ``f`` has an entry for each of these rows: the latent function on average, given a sample,
            without noise, and in units of y where y is a real number.
        """
        samples = self._own_samples()
        if X is not None:
            parts, observation = self.predictor_.stream(self._inputs(X), mean_only=True), self.predictor_.observation
            mean = torch.cat([observation.of_targets(part).mean for part in parts], -2)
            n_chains = len(next(iter(samples.values())))
            sites = np.moveaxis(mean.double().numpy().reshape(-1, n_chains, *mean.shape[1:]), 1, 0)
            single = self._vector_target and sites.shape[-1] == 1
            samples = {**samples, "f": sites[..., 0] if single else sites}
        return inference_data(samples)

    def _own_samples(self) -> dict[str, np.ndarray]:
        if not self.__sklearn_is_fitted__():
            check_is_fitted(self)
        if not hasattr(self, "samples_"):
            raise AttributeError("a model that was loaded from a file has no samples of parameters; fit it anew")
        return self.samples_
