"""GPs with inducing points."""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any, ClassVar, Self

import numpy as np
import torch
from sklearn.utils._param_validation import Interval, StrOptions
from torch import Tensor

from candid.engines import Plan, Problem, Rows, match_noise, solve_weights
from candid.estimators.base import GPRegressor, gp_estimator
from candid.estimators.fitting import Fitted, Setting
from candid.estimators.inputs import Table
from candid.estimators.pace import cold_pace, share_of_many, warm_pace
from candid.estimators.start import JITTER, Start, seen_by
from candid.families import (
    Centred,
    Conditional,
    Decoupled,
    Embedded,
    Family,
    Inducing,
    Mean,
    NetworkMean,
    Orthogonal,
    Sparse,
    decoupled_kernel,
    inducing_part,
)
from candid.kernels import Deep, Kernel, make_network, networks_in
from candid.likelihoods import Gaussian
from candid.methods import COLLAPSED, COLLAPSED_MOST_ROWS, Composition, inducing_points
from candid.priors import HyperPrior
from candid.weights import WEIGHTS

__all__ = ["SparseGPRegressor"]

# q(u) has a closed form for every β > 0, and takes this one for β = 0.
LEAST_BETA = 1e-3
# Rounds of L-BFGS for objectives of all rows.
COLLAPSED_ROUNDS = 6


@gp_estimator
class SparseGPRegressor(GPRegressor):
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
    beta : float, default=0.2
        Weight of the KL penalty (of −log p(u) for a point estimate).
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
    schedule : {"cosine", "step", "thirds", "quarters", "constant"}, default="cosine"
        How the learning rate decays.
    dtype : {"float32", "float64"}, default="float32"
        Precision of training.
    kernel : str or Kernel, default="matern52"
        "rbf", "matern12", "matern32", "matern52", "rq", "periodic", "linear", a sum or product of these
        ("matern52 + linear"), or an object of :mod:`candid.kernels`.
    ard : bool, default=True
        One lengthscale for each feature, or one for all.
    mean : {"constant", "zero", "linear"}, default="constant"
        Prior mean function.
    likelihood : {"gaussian"}, default="gaussian"
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
        Threads of the fit. By default as many as torch is set to, and one for tables of up to 256 rows.
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
        Standard deviation of the noise, in units of y.
    history_ : list of dict
        One record for each epoch.
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

    objective: str = "predictive"
    covariance: str = "full"
    decouple: str | None = None
    decoupled: tuple[str, ...] = ("lengthscale",)
    whiten: str = "mean"
    omega_weight: float = 0.001
    omega_scale: str = "paper"
    features: str | tuple[int, ...] | torch.nn.Module | None = None
    covariance_features: str | tuple[int, ...] | torch.nn.Module | None = "same"
    inducing_space: str = "input"
    weight_decay: float = 0.003
    beta: float = 0.2
    gamma: float = 1.03
    n_inducing: int = 500
    n_mean_inducing: int | None = None
    init: str | np.ndarray = "warm"
    optimizer: str = "auto"
    q_lr: float | None = None
    batch_size: int = 1000

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **GPRegressor._parameter_constraints,
        "objective": [str],
        "covariance": [StrOptions({"none", "diagonal", "full"})],
        "decouple": [StrOptions({"inducing", "orthogonal", "kernel", "features", "mean"}), None],
        "decoupled": [tuple, list],
        "whiten": [StrOptions({"mean", "covariance"})],
        "omega_weight": [Interval(Real, 0, None, closed="left")],
        "omega_scale": [StrOptions({"paper", "n_over_b"})],
        "features": [str, tuple, list, torch.nn.Module, None],
        "covariance_features": [str, tuple, list, torch.nn.Module, None],
        "inducing_space": [StrOptions({"input", "feature"})],
        "weight_decay": [Interval(Real, 0, None, closed="left")],
        "beta": [Interval(Real, 0, None, closed="left")],
        "gamma": [Interval(Real, 1, None, closed="neither")],
        "n_inducing": [Interval(Integral, 1, None, closed="left")],
        "n_mean_inducing": [Interval(Integral, 1, None, closed="left"), None],
        "init": [StrOptions({"warm", "kmeans", "random"}), "array-like"],
        "optimizer": [StrOptions({"auto", "adam", "natural"})],
        "q_lr": [Interval(Real, 0, None, closed="neither"), None],
    }
    _shaping: ClassVar[tuple[str, ...]] = (
        *GPRegressor._shaping,
        "covariance",
        "decouple",
        "decoupled",
        "whiten",
        "omega_weight",
        "omega_scale",
        "features",
        "covariance_features",
        "inducing_space",
        "dtype",
    )

    def _composition(self) -> Composition:
        return inducing_points(self.objective, self.covariance, self.decouple, self.optimizer)

    def _model_dtype(self) -> torch.dtype:
        return torch.float64 if self._collapsed else getattr(torch, self.dtype)

    @property
    def _collapsed(self) -> bool:
        """Whether the objective needs all rows at once."""
        return self.objective in COLLAPSED

    @property
    def _warm(self) -> bool:
        """Whether a new model starts close to the optimum."""
        return not (isinstance(self.init, str) and self.init in ("kmeans", "random"))

    @property
    def _same_features(self) -> bool:
        return isinstance(self.covariance_features, str) and self.covariance_features == "same"

    def _check_table(self, table: Table) -> None:
        if self._collapsed:
            self._check_collapsed(len(table))
        if self.decouple in ("features", "mean") and self.features is None:
            raise ValueError(f"decouple={self.decouple!r} needs a network: give features, for example features='dc'")
        if not self._same_features and self.decouple != "features":
            raise ValueError("covariance_features is for decouple='features'; leave it at 'same', or decouple features")
        if self.inducing_space == "feature" and self.decouple in ("features", "mean"):
            raise ValueError(
                f"with decouple={self.decouple!r} mean and covariance have no features in common, in which inducing "
                "points could be; use inducing_space='input'"
            )
        if self.inducing_space == "feature" and not isinstance(self.init, str):
            raise ValueError("inducing points that are given are rows of the table; use inducing_space='input'")

    def _check_collapsed(self, n_rows: int) -> None:
        if n_rows > COLLAPSED_MOST_ROWS:
            raise ValueError(
                f"objective={self.objective!r} needs all rows in memory at once, and {n_rows} are too many (more "
                f"than {COLLAPSED_MOST_ROWS}); use mini-batches: candid.make_gp('svgp') or candid.make_gp('vfitc')"
            )
        if self.covariance != "full":
            raise ValueError(
                f"with objective={self.objective!r}, q(u) follows in closed form and has a full covariance; leave "
                "covariance='full', or use objective='elbo'"
            )
        if self.features is not None:
            raise ValueError(
                f"objective={self.objective!r} has no mini-batches, which a network needs; use objective='elbo'"
            )

    def _plan(self, setting: Setting, problem: Problem, seed: int) -> Plan:
        n_rows, steppers = len(setting.rows), self._composition().steppers
        pace = cold_pace(n_rows, self.batch_size)
        if self._warm:
            natural, kept = steppers.get("weights") == "natural", self._kept(setting) is not None
            deviation, independence = _standard_deviation(problem.family.kernel), _independence(problem.family)
            deep = any(networks_in(problem))
            pace = warm_pace(n_rows, self.batch_size, natural, deviation, independence, kept, deep)
        epochs = COLLAPSED_ROUNDS if self._collapsed else pace.epochs
        rate = pace.rate if self.lr is None else self.lr
        return Plan(
            steppers=steppers,
            max_epochs=epochs if self.max_epochs is None else self.max_epochs,
            batch_size=n_rows if self._collapsed else self.batch_size,
            lr=rate,
            rates={
                "weights": pace.q_rate if self.q_lr is None else self.q_lr,
                "points": pace.point_share * rate,
                "network": pace.network_rate if self.lr is None else self.lr,
            },
            decay={"network": self.weight_decay},
            schedule=self.schedule,
            patience=self.patience,
            seed=seed,
        )

    def _train(self, table: Table, start: Fitted | None) -> Self:
        super()._train(table, start)
        self.__dict__.pop("mean_kernel_", None)
        if self._fitted.mean_kernel is not None:
            self.mean_kernel_ = self._fitted.mean_kernel
        return self

    # The model at its starting point

    def _build(self, setting: Setting, seed: int) -> Problem:
        kernel, mean, likelihood, prior = self._parts(setting, seed)
        family = self._kept(setting)
        if family is not None:
            family.adopt(kernel, mean)
        else:
            how = "random" if isinstance(self.init, str) and self.init == "random" else "kmeans"
            in_features = self.inducing_space == "feature"
            start = Start(setting, likelihood, prior, seed, self.weight_decay, self._warm, how, in_features)
            if self._warm:
                start.fit(kernel, mean)
            family = self._family(start, kernel, mean)
            if self._warm:
                self._solve(family, likelihood, prior, setting.rows)
        options = {"gamma": self.gamma} if self.objective == "robust" else {}
        coefficients = {"kl": self.beta, "omega": self.omega_weight}
        return Problem(family, likelihood, self.objective, coefficients, prior, options)

    def _make_kernel(self, n_features: int, n_outputs: int, seed: int) -> Kernel:
        """That of the covariance."""
        if self.decouple == "mean":
            features = None
        else:
            features = self.features if self._same_features else self.covariance_features
        return self._kernel_behind(features, n_features, n_outputs, seed)

    def _kernel_behind(self, features: Any, n_features: int, n_outputs: int, seed: int) -> Kernel:
        """The kernel of the inputs, or of what a network makes of them."""
        if features is None:
            return super()._make_kernel(n_features, n_outputs, seed)
        network = make_network(features, n_features, seed)
        return Deep(network, super()._make_kernel(network.width, n_outputs, seed))

    def _make_mean(self, kernel: Kernel, n_features: int, n_outputs: int, seed: int) -> Mean:
        if self.decouple == "mean":
            return NetworkMean(self.features, n_features, n_outputs, seed=seed)
        if self.inducing_space == "feature":
            if not isinstance(kernel, Deep):
                raise ValueError("inducing_space='feature' needs a network: give features, for example features='dc'")
            # The mean sees what the inducing points see.
            n_features = kernel.network.width
        return super()._make_mean(kernel, n_features, n_outputs, seed)

    def _family(self, start: Start, kernel: Kernel, mean: Mean) -> Sparse | Embedded:
        """The family with its inducing points in place, and nothing else known."""
        points = self._points(start, kernel)
        more = {}
        if self.decouple in ("inducing", "orthogonal"):
            more["mean_points"] = start.points(kernel, self.n_mean_inducing or self.n_inducing, start.seed + 1)
        if self.inducing_space == "feature":
            assert isinstance(kernel, Deep)
            return Embedded(kernel.network, self._sparse(start, kernel.base, mean, points, **more))
        return self._sparse(start, kernel, mean, points, **more)

    def _sparse(
        self, start: Start, kernel: Kernel, mean: Mean, points: Tensor, mean_points: Tensor | None = None
    ) -> Sparse:
        made_of = self._composition()
        weights = WEIGHTS[str(made_of.weights)](points.shape[-2], tuple(points.shape[:-2])).to(points)
        jitter = JITTER[points.dtype]
        if made_of.family == "conditional":
            omega = {"with_omega": self.omega_weight > 0, "omega_scale": self.omega_scale}
            mean_kernel = self._mean_kernel(start, kernel, mean)
            family = Conditional(kernel, mean_kernel, mean, points, weights, jitter, self.whiten, **omega)
        elif mean_points is not None:
            kind = Decoupled if made_of.family == "decoupled" else Orthogonal
            family = kind(kernel, mean, mean_points, points, weights, jitter)
        else:
            kind = Centred if made_of.family == "centred" else Inducing
            family = kind(kernel, mean, points, weights, jitter)
        return family.to(points)

    def _mean_kernel(self, start: Start, kernel: Kernel, mean: Mean) -> Kernel:
        """That of the mean: it starts at the covariance's, or has been fitted in the same way."""
        if self.decouple == "kernel":
            return decoupled_kernel(kernel, tuple(self.decoupled))
        if self._same_features:
            return decoupled_kernel(kernel, ("network",))
        rows = start.setting.rows
        own = self._kernel_behind(self.features, rows.x.shape[1], rows.y.shape[1], start.seed + 1).to(rows.x)
        if self._warm:
            start.fit(own, mean)
        return own.unit

    def _solve(self, family: Family, likelihood: Gaussian, prior: HyperPrior | None, rows: Rows) -> None:
        """Noise and q(v) in closed form."""
        inducing, rows = inducing_part(family), seen_by(family, rows)
        assert inducing is not None
        bound = self.objective in ("elbo", "robust", "sgpr")
        # A network has been trained together with the noise that belongs to it.
        if not any(networks_in(family)):
            match_noise(inducing, likelihood, prior, rows, share=1.0 if bound else 0.5)
        openness = share_of_many(len(rows)) if self.objective == "predictive" else 0.0
        solve_weights(inducing, likelihood, rows, max(self.beta, LEAST_BETA), not bound, openness)

    def _kept(self, setting: Setting) -> Sparse | Embedded | None:
        """The family whose points and q(v) training goes on with.

        A model of few rows had few points; with more rows it may have more, and then starts from new ones. Points that
        the user gave are as many as they are.
        """
        if setting.start is None:
            return None
        family = setting.start.family
        inducing, wanted = inducing_part(family), self.n_inducing if isinstance(self.init, str) else 1
        return family if inducing is not None and inducing.points.shape[-2] >= wanted else None  # pyright: ignore[reportReturnType]

    def _points(self, start: Start, kernel: Kernel) -> Tensor:
        """Inducing points of each output, (P, M, D)."""
        if isinstance(self.init, str):
            return start.points(kernel, self.n_inducing, start.seed)
        n_features = start.setting.rows.x.shape[1]
        given = np.asarray(self.init, dtype=np.float64)
        if given.ndim != 2 or given.shape[1] != n_features or not len(given):
            raise ValueError(f"init must have shape (M, {n_features}), a column for each feature; got {given.shape}")
        if not np.isfinite(given).all():
            raise ValueError("init has inducing points at NaN or infinity; give finite ones, in the units of X")
        return start.given(given)


@torch.no_grad()
def _standard_deviation(kernel: Kernel) -> float:
    """√amplitude, averaged over outputs."""
    amplitude, _ = kernel.split()
    return 1.0 if amplitude is None else float(amplitude.double().log().mean().exp().sqrt())


def _independence(family: Family) -> float:
    """Of the quarter of the inducing points that depend on the others the most, that of the freest one."""
    inducing = inducing_part(family)
    assert inducing is not None
    return float(inducing.independence().flatten().quantile(0.25))
