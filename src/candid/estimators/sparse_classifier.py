"""Classification by GPs with inducing points."""

from __future__ import annotations

from typing import Any, ClassVar

from candid.estimators.classifier import GPClassifier
from candid.estimators.core import gp_estimator
from candid.estimators.sparse_gp import SparseGP

__all__ = ["SparseGPClassifier"]


@gp_estimator
class SparseGPClassifier(SparseGP, GPClassifier):
    """Gaussian process classification with inducing points, for 10² to 10⁷ rows.

    Two classes have one latent function, several have one each. Labels may be numbers or strings.

    Parameters
    ----------
    objective : {"predictive", "elbo", "polya_gamma"}, default="predictive"
        What is maximised: the log of the predictive probability, the evidence lower bound (SVGP), or for two classes
        its bound with Pólya–Gamma variables (PGVI), along whose natural gradients q(u) moves in closed form.
    likelihood : {"auto", "bernoulli", "probit", "softmax"}, default="auto"
        How probabilities follow from latent functions: for two classes by the logistic function ("bernoulli") or by
        the normal distribution function ("probit"), for several ones by the normalised exponentials of one function
        each ("softmax"). "auto" takes "bernoulli" for two classes and "softmax" for more.
    init : {"warm", "kmeans", "random"} or array of shape (M, D), default="warm"
        Where training starts. "warm": the kernel is fitted as if labels were real numbers with noise, and brought to
        the scale on which that noise is the one that labels have; q(u) follows by up to ten rounds of a closed form,
        with Pólya–Gamma variables in the place of labels. The rest is as for :class:`SparseGPRegressor`.
    standardize : bool, default=True
        Standardise inputs for training.
    covariance, decouple, features, covariance_features, inducing_space, weight_decay, decoupled, whiten, \
omega_weight, omega_scale, beta, n_inducing, n_mean_inducing, optimizer, batch_size, max_epochs, lr, q_lr, schedule, \
dtype, kernel, ard, mean, priors, fixed, time_budget, validation_fraction, patience, n_restarts, device, n_threads, \
predict_dtype, random_state, verbose, checkpoint_dir, callbacks
        As for :class:`SparseGPRegressor`.

    Attributes
    ----------
    classes_ : ndarray of shape (K,)
        The labels, in order; columns of probabilities are in the same one.
    predictor_, kernel_, mean_kernel_, history_, jitter_, n_features_in_, feature_names_in_
        As for :class:`SparseGPRegressor`; the latent functions have no units.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from candid import SparseGPClassifier
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> gp = SparseGPClassifier(n_inducing=50, random_state=0).fit(X, y)
    >>> gp.predict_proba(X[:3]).shape
    (3, 2)
    >>> gp.predict_distribution(X[:3])
    PredictiveBernoulli(3 rows, 2 classes)
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **GPClassifier._parameter_constraints,
        **SparseGP._parameter_constraints,
    }
    _shaping: ClassVar[tuple[str, ...]] = (*SparseGP._shaping, "likelihood")

    def _only_two_classes(self) -> str | None:
        return "objective='polya_gamma'" if self.objective == "polya_gamma" else super()._only_two_classes()
