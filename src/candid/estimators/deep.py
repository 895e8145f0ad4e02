"""Regression by GPs upon GPs."""

from __future__ import annotations

from numbers import Real
from typing import Any, ClassVar

from sklearn.utils._param_validation import Interval

from candid.estimators.core import gp_estimator
from candid.estimators.deep_gp import DeepGP
from candid.estimators.likelihood_choice import LikelihoodChoice

__all__ = ["DeepGPRegressor"]


@gp_estimator
class DeepGPRegressor(DeepGP, LikelihoodChoice):
    """Deep Gaussian process regression: GPs with inducing points upon others of their kind.

    Predictions are mixtures of normals: one for each site at which the values of the hidden layers are taken.

    Parameters
    ----------
    hidden_widths : tuple of int, default=(5,)
        How many GPs each hidden layer has. None of them is a GP with inducing points and nothing below it.
    propagation : {"quadrature", "sampling"}, default="quadrature"
        Whether hidden values are taken at sites that all rows share (deep sigma point processes) or at random ones,
        drawn anew at every step (doubly stochastic deep GPs).
    quadrature : {"qr3", "qr1", "qr2", "gauss-hermite"}, default="qr3"
        Where the sites are: learned, and shared by all hidden GPs; learned, on a grid of S^W sites; the same, and
        symmetric about zero; or on the fixed grid of Gauss and Hermite.
    n_sites : int, optional
        S. By default 10, or 3 along each side of a grid.
    n_predict_sites : int, default=32
        With ``propagation="sampling"``, how many sites predictions have; they are fixed when training is over.
    topology : {"chain", "input_mean", "both_mean", "both"}, default="chain"
        What a layer between two others sees: the layer below it; the same, but its mean function the inputs; the same,
        but its mean function both; or both.
    skip : bool, default=False
        Whether the last layer sees the inputs besides the layer below it.
    objective : {"predictive", "elbo", "robust"}, default="predictive"
        What is maximised: the log of the predictive mixture (DSPP), the evidence lower bound (DGP), or a score that
        trusts outliers less (γ-DGP).
    covariance : {"diagonal", "full", "none", "implicit"}, default="diagonal"
        Covariance of q(u), the distribution of the inducing values, in every layer; "none" is a point estimate.
        "implicit" is a q(u) of any form (IPVI): networks draw inducing values, one draw for each random site, and
        critics estimate the penalty. From a warm start they begin with a normal q(u), which is learned besides.
    beta : float, optional
        Weight of the KL penalty, which is the sum over all GPs; by default 0.2 for the predictive objective, and 1 for
        all others.
    gamma : float, default=1.03
        Of the γ-robust score: above 1, where it would be the evidence lower bound.
    n_inducing : int, default=300
        Number of inducing points of each GP; at most one for every two distinct rows is used.
    features : str, tuple of int or torch.nn.Module, optional
        A network in front of the first layer; see :class:`SparseGPRegressor`.
    weight_decay : float, default=0.003
        Of the network.
    init : {"warm", "kmeans", "random"}, default="warm"
        Where training starts. "warm": kernels, noise and the last layer's q(u) as of a single layer, hidden layers that
        pass on what matters of their inputs. "kmeans" and "random" only place the inducing points.
    n_starts : int, default=1
        Starting points that compete for two epochs; the one with the best objective goes on.
    optimizer : {"auto", "adam"}, default="auto"
        How q(u) moves: by an Adam in which small gradients count for less, or by plain Adam. From a warm start,
        gradients of all parameters are shortened to three times their usual length.
    q_lr : float, optional
        Learning rate of q(u), by default 0.2, and on less than ten thousand rows in proportion to these, down to a
        fifth; from a cold start, 0.01.
    batch_size : int, default=500
    max_epochs : int, optional
        By default as many as make 2400 steps (more on more than 40,000 rows), but not more than 60 (on short tables,
        than one for every four rows, from 60 to 300); from a cold start 100, or 1000 steps.
    lr : float, optional
        Learning rate of all the rest, by default 0.05, and on less than ten thousand rows in proportion to these, down
        to a fifth; from a cold start, 0.01. That of a network is 0.002.
    schedule : {"gentle", "cosine", "step", "thirds", "quarters", "constant"}, default="gentle"
        As for :class:`SparseGPRegressor`.
    mean : {"constant", "zero", "linear"}, default="constant"
        Mean function of the last layer. Hidden layers have linear ones.
    kernel, ard
        Of all layers; as for :class:`SparseGPRegressor`.
    likelihood, n_trials, freedom, outputs, n_latents, priors, fixed, alpha, standardize, time_budget, \
validation_fraction, patience, n_restarts, device, dtype, n_threads, predict_dtype, random_state, verbose, \
checkpoint_dir, callbacks
        As for :class:`SparseGPRegressor`. Names of hyper-parameters of hidden layers end with, for example,
        "hidden.0.kernel.base.lengthscale".

    Attributes
    ----------
    kernel_ : Kernel
        The fitted kernel of the last layer; its inputs are hidden values.
    quadrature_weights_ : ndarray of shape (S,)
        What the sites count in the mixture, in the order of its components; they add up to one.
    predictor_, noise_, mixing_, history_, jitter_, n_features_in_, feature_names_in_
        As for :class:`SparseGPRegressor`.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from candid import DeepGPRegressor
    >>> X, y = load_diabetes(return_X_y=True)
    >>> gp = DeepGPRegressor(hidden_widths=(2,), n_inducing=30, max_epochs=20, random_state=0).fit(X, y)
    >>> gp.predict_distribution(X[:3])
    PredictiveMixture(3 rows, 10 sites)
    """

    gamma: float = 1.03

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **LikelihoodChoice._parameter_constraints,
        **DeepGP._parameter_constraints,
        "gamma": [Interval(Real, 1, None, closed="neither")],
    }
    _shaping: ClassVar[tuple[str, ...]] = (*DeepGP._shaping, "likelihood", "outputs", "n_latents")

    def _objective_options(self) -> dict[str, float]:
        return {"gamma": self.gamma} if self.objective == "robust" else {}
