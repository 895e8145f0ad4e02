"""Classification by GPs in which a row sees nothing but its nearest neighbours."""

from __future__ import annotations

from numbers import Real
from typing import Any, ClassVar, Self

from sklearn.utils._param_validation import Interval, StrOptions

from candid.engines import Rows
from candid.estimators.classifier import GPClassifier
from candid.estimators.core import gp_estimator
from candid.estimators.inputs import Table
from candid.estimators.neighbors import NeighborGP
from candid.families import Family
from candid.likelihoods import Bernoulli, Likelihood, OneAgainstAll

__all__ = ["NeighborGPClassifier"]


@gp_estimator
class NeighborGPClassifier(NeighborGP, GPClassifier):
    """Gaussian process classification from nearest neighbours (LOO-k), for 10² to 10⁷ rows.

    Each row is conditioned on the labels of the k training rows that are nearest to it, with distances in lengthscales.
    So prediction needs all training rows, and model files hold them. Labels may be numbers or strings. Two classes have
    one latent function with a logistic link; several have one each, of the class against all others, and their
    probabilities are normalised.

    Given a Pólya–Gamma variable ω, a label says of the latent function what a real number with normal noise says. Every
    row has its own ω with a log-normal distribution, which is learned together with the kernel.

    Parameters
    ----------
    objective : {"loo"}, default="loo"
        What is maximised: the leave-one-out log-probability of each label given its neighbours, minus ``beta`` times
        the divergence of the row's ω from its prior.
    n_neighbors : int or "auto", default=64
        k; in a shorter table, all other rows are neighbours. "auto" trains with 32, 64, 128 and 256 and keeps the model
        with the best NLL of held-out rows, which are a tenth unless ``validation_fraction`` says otherwise.
    beta : float, default=0.1
        What the divergence of ω counts in training. With one, as published, functions are held back: with ω close to
        the prior, log-odds stay within about ±3.6, whatever the neighbours say.
    likelihood : {"auto", "one-against-all"}, default="auto"
        "one-against-all" has a latent function for each class even if there are two.
    init : {"warm", "cold"}, default="warm"
        Whether the kernel starts as if labels were real numbers with noise, fitted by the exact marginal likelihood (up
        to 500 rows) or by 150 cheap steps with 32 neighbours, or from nothing.
    mean : {"zero", "constant", "linear"}, default="zero"
        Prior mean of the latent functions.
    standardize : bool, default=True
        Standardise inputs for training.
    lr : float, optional
        By default 0.03 for the kernel, 0.05 for the variables of rows and 0.01 for a network.
    search, refresh, features, weight_decay, batch_size, max_epochs, schedule, kernel, ard, priors, fixed, \
validation_fraction, time_budget, patience, n_restarts, device, dtype, n_threads, predict_dtype, random_state, \
verbose, checkpoint_dir, callbacks
        As for :class:`NeighborGPRegressor`.

    Attributes
    ----------
    classes_ : ndarray of shape (K,)
        The labels, in order; columns of probabilities are in the same one.
    n_neighbors_, search_, predictor_, kernel_, history_, jitter_, n_features_in_, feature_names_in_
        As for :class:`NeighborGPRegressor`; the latent functions have no units.

    Notes
    -----
    For predictions, ω of every training row is its expectation given the latent function there, which follows from the
    ω of the rows around it: a few rounds make them agree. With values that stand for the learned q(ω), or with a sample
    as published, rare classes are predicted too rarely. Learned values (1/E[1/ω]) stay where they predict the training
    rows, each left out in turn, much better, as they do where classes hardly overlap.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from candid import NeighborGPClassifier
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> gp = NeighborGPClassifier(n_neighbors=32, random_state=0).fit(X, y)
    >>> gp.predict_proba(X[:3]).shape
    (3, 2)
    """

    beta: float = 0.1
    mean: str = "zero"

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **GPClassifier._parameter_constraints,
        **NeighborGP._parameter_constraints,
        "objective": [StrOptions({"loo"})],
        "beta": [Interval(Real, 0, None, closed="left")],
        "likelihood": [StrOptions({"auto", "one-against-all"})],
    }
    _shaping: ClassVar[tuple[str, ...]] = (*NeighborGP._shaping, "likelihood")

    def _likelihood_name(self) -> str:
        if self.likelihood == "auto":
            return "bernoulli" if len(self.classes_) == 2 else "one-against-all"
        return self.likelihood

    def _make_likelihood(self, rows: Rows) -> Likelihood:
        return Bernoulli() if self._likelihood_name() == "bernoulli" else OneAgainstAll(len(self.classes_))

    def _n_latents(self, table: Table) -> int:
        return 1 if self._likelihood_name() == "bernoulli" else len(self.classes_)

    def _coefficients(self, family: Family) -> dict[str, float]:
        return {"kl_aux": self.beta}

    # More rows

    def partial_fit(self, X, y, classes=None, sample_weight=None) -> Self:
        """Add rows to predict from; the kernel, and what was learned of 20 or more earlier rows, stay as they are.

        The first call is a fit; ``classes`` names all labels that may come, if these rows do not have all of them. The
        ω of a new row is its expectation given what the model predicts there. A model that was loaded from a file
        brings its rows along. Parameters that shape the model must not have changed.
        """
        if not self.__sklearn_is_fitted__():
            return super().partial_fit(X, y, classes, sample_weight)
        self._check_shape()
        return self._grow(self._more(X, y, classes, sample_weight))
