"""Regression of several targets: independent given the inputs, or mixtures of shared latent functions."""

from __future__ import annotations

from numbers import Integral
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.utils._param_validation import Interval, StrOptions

from candid.engines import Rows, changes_nearby, fill_gaps
from candid.estimators.base import GPRegressor, gp_estimator
from candid.estimators.fitting import Fitted
from candid.estimators.inputs import Table
from candid.estimators.observations import CoregionalisedObservation
from candid.likelihoods import Coregionalised, Gaussian, Likelihood, PartlyObserved

__all__ = ["SeveralOutputs", "knows_gaps"]

#: Likelihoods of targets that depend on each other, or of which some are missing.
NAMES = ("coregionalised", "partly-observed")


@gp_estimator
class SeveralOutputs(GPRegressor):
    """Whether targets share latent functions, and how many; targets that are missing."""

    outputs: str = "independent"
    n_latents: int | None = None

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **GPRegressor._parameter_constraints,
        "outputs": [StrOptions({"independent", "coregionalised"})],
        "n_latents": [Interval(Integral, 1, None, closed="left"), None],
    }

    #: Whether the latent functions of a fit are mixed, and whether some of its targets are missing.
    _mixed = _has_gaps = False

    def _likelihood_name(self) -> str:
        if self.likelihood in NAMES:
            raise ValueError(f"{self.likelihood!r} is no likelihood; say outputs='coregionalised', with normal noise")
        if self._mixed:
            return "coregionalised"
        return "partly-observed" if self._has_gaps else super()._likelihood_name()

    def _make_likelihood(self, rows: Rows) -> Likelihood:
        if not (self._mixed or self._has_gaps):
            return super()._make_likelihood(rows)
        noise = Gaussian(n_outputs=rows.y.shape[1], known=rows.noise, weight=rows.weight)
        guess = fill_gaps(rows.x, rows.y)
        if not self._mixed:
            return PartlyObserved(guess, noise)
        n_latents, changes = self.n_latents or rows.y.shape[1], changes_nearby(rows.x, guess)
        return Coregionalised(guess, n_latents, noise, rows.weight, changes)

    def _n_latents(self, table: Table) -> int:
        return self.n_latents if self._mixed and self.n_latents else super()._n_latents(table)

    @property
    def _latents_are_targets(self) -> bool:
        return self._real_targets and not self._mixed

    # What is known of the table once it has been read

    def _train(self, table: Table, start: Fitted | None) -> Self:
        if self.outputs == "coregionalised" and self.likelihood != "gaussian":
            raise ValueError(
                f"outputs='coregionalised' is for normal noise, and likelihood={self.likelihood!r} has none; use "
                "outputs='independent'"
            )
        if self.n_latents is not None and self.outputs == "independent":
            raise ValueError("n_latents is for outputs='coregionalised'; independent outputs have one function each")
        self._mixed = self.outputs == "coregionalised" and table.y.shape[1] > 1
        # A model that knows how to leave entries out goes on doing so.
        self._has_gaps = table.has_gaps or (start is not None and isinstance(start.problem.likelihood, PartlyObserved))
        return super()._train(table, start)

    def _takes_gaps(self, reset: bool) -> bool:
        return self.likelihood == "gaussian"

    def _starts_anew(self, table: Table, start: Fitted) -> bool:
        return super()._starts_anew(table, start) or (table.has_gaps and not knows_gaps(start))

    def _report(self) -> None:
        super()._report()
        self.__dict__.pop("mixing_", None)
        observation = self.predictor_.observation
        # A file tells it by its observation.
        self._mixed = isinstance(observation, CoregionalisedObservation)
        if isinstance(observation, CoregionalisedObservation):
            self.mixing_: np.ndarray = observation.mixing.double().numpy()


def knows_gaps(fitted: Fitted) -> bool:
    """Whether a model can leave out targets that are missing."""
    return isinstance(fitted.problem.likelihood, (Coregionalised, PartlyObserved))
