"""Regression by GPs whose parameters are sampled."""

from __future__ import annotations

from typing import Any, ClassVar

from candid.estimators.bayesian_gp import BayesianGP
from candid.estimators.core import gp_estimator
from candid.estimators.inputs import Table
from candid.estimators.likelihood_choice import LikelihoodChoice

__all__ = ["BayesianGPRegressor"]


@gp_estimator
class BayesianGPRegressor(BayesianGP, LikelihoodChoice):
    """Gaussian process regression that samples what others optimise, by stochastic-gradient Hamiltonian Monte Carlo.

    From hyper-parameters that an optimiser has found, one chain or several draw inducing values u, hyper-parameters θ
    and inducing inputs Z of a sparse GP, or of layers of such, from their joint posterior. A prediction is the mixture
    over all samples.

    Parameters
    ----------
    sample : tuple of {"u", "theta", "z", "noise"}, default=("u", "theta", "z")
        What is sampled; the rest is optimised before samples are collected. θ are the hyper-parameters of kernel and
        mean function; the noise has a name of its own.
    objective : {"fitc", "vfe"}, default="fitc"
        Likelihood of a row: the log of the expectation over what the inducing points leave open, or the expectation of
        the log, which is a bound (and the one that variational methods optimise).
    inducing_prior : {"normal", "uniform", "determinantal", "strauss"}, default="normal"
        Prior of inducing inputs, if they are sampled: N(0, I) on the standardised table; uniform in a box around the
        rows; or, in such a box, a process of points that repel each other: where their values are alike, or where they
        are near.
    hidden_widths : tuple of int or "D", default=()
        How many GPs each hidden layer has; "D" is as many as there are features, as published. Hidden GPs have mean
        functions that pass on what is below them: as it is, with zeros beyond that, or as principal components. If some
        layer is narrower than the table, which would lose what these leave out, the last layer sees the features
        besides. Hidden values are drawn once for each row and step, and in predictions once for each sample.
    n_inducing : int, default=100
        Number of inducing points; at most one for each distinct row is used.
    init : {"warm", "kmeans", "random"} or array of shape (M, D), default="warm"
        Where training starts, as for :class:`SparseGPRegressor` or :class:`DeepGPRegressor` (no array with hidden
        layers). A warm start of a single layer with normal noise goes on, on more than 200 rows, towards the best
        inducing points and kernel for u in closed form; u of the last layer is drawn from that.
    sampler : {"sghmc", "hmc", "auto"}, default="sghmc"
        SGHMC, with mini-batches; HMC, whose trajectories see all rows, and are accepted or not, which is for single
        layers; or HMC where it can be, on tables of up to 1000 rows.
    optimizer : {"adam", "window"}, default="adam"
        How that which is not sampled moves in burn-in: along gradients at the present samples, or (if only u is
        sampled) at one of the last 64, picked at random.
    n_samples : int, optional
        Samples of each chain, by default so many that all chains together have 64 on short tables and up to 256 on long
        ones (of 5000 rows or more).
    n_chains : int, optional
        Chains side by side, as one computation; by default four on short tables, down to one on long ones, and one with
        hidden layers.
    burn_in : int, optional
        Steps of the sampler before samples are collected, in which it adapts to its target; by default 60 to 2000 (with
        hidden layers, 200 to 2000). Where it has mini-batches, SGHMC does not move before the thirtieth.
    thin : int, optional
        Steps from one sample to the next, by default 6 to 32. A step of HMC is a trajectory of 12, and there is by
        default a twelfth of them from one sample to the next.
    step_size : float, optional
        Of the sampler. That of SGHMC is by default 0.05 on short tables, 0.03 on ones of 5000 rows, and falls to 0.01
        on longer ones. It takes shorter steps where mini-batches would add more noise than belongs to one. HMC finds
        its own size, and starts at 0.1.
    max_epochs : int, optional
        Of the optimiser, before samples are drawn; by default none from a warm start, and as many as make 1000 steps
        from a cold one.
    max_steps : int, optional
        The same in steps.
    lr : float, optional
        Learning rate of the optimiser, by default 0.01.
    priors : dict, optional
        Hyper-parameter name → prior or bound of :mod:`candid.priors`, on the standardised scale; names of those of
        hidden layers end with, for example, "hidden.0.kernel.base.lengthscale". Where θ is sampled, log ℓ ~ N(0, 1) and
        log amplitude ~ N(log 0.05, 1) by default; where the noise is, log σ² ~ N(log 0.1, 1). Positive hyper-parameters
        are sampled through their logarithms, whose density the priors are taken for.
    likelihood : {"gaussian", "student-t", "binomial", "negative-binomial"}, default="gaussian"
        As for :class:`SparseGPRegressor`. What it has to learn (scale and degrees of freedom, or a concentration) goes
        by the name of "noise" in ``sample``.
    batch_size : int, default=1000
    kernel, ard, mean, outputs, n_latents, n_trials, freedom, fixed, alpha, standardize, schedule, time_budget, \
validation_fraction, patience, n_restarts, device, dtype, n_threads, predict_dtype, random_state, verbose, \
checkpoint_dir, callbacks
        As for :class:`SparseGPRegressor`. Of a time budget, training takes at most three tenths and burn-in ends at one
        half. Held-out rows watch over training, and see the mixture of the samples so far.

    Attributes
    ----------
    predictor_, history_, jitter_, n_features_in_, feature_names_in_
        As for :class:`SparseGPRegressor`.
    kernel_ : Kernel
        That of the last layer, in the middle of the samples: hyper-parameters at the averages of their logarithms.
    noise_ : float or ndarray
        Standard deviation of the noise, in units of y, whose square is averaged over samples.
    samples_ : dict of ndarray
        Samples of each parameter, (chain, draw, …), on the standardised table; not part of model files. "u", "z",
        "lengthscale" are those of the last layer; names of those of hidden ones begin with "hidden.0.", and so on.
    diagnostics_ : dict of dict
        For each parameter, the largest R̂ ("rhat") and the smallest effective sample size ("ess") of its entries. They
        are computed when asked for, and need ArviZ (``pip install candid-gp[diag]``).

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from candid import BayesianGPRegressor
    >>> X, y = load_diabetes(return_X_y=True)
    >>> gp = BayesianGPRegressor(n_inducing=20, random_state=0).fit(X, y)
    >>> p = gp.predict_distribution(X[:3])
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **LikelihoodChoice._parameter_constraints,
        **BayesianGP._parameter_constraints,
    }
    _shaping: ClassVar[tuple[str, ...]] = (*BayesianGP._shaping, "likelihood")

    def _check_table(self, table: Table) -> None:
        super()._check_table(table)
        if self._mixed and "noise" in self.sample:
            raise ValueError(
                "with outputs='coregionalised', noise and mixing are optimised; leave 'noise' out of sample, or use "
                "outputs='independent'"
            )
