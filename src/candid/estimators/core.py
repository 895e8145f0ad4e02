"""What all estimators share: parameters, fitting, files."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any, ClassVar, Self

import torch
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted

from candid.engines import SCHEDULES, Plan, Problem, Rows
from candid.estimators.files import save
from candid.estimators.fitting import Fitted, Setting, fit_best
from candid.estimators.inputs import Table, read_inputs
from candid.estimators.table_predictor import TablePredictor
from candid.likelihoods import Likelihood
from candid.methods import Composition, check_compatible

__all__ = ["Estimator", "gp_estimator"]


def gp_estimator(cls):
    """Make a class with annotated fields a scikit-learn estimator: the fields are its constructor's parameters."""
    return dataclass(kw_only=True, eq=False, repr=False)(cls)


@gp_estimator
class Estimator(BaseEstimator):
    """Shared parameters and behaviour; see the final classes for their documentation."""

    standardize: bool = True
    batch_size: int = 1024
    max_epochs: int | None = None
    lr: float | None = None
    schedule: str = "cosine"
    patience: int | None = None
    time_budget: float | None = None
    validation_fraction: float = 0.0
    n_restarts: int = 1
    device: str = "auto"
    dtype: str = "float32"
    n_threads: int | None = None
    predict_dtype: str = "float64"
    random_state: Any = None
    verbose: bool = True
    checkpoint_dir: str | None = None
    callbacks: tuple[Callable[[dict[str, Any]], Any], ...] = ()

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "standardize": ["boolean"],
        "batch_size": [Interval(Integral, 1, None, closed="left")],
        "max_epochs": [Interval(Integral, 0, None, closed="left"), None],
        "lr": [Interval(Real, 0, None, closed="neither"), None],
        "schedule": [StrOptions(set(SCHEDULES))],
        "time_budget": [Interval(Real, 0, None, closed="neither"), None],
        "validation_fraction": [Interval(Real, 0, 1, closed="left")],
        "patience": [Interval(Integral, 1, None, closed="left"), None],
        "n_restarts": [Interval(Integral, 1, None, closed="left")],
        "device": [str],
        "dtype": [StrOptions({"float32", "float64"})],
        "n_threads": [Interval(Integral, 1, None, closed="left"), None],
        "predict_dtype": [StrOptions({"float32", "float64"})],
        "random_state": ["random_state"],
        "verbose": ["boolean"],
        "checkpoint_dir": [str, None],
        "callbacks": [tuple, list],
    }
    #: Parameters that shape the model; between calls of ``partial_fit`` they must stay the same.
    _shaping: ClassVar[tuple[str, ...]] = ("standardize",)

    # What tasks and final classes say of themselves

    @abstractmethod
    def _composition(self) -> Composition:
        """Family, weights, objective and steppers that the parameters stand for."""

    @abstractmethod
    def _likelihood_name(self) -> str:
        """The likelihood in the words of :func:`candid.methods.compatible`."""

    @abstractmethod
    def _make_likelihood(self, rows: Rows) -> Likelihood:
        """The likelihood of some training rows, at its starting values."""

    @property
    @abstractmethod
    def _real_targets(self) -> bool:
        """Whether y is a real number, which can be standardised."""

    @property
    def _latents_are_targets(self) -> bool:
        """Whether each latent function is what one of the targets scatters around, and has its units."""
        return self._real_targets

    def _takes_gaps(self, reset: bool) -> bool:
        """Whether NaN in y is an entry that was not observed; ``reset`` tells a new fit from more rows."""
        return False

    @abstractmethod
    def _n_latents(self, table: Table) -> int:
        """How many latent functions there are: one for each target, or for each of several classes."""

    @abstractmethod
    def _model_dtype(self) -> torch.dtype:
        """What training computes in."""

    @abstractmethod
    def _build(self, setting: Setting, seed: int) -> Problem:
        """A problem at its starting point, or where ``setting.start`` has left off."""

    @abstractmethod
    def _plan(self, setting: Setting, problem: Problem, seed: int) -> Plan:
        """How to train that problem."""

    def _check_combination(self) -> None:
        """Raise where objective and likelihood do not go together."""
        made_of = self._composition()
        check_compatible(made_of.family, made_of.objective, self._likelihood_name())

    def _check_table(self, table: Table) -> None:
        """Raise where this kind of model cannot take the table."""

    def _given_order(self) -> Any:
        """The indices of the rows in an order that matters to the model, or None."""
        return None

    def _complete(self, predictor: TablePredictor, likelihood: Likelihood, held_out: Rows) -> None:
        """Once training is over, show the held-out rows to a predictor that has a use for them."""

    # Fitting

    def _goes_on(self) -> Fitted | None:
        """The earlier fit that more rows are added to; parameters that shape the model must not have changed since."""
        fitted: Fitted | None = getattr(self, "_fitted", None)
        if fitted is not None:
            self._check_shape()
        return fitted

    def _go_on(self, table: Table, start: Fitted) -> Self:
        """Train on the rows of an earlier fit and those of ``table``; from where it ended, if that is a start."""
        if self._starts_anew(table, start):
            return self._train(start.rows_and(table), None)
        return self._train(table, start)

    def _starts_anew(self, table: Table, start: Fitted) -> bool:
        """Whether a model of all rows is another one than that of the earlier fit."""
        return start.knows_little

    def _check_shape(self) -> None:
        self._validate_params()
        for name, before in self._shape.items():
            if repr(getattr(self, name)) != before:
                raise ValueError(f"{name} has changed since the model was fitted; call fit to change it")

    def _remember_shape(self) -> None:
        self._shape = {name: repr(getattr(self, name)) for name in self._shaping}

    def _repeatable_state(self) -> Any:
        """The source of the seed; a run that may be resumed must find its own seed again."""
        return 0 if self.random_state is None and self.checkpoint_dir is not None else self.random_state

    def _train(self, table: Table, start: Fitted | None) -> Self:
        self._check_combination()
        if self.patience is not None and not self.validation_fraction:
            raise ValueError("patience watches held-out rows: set validation_fraction as well, for example to 0.1")
        seed = int(check_random_state(self._repeatable_state()).randint(2**31 - 1))
        self._fitted = fit_best(self, table, seed, start)
        self.predictor_: TablePredictor = self._fitted.predictor
        if self.predict_dtype == "float32":
            self.predictor_.inner.float()
        self.history_ = self._fitted.history
        self._remember_shape()
        self._vector_target = table.vector
        self._report()
        return self

    def _report(self) -> None:
        """Set fitted attributes that follow from the predictor."""

    # After it

    def save(self, path) -> None:
        """Write the fitted model to one file without pickle; :func:`candid.load` reads it."""
        check_is_fitted(self)
        save(self, path)

    def _inputs(self, X) -> torch.Tensor:
        if not self.__sklearn_is_fitted__():
            # Raises with scikit-learn's own words; for a fitted model it would take as long as a small prediction.
            check_is_fitted(self)
        return torch.from_numpy(read_inputs(self, X))

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "predictor_")
