"""Training of GPs with inducing points, whatever the targets."""

from __future__ import annotations

from numbers import Real
from typing import Any, ClassVar, Self

import torch
from sklearn.utils._param_validation import Interval, StrOptions

from candid.engines import Plan, Problem, Rows
from candid.estimators.core import gp_estimator
from candid.estimators.fitting import Fitted, Setting
from candid.estimators.inputs import Table
from candid.estimators.pace import cold_pace, least_independence, warm_pace
from candid.estimators.sparse_parts import SparseParts
from candid.estimators.start import Start, seen_by
from candid.estimators.start_weights import start_weights
from candid.families import Embedded, Family, Sparse, inducing_part
from candid.kernels import networks_in
from candid.likelihoods import Coregionalised, Likelihood
from candid.methods import COLLAPSED, COLLAPSED_MOST_ROWS, Composition, inducing_points, usual_beta
from candid.priors import HyperPrior

__all__ = ["SparseGP"]

# Rounds of L-BFGS for objectives of all rows.
COLLAPSED_ROUNDS = 6


@gp_estimator
class SparseGP(SparseParts):
    """How a GP with inducing points is trained; see the final classes for the parameters."""

    objective: str = "predictive"
    weight_decay: float = 0.003
    beta: float | None = None
    optimizer: str = "auto"
    q_lr: float | None = None
    batch_size: int = 1000

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **SparseParts._parameter_constraints,
        "objective": [str],
        "weight_decay": [Interval(Real, 0, None, closed="left")],
        "beta": [Interval(Real, 0, None, closed="left"), None],
        "optimizer": [StrOptions({"auto", "adam", "natural"})],
        "q_lr": [Interval(Real, 0, None, closed="neither"), None],
    }

    def _composition(self) -> Composition:
        return inducing_points(self.objective, self.covariance, self.decouple, self.optimizer)

    def _model_dtype(self) -> torch.dtype:
        return torch.float64 if self._collapsed else getattr(torch, self.dtype)

    @property
    def _beta(self) -> float:
        return usual_beta(self.objective, self.beta)

    @property
    def _collapsed(self) -> bool:
        """Whether the objective needs all rows at once."""
        return self.objective in COLLAPSED

    def _check_table(self, table: Table) -> None:
        super()._check_table(table)
        if self._collapsed:
            self._check_collapsed(len(table))
        if self.decouple in ("features", "mean") and self.features is None:
            raise ValueError(f"decouple={self.decouple!r} needs a network: give features, for example features='dc'")
        if not self._same_features and self.decouple != "features":
            raise ValueError("covariance_features is for decouple='features'; leave it at 'same', or decouple features")
        if self.inducing_space == "feature" and self.decouple in ("features", "mean"):
            raise ValueError(
                f"with decouple={self.decouple!r} mean and covariance have no features in common, in which inducing "
                "points could be; use inducing_space='input'"
            )
        if self.inducing_space == "feature" and not isinstance(self.init, str):
            raise ValueError("inducing points that are given are rows of the table; use inducing_space='input'")

    def _check_collapsed(self, n_rows: int) -> None:
        if n_rows > COLLAPSED_MOST_ROWS:
            raise ValueError(
                f"objective={self.objective!r} needs all rows in memory at once, and {n_rows} are too many (more "
                f"than {COLLAPSED_MOST_ROWS}); use mini-batches: candid.make_gp('svgp') or candid.make_gp('vfitc')"
            )
        if self.covariance != "full":
            raise ValueError(
                f"with objective={self.objective!r}, q(u) follows in closed form and has a full covariance; leave "
                "covariance='full', or use objective='elbo'"
            )
        if self.features is not None:
            raise ValueError(
                f"objective={self.objective!r} has no mini-batches, which a network needs; use objective='elbo'"
            )

    def _plan(self, setting: Setting, problem: Problem, seed: int) -> Plan:
        n_rows, steppers = len(setting.rows), self._composition().steppers
        pace = cold_pace(n_rows, self.batch_size)
        if self._warm:
            natural, kept = steppers.get("weights") == "natural", self._kept(setting) is not None
            inducing = inducing_part(problem.family)
            assert inducing is not None
            deviation, independence = _standard_deviation(problem), least_independence(inducing)
            deep, parting = any(networks_in(problem)), self.decouple == "kernel"
            pace = warm_pace(n_rows, self.batch_size, natural, deviation, independence, kept, deep, parting)
        epochs = COLLAPSED_ROUNDS if self._collapsed else pace.epochs
        return Plan(
            steppers=steppers,
            max_epochs=epochs if self.max_epochs is None else self.max_epochs,
            batch_size=n_rows if self._collapsed else self.batch_size,
            **pace.rates(self.lr, self.q_lr),
            decay={"network": self.weight_decay},
            schedule=self.schedule,
            patience=self.patience,
            seed=seed,
        )

    def _train(self, table: Table, start: Fitted | None) -> Self:
        super()._train(table, start)
        self.__dict__.pop("mean_kernel_", None)
        if self._fitted.mean_kernel is not None:
            self.mean_kernel_ = self._fitted.mean_kernel
        return self

    # The model at its starting point

    def _build(self, setting: Setting, seed: int) -> Problem:
        kernel, mean, likelihood, prior = self._parts(setting, seed)
        family = self._kept(setting)
        if family is not None:
            family.adopt(kernel, mean)
        else:
            how = "random" if isinstance(self.init, str) and self.init == "random" else "kmeans"
            in_features = self.inducing_space == "feature"
            start = Start(setting, likelihood, prior, seed, self.weight_decay, self._warm, how, in_features)
            if self._warm:
                start.fit(kernel, mean)
            family = self._family(start, kernel, mean)
            if self._warm:
                self._solve(family, likelihood, prior, setting.rows)
        coefficients = {"kl": self._beta, "omega": self.omega_weight}
        return Problem(family, likelihood, self.objective, coefficients, prior, self._objective_options())

    def _objective_options(self) -> dict[str, float]:
        """Numbers that the objective needs."""
        return {}

    def _solve(self, family: Family, likelihood: Likelihood, prior: HyperPrior | None, rows: Rows) -> None:
        """Noise and q(v) in closed form."""
        inducing = inducing_part(family)
        assert inducing is not None
        # A network has been trained together with the noise that belongs to it.
        settled = any(networks_in(family))
        start_weights(inducing, likelihood, prior, seen_by(family, rows), self.objective, self._beta, settled)

    def _kept(self, setting: Setting) -> Sparse | Embedded | None:
        """The family whose points and q(v) training goes on with.

        A model of few rows had few points; with many more rows it may have more, and then starts from new ones. Points
        that the user gave are as many as they are.
        """
        if setting.start is None:
            return None
        family = setting.start.family
        inducing, wanted = inducing_part(family), self.n_inducing if isinstance(self.init, str) else 1
        if inducing is None or setting.outgrown(inducing.points.shape[-2], wanted):
            return None
        return family  # pyright: ignore[reportReturnType]


@torch.no_grad()
def _standard_deviation(problem: Problem) -> float:
    """√amplitude, averaged over outputs; of latent functions that are mixed, what the loudest gives to any output."""
    amplitude, _ = problem.family.kernel.split()
    if amplitude is None:
        return 1.0
    if isinstance(problem.likelihood, Coregionalised):
        return float((amplitude.sqrt().unsqueeze(-1) * problem.likelihood.mixing.value).abs().max())
    return float(amplitude.double().log().mean().exp().sqrt())
