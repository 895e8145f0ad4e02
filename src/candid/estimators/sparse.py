"""Regression by GPs with inducing points."""

from __future__ import annotations

from numbers import Real
from typing import Any, ClassVar

from sklearn.utils._param_validation import Interval

from candid.estimators.core import gp_estimator
from candid.estimators.likelihood_choice import LikelihoodChoice
from candid.estimators.sparse_gp import SparseGP

__all__ = ["SparseGPRegressor"]


@gp_estimator
class SparseGPRegressor(SparseGP, LikelihoodChoice):
    """Gaussian process regression with inducing points, for 10² to 10⁷ rows.

    Parameters
    ----------
    objective : {"predictive", "elbo", "vfitc", "fitc_elbo", "robust", "sgpr", "fitc"}, default="predictive"
        What is maximised: the log of the predictive density (PPGPR), the evidence lower bound (SVGP) or one that counts
        what the inducing points cannot explain as noise (variational FITC, and a variant with a bound on that part,
        too), a score that trusts outliers less (γ-robust); or, from all rows at once and with q(u) in closed form, the
        collapsed bound (SGPR) or the marginal likelihood of FITC.
    covariance : {"full", "diagonal", "none"}, default="full"
        Covariance of q(u), the distribution of the inducing values; "none" is a point estimate.
    decouple : {None, "inducing", "orthogonal", "kernel", "features", "mean"}, default=None
        Whether the mean has inducing points of its own: instead of those of the variance (PPGPR-MFD), or besides them
        and orthogonal to them (OD-SVGP); or, at the same points, hyper-parameters of its own (DCSVGP) or a network of
        its own (SVGP-DCDKL); or whether it is a network, and inducing points shape the variance only (NNSVGP).
    features : str, tuple of int or torch.nn.Module, optional
        A network between the inputs and the kernel (with ``decouple="mean"``, the one that the mean is made of): the
        widths of layers with ReLU between them, a name of :data:`candid.kernels.PRESETS` ("ppgpr", "dspp", "dc"), or a
        module that maps (row, D) to (row, W).
    covariance_features : str, tuple of int or torch.nn.Module, optional, default="same"
        With ``decouple="features"``, the network of the covariance: another one of the same make, one of its own, or
        None (SVGP-MeanDKL).
    inducing_space : {"input", "feature"}, default="input"
        Whether inducing points are rows of the table or, if there is a network, of its features.
    weight_decay : float, default=0.003
        Of networks, as of Adam: half of it times the sum of squares is added to the loss per row.
    decoupled : tuple of str, default=("lengthscale",)
        Which hyper-parameters of the kernel the mean has of its own with ``decouple="kernel"``. The amplitude is always
        shared.
    whiten : {"mean", "covariance"}, default="mean"
        With ``decouple="kernel"``, which of the two kernels whitens q(u).
    omega_weight : float, default=0.001
        With ``decouple="kernel"``, weight β₂ of the penalty Ω on the distance between the two conditionals. At zero it
        costs nothing.
    omega_scale : {"paper", "n_over_b"}, default="paper"
        Whether Ω is that of a batch, as published, or that times the number of batches.
    beta : float, optional
        Weight of the KL penalty (of −log p(u) for a point estimate); by default 0.2 for the predictive objective, of
        which it is no part, and 1 for all others.
    gamma : float, default=1.03
        Of the γ-robust score: above 1, where it would be the evidence lower bound.
    n_inducing : int, default=500
        Number of inducing points; at most one for each distinct row is used.
    n_mean_inducing : int, optional
        Number of the mean's own inducing points, if it has them; by default ``n_inducing``.
    init : {"warm", "kmeans", "random"} or array of shape (M, D), default="warm"
        Where training starts. "warm": kernel and noise from the leave-one-out likelihood of nearest neighbours (up to
        500 rows, from the exact marginal likelihood), inducing points by k-means, q(u) in closed form. An array (in the
        units of X) is a warm start with these inducing points (those that the mean has of its own are placed by
        k-means). "kmeans" and "random" only place the inducing points and leave the rest cold. With a network, "warm"
        trains it, with kernel and noise, in a small model of 32 inducing points, and k-means sees features.
    optimizer : {"auto", "adam", "natural"}, default="auto"
        How q(u) moves: by Adam or along natural gradients. "auto" takes these where they are defined: for the bounds
        "elbo", "vfitc" and "fitc_elbo" with a full covariance, where the mean has no points of its own; elsewhere an
        Adam in which small gradients count for less. All the rest moves by Adam.
    batch_size : int, default=1000
    max_epochs : int, optional
        By default as many as make 1400 steps of Adam or 500 of natural gradients (more on more than 40,000 rows), but
        not more than 40 (on short tables, than one for every four rows, from 100 to 400); from a cold start 30, or 1000
        steps. For objectives of all rows, rounds of L-BFGS, by default 6.
    lr : float, optional
        Learning rate of hyper-parameters and inducing points, by default 0.05 from a warm start and 0.01 from a cold
        one. From a warm start on less than ten thousand rows it is in proportion to the rows, down to a twentieth.
        Inducing points that are close together move by shorter steps. With a network it is 0.02, and that of the
        network 0.002 (0.001 with natural gradients).
    q_lr : float, optional
        Learning rate of q(u). From a warm start Adam's is by default 0.5 divided by the root of the kernel's amplitude,
        and on less than ten thousand rows in proportion to their square; that of natural gradients is 0.2. From a cold
        start it is 0.01.
    schedule : {"cosine", "gentle", "step", "thirds", "quarters", "constant"}, default="cosine"
        How the learning rate decays; the first two rise from nothing before, over a tenth or a fifth of the steps.
    dtype : {"float32", "float64"}, default="float32"
        Precision of training.
    kernel : str or Kernel, default="matern52"
        "rbf", "matern12", "matern32", "matern52", "rq", "periodic", "linear", a sum or product of these
        ("matern52 + linear"), or an object of :mod:`candid.kernels`.
    ard : bool, default=True
        One lengthscale for each feature, or one for all.
    mean : {"constant", "zero", "linear"}, default="constant"
        Prior mean function.
    likelihood : {"gaussian", "student-t", "binomial", "negative-binomial"}, default="gaussian"
        How y scatters around the latent function f: with normal noise; with Student's t noise, for outliers; or as
        counts, successes out of ``n_trials`` with probability 1/(1 + exp(−f)), or any counts, with a mean of r·exp(f)
        and more variance than Poisson's (r is learned). All but the first are for the objectives "elbo" and
        "predictive". Counts are not standardised.
    n_trials : int or array of shape (N,), optional
        Of binomial counts. If it is an array, new rows have numbers of their own:
        ``predict_distribution(X, n_trials=...)``.
    freedom : float, optional
        Degrees of freedom of Student's t noise, more than 2; by default they are learned.
    outputs : {"independent", "coregionalised"}, default="independent"
        Of several targets with normal noise: whether each has a latent function of its own, or all are mixtures y = Aᵀf
        of latent functions that they share, with a matrix A that is learned (the linear model of coregionalisation).
        Then predictions of a row are one normal distribution, with ``covariance`` and a ``log_prob`` of all its targets
        together, and ``return_cov`` has the shape (N, N, P, P). It is for the objectives "predictive", "elbo" and
        "robust". In both cases NaN in a y of several columns is an entry that was not observed, and rows without any
        target are left out.
    n_latents : int, optional
        How many latent functions coregionalised outputs share; by default, and at most, one for each.
    priors : dict, optional
        Hyper-parameter name → prior or bound of :mod:`candid.priors`, on the standardised scale.
    fixed : tuple of str, default=()
        Hyper-parameters that stay where they start, e.g. ``("lengthscale",)``.
    alpha : float or array of shape (N,) or (N, P), optional
        Known noise variance in squared units of y; by default the noise is learned.
    standardize : bool, default=True
        Standardise inputs and targets for training; results are in original units in any case.
    time_budget : float, optional
        Seconds after which the fit ends with what it has; starting points and restarts count.
    validation_fraction : float, default=0.0
        Share of the rows that is held out to watch the NLL.
    patience : int, optional
        Stop after so many epochs without a better held-out NLL, and go back to the best epoch.
    n_restarts : int, default=1
        Trainings from different starting points; the one with the best objective is kept.
    device : str, default="auto"
    n_threads : int, optional
        Threads of the fit. By default as many as torch is set to, and one for tables of up to 256 rows. Steps with few
        rows and inducing points use one in any case: several would mostly wait for each other.
    predict_dtype : {"float64", "float32"}, default="float64"
        Precision of predictions.
    random_state : int, RandomState or None
        With an int, a fit can be repeated bit for bit on one machine.
    verbose : bool, default=True
        Show a progress bar on a terminal.
    checkpoint_dir : str, optional
        Where an interrupted fit leaves what it needs to go on; the same fit, called again, resumes.
    callbacks : tuple of callables, default=()
        Called after each epoch with its record (a dict); a true answer stops training.

    Attributes
    ----------
    predictor_ : TablePredictor
        Latent mean and variance as differentiable torch functions, in original units.
    kernel_ : Kernel
        The fitted kernel, in the units of the table.
    mean_kernel_ : Kernel
        That of the mean, of unit amplitude, if the mean has one of its own.
    noise_ : float or ndarray
        Standard deviation of the noise, in units of y; counts have none.
    mixing_ : ndarray of shape (W, P)
        A of coregionalised outputs, in units of y. Their latent functions have no units, and neither has the amplitude
        of ``kernel_``.
    history_ : list of dict
        One record for each epoch, and one more where training has ended above its start and the model went back.
    jitter_ : float
        Share of the kernel's diagonal that factorisations needed.
    n_features_in_, feature_names_in_
        As in scikit-learn.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from candid import SparseGPRegressor
    >>> X, y = load_diabetes(return_X_y=True)
    >>> gp = SparseGPRegressor(n_inducing=50, random_state=0).fit(X, y)
    >>> mean, std = gp.predict(X[:3], return_std=True)
    """

    gamma: float = 1.03

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **LikelihoodChoice._parameter_constraints,
        **SparseGP._parameter_constraints,
        "gamma": [Interval(Real, 1, None, closed="neither")],
    }
    _shaping: ClassVar[tuple[str, ...]] = (*SparseGP._shaping, "likelihood", "outputs", "n_latents")

    def _objective_options(self) -> dict[str, float]:
        return {"gamma": self.gamma} if self.objective == "robust" else {}
