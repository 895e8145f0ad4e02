"""Classification by GPs upon GPs."""

from __future__ import annotations

from typing import Any, ClassVar

from candid.engines import Rows
from candid.estimators.classifier import GPClassifier
from candid.estimators.core import gp_estimator
from candid.estimators.deep_gp import DeepGP
from candid.likelihoods import Likelihood, Softmax

__all__ = ["DeepGPClassifier"]

# Points of averages over latent values of several classes, at each site: sites average, too.
SOFTMAX_NODES = 64


@gp_estimator
class DeepGPClassifier(DeepGP, GPClassifier):
    """Deep Gaussian process classification: GPs with inducing points upon others of their kind.

    Probabilities of classes are mixtures: averages over the sites at which the values of the hidden layers are taken.
    Two classes have one latent function, several have one each. Labels may be numbers or strings.

    Parameters
    ----------
    objective : {"predictive", "elbo"}, default="predictive"
        What is maximised: the log of the predictive probability, averaged over sites (DSPP), or the evidence lower
        bound (DGP).
    likelihood : {"auto", "bernoulli", "probit", "softmax"}, default="auto"
        As for :class:`SparseGPClassifier`.
    init : {"warm", "kmeans", "random"}, default="warm"
        Where training starts. "warm": as for :class:`DeepGPRegressor`, with real numbers in place of labels; the last
        layer's q(u) follows as for :class:`SparseGPClassifier`. "kmeans" and "random" only place the inducing points.
    standardize : bool, default=True
        Standardise inputs for training.
    hidden_widths, propagation, quadrature, n_sites, n_predict_sites, topology, skip, covariance, beta, n_inducing, \
features, weight_decay, n_starts, optimizer, q_lr, batch_size, max_epochs, lr, mean, kernel, ard, priors, fixed, \
schedule, time_budget, validation_fraction, patience, n_restarts, device, dtype, n_threads, predict_dtype, \
random_state, verbose, checkpoint_dir, callbacks
        As for :class:`DeepGPRegressor`.

    Attributes
    ----------
    classes_ : ndarray of shape (K,)
        The labels, in order; columns of probabilities are in the same one.
    kernel_, quadrature_weights_, predictor_, history_, jitter_, n_features_in_, feature_names_in_
        As for :class:`DeepGPRegressor`; the latent functions have no units.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from candid import DeepGPClassifier
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> gp = DeepGPClassifier(hidden_widths=(2,), n_inducing=30, max_epochs=20, random_state=0).fit(X, y)
    >>> gp.predict_proba(X[:3]).shape
    (3, 2)
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **GPClassifier._parameter_constraints,
        **DeepGP._parameter_constraints,
    }
    _shaping: ClassVar[tuple[str, ...]] = (*DeepGP._shaping, "likelihood")

    def _make_likelihood(self, rows: Rows) -> Likelihood:
        if self._likelihood_name() == "softmax":
            return Softmax(len(self.classes_), SOFTMAX_NODES)
        return super()._make_likelihood(rows)
