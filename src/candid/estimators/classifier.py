"""What all classifiers share: labels, class probabilities."""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.utils._param_validation import StrOptions

from candid.engines import Rows
from candid.estimators.core import Estimator, gp_estimator
from candid.estimators.gp import GP
from candid.estimators.inputs import Table, read_classes
from candid.likelihoods import Bernoulli, Likelihood, Softmax
from candid.predictive import PredictiveCategorical

__all__ = ["Classifier", "GPClassifier"]


@gp_estimator
class Classifier(ClassifierMixin, Estimator):
    """Targets that are labels, of two classes or of several."""

    likelihood: str = "auto"

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **Estimator._parameter_constraints,
        "likelihood": [StrOptions({"auto", "bernoulli", "probit", "softmax"})],
    }
    _shaping: ClassVar[tuple[str, ...]] = ("likelihood", *Estimator._shaping)

    def _likelihood_name(self) -> str:
        if self.likelihood == "auto":
            return "bernoulli" if len(self.classes_) == 2 else "softmax"
        return self.likelihood

    def _only_two_classes(self) -> str | None:
        """The parameter that is for two classes only, if there is one."""
        return f"likelihood={self.likelihood!r}" if self.likelihood in ("bernoulli", "probit") else None

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = self._only_two_classes() is None
        return tags

    def _make_likelihood(self, rows: Rows) -> Likelihood:
        name = self._likelihood_name()
        if name == "softmax":
            return Softmax(len(self.classes_))
        return Bernoulli("logit" if name == "bernoulli" else "probit")

    @property
    def _real_targets(self) -> bool:
        return False

    def _n_latents(self, table: Table) -> int:
        return len(self.classes_) if self._likelihood_name() == "softmax" else 1

    # Fitting

    def fit(self, X, y, sample_weight=None) -> Self:
        """Fit the model.

        Parameters
        ----------
        X : array-like or data frame of shape (N, D)
            Numbers only; numpy, pandas, polars or torch.
        y : array-like of shape (N,)
            Labels: numbers or strings, of two classes at least.
        sample_weight : array-like of shape (N,), optional
            A row of weight 2 counts as two rows.

        Returns
        -------
        self
        """
        return self._fit(X, y, sample_weight)

    def partial_fit(self, X, y, classes=None, sample_weight=None) -> Self:
        """Add rows and continue training from the present parameters, on all rows seen so far.

        The first call is a fit (as long as there were fewer than 20 rows, the next one is a fit of all); ``classes``
        names all labels that may come, if these rows do not have all of them. The rows are kept in memory (not in saved
        files) for this purpose; a model that was loaded from a file has none, and is fitted anew. Parameters that shape
        the model must not have changed.
        """
        start = self._goes_on()
        if start is None:
            return self._fit(X, y, sample_weight, classes)
        return self._go_on(self._more(X, y, classes, sample_weight), start)

    def _more(self, X, y, classes, sample_weight) -> Table:
        """Rows with the labels of a model that is there already."""
        if classes is not None and not np.array_equal(np.unique(classes), self.classes_):
            raise ValueError(f"the classes of this model are {self.classes_.tolist()}; fit anew to change them")
        table, _ = read_classes(self, X, y, sample_weight, False, self.classes_)
        return table

    def _fit(self, X, y, sample_weight, classes: Any = None) -> Self:
        self._validate_params()
        table, self.classes_ = read_classes(self, X, y, sample_weight, True, classes)
        if len(self.classes_) > 2 and self._only_two_classes() is not None:
            raise ValueError(
                "Only binary classification is supported. The type of the target is multiclass: "
                f"{self._only_two_classes()} is for two classes, and there are {len(self.classes_)}; use "
                "likelihood='softmax' with objective='elbo' or 'predictive'"
            )
        return self._train(table, start=None)

    # Predicting

    def predict(self, X) -> np.ndarray:
        """The most probable class of each row."""
        return self.predict_distribution(X).mode

    def predict_proba(self, X) -> np.ndarray:
        """Probabilities of all classes, (N, K), in the order of ``classes_``."""
        return np.array(self.predict_distribution(X).probabilities)

    def predict_log_proba(self, X) -> np.ndarray:
        """Their logarithms, which keep their digits where a class is nearly certain."""
        return np.array(self.predict_distribution(X).log_probabilities)

    def score(self, X, y, sample_weight=None) -> float:
        """Share of the labels that are the most probable class; :mod:`candid.metrics` has scores of probabilities."""
        return super().score(X, y, sample_weight)

    def predict_distribution(self, X) -> PredictiveCategorical:
        """The predictive distribution of each row; of two classes it is a ``PredictiveBernoulli``."""
        x = self._inputs(X)
        prediction = self.predictor_.distribution(x)
        assert isinstance(prediction, PredictiveCategorical)
        return prediction.labelled(self.classes_)


@gp_estimator
class GPClassifier(GP, Classifier):
    """A GP, or one for each class, behind labels."""

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **GP._parameter_constraints,
        **Classifier._parameter_constraints,
    }
    _shaping: ClassVar[tuple[str, ...]] = (*GP._shaping, "likelihood")
