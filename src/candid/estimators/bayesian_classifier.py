"""Classification by GPs whose parameters are sampled."""

from __future__ import annotations

from typing import Any, ClassVar

from candid.engines import Rows
from candid.estimators.bayesian_gp import BayesianGP
from candid.estimators.classifier import GPClassifier
from candid.estimators.core import gp_estimator
from candid.likelihoods import Likelihood, Softmax

__all__ = ["BayesianGPClassifier"]

# Points over which the softmax is averaged in training: what inducing points leave open, given their values, is little.
TRAINING_NODES = 64


@gp_estimator
class BayesianGPClassifier(BayesianGP, GPClassifier):
    """Gaussian process classification that samples what others optimise, by stochastic-gradient Hamiltonian MC.

    Two classes have one latent function, several have one each. Probabilities are averages over all samples of inducing
    values u, hyper-parameters θ and inducing inputs Z.

    Parameters
    ----------
    objective : {"fitc", "vfe"}, default="fitc"
        Likelihood of a row: the log of the expectation over what the inducing points leave open, or the expectation of
        the log.
    likelihood : {"auto", "probit", "bernoulli", "softmax"}, default="auto"
        How probabilities follow from latent functions: for two classes by the normal distribution function ("probit"),
        whose expectation has a closed form, or by the logistic function ("bernoulli"), for several ones by the
        normalised exponentials of one function each ("softmax"). "auto" takes "probit" for two classes and "softmax"
        for more.
    standardize : bool, default=True
        Standardise inputs for training.
    sample, inducing_prior, hidden_widths, n_inducing, init, sampler, optimizer, n_samples, n_chains, burn_in, thin, \
step_size, max_epochs, max_steps, lr, priors, batch_size, kernel, ard, mean, fixed, schedule, time_budget, \
validation_fraction, patience, n_restarts, device, dtype, n_threads, predict_dtype, random_state, verbose, \
checkpoint_dir, callbacks
        As for :class:`BayesianGPRegressor`; labels have no noise that could be sampled.

    Attributes
    ----------
    classes_ : ndarray of shape (K,)
        The labels, in order; columns of probabilities are in the same one.
    predictor_, kernel_, samples_, diagnostics_, history_, jitter_, n_features_in_, feature_names_in_
        As for :class:`BayesianGPRegressor`; the latent functions have no units.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from candid import BayesianGPClassifier
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> gp = BayesianGPClassifier(n_inducing=20, burn_in=50, n_samples=20, thin=2, random_state=0).fit(X, y)
    >>> gp.predict_proba(X[:3]).shape
    (3, 2)
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **GPClassifier._parameter_constraints,
        **BayesianGP._parameter_constraints,
    }
    _shaping: ClassVar[tuple[str, ...]] = (*BayesianGP._shaping, "likelihood")

    def _likelihood_name(self) -> str:
        if self.likelihood == "auto" and len(self.classes_) == 2:
            return "probit"
        return super()._likelihood_name()

    def _make_likelihood(self, rows: Rows) -> Likelihood:
        likelihood = super()._make_likelihood(rows)
        return Softmax(likelihood.n_classes, TRAINING_NODES) if isinstance(likelihood, Softmax) else likelihood
