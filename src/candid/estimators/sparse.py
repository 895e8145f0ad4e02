"""GPs with inducing points."""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
import torch
from sklearn.utils._param_validation import Interval, StrOptions

from candid.engines import (
    Plan,
    Problem,
    fit_by_evidence,
    fit_by_neighbours,
    match_noise,
    place_points,
    solve_weights,
)
from candid.estimators.base import GPRegressor, gp_estimator
from candid.estimators.fitting import Setting
from candid.estimators.inputs import Table
from candid.estimators.pace import cold_pace, share_of_many, warm_pace
from candid.families import (
    Conditional,
    Decoupled,
    Family,
    Inducing,
    Orthogonal,
    Sparse,
    decoupled_kernel,
    metric_of,
)
from candid.kernels import Kernel
from candid.methods import COLLAPSED, COLLAPSED_MOST_ROWS, Composition, inducing_points
from candid.weights import WEIGHTS

__all__ = ["SparseGPRegressor"]

# Share of the kernel's diagonal at which factorisations start.
JITTER = {torch.float32: 1e-6, torch.float64: 1e-8}
# Up to this many rows the warm start fits hyper-parameters to the exact marginal likelihood. They take at most this
# share of the time.
FEW_ROWS, WARM_SHARE = 500, 0.25
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
    decouple : {None, "inducing", "orthogonal", "kernel"}, default=None
        Whether the mean has inducing points of its own: instead of those of the variance (PPGPR-MFD), or besides them
        and orthogonal to them (OD-SVGP); or hyper-parameters of its own at the same points (DCSVGP).
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
        k-means). "kmeans" and "random" only place the inducing points and leave the rest cold.
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
        Inducing points that are close together move by shorter steps.
    q_lr : float, optional
        Learning rate of q(u). From a warm start Adam's is by default 0.5 divided by the root of the kernel's amplitude,
        and on less than ten thousand rows in proportion to their square; that of natural gradients is 0.2. From a cold
        start it is 0.01.
    schedule : {"cosine", "step", "thirds", "constant"}, default="cosine"
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
        "decouple": [StrOptions({"inducing", "orthogonal", "kernel"}), None],
        "decoupled": [tuple, list],
        "whiten": [StrOptions({"mean", "covariance"})],
        "omega_weight": [Interval(Real, 0, None, closed="left")],
        "omega_scale": [StrOptions({"paper", "n_over_b"})],
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

    def _check_table(self, table: Table) -> None:
        if self._collapsed and len(table) > COLLAPSED_MOST_ROWS:
            raise ValueError(
                f"objective={self.objective!r} needs all rows in memory at once, and {len(table)} are too many (more "
                f"than {COLLAPSED_MOST_ROWS}); use mini-batches: candid.make_gp('svgp') or candid.make_gp('vfitc')"
            )
        if self._collapsed and self.covariance != "full":
            raise ValueError(
                f"with objective={self.objective!r}, q(u) follows in closed form and has a full covariance; leave "
                "covariance='full', or use objective='elbo'"
            )

    def _plan(self, setting: Setting, problem: Problem, seed: int) -> Plan:
        n_rows, steppers = len(setting.rows), self._composition().steppers
        pace = cold_pace(n_rows, self.batch_size)
        if self._warm:
            natural, kept = steppers.get("weights") == "natural", self._kept(setting) is not None
            deviation, independence = _standard_deviation(problem.family.kernel), _independence(problem.family)
            pace = warm_pace(n_rows, self.batch_size, natural, deviation, independence, kept)
        epochs = COLLAPSED_ROUNDS if self._collapsed else pace.epochs
        rate = pace.rate if self.lr is None else self.lr
        return Plan(
            steppers=steppers,
            max_epochs=epochs if self.max_epochs is None else self.max_epochs,
            batch_size=n_rows if self._collapsed else self.batch_size,
            lr=rate,
            rates={"weights": pace.q_rate if self.q_lr is None else self.q_lr, "points": pace.point_share * rate},
            schedule=self.schedule,
            patience=self.patience,
            seed=seed,
        )

    def _build(self, setting: Setting, seed: int) -> Problem:
        rows = setting.rows
        kernel, mean, likelihood, prior = self._parts(setting, seed)
        options = {"gamma": self.gamma} if self.objective == "robust" else {}
        family = self._kept(setting)
        coefficients = {"kl": self.beta, "omega": self.omega_weight}
        if family is not None:
            family.adopt(kernel, mean)
            return Problem(family, likelihood, self.objective, coefficients, prior, options)
        if self._warm:
            fit = fit_by_evidence if len(rows) <= FEW_ROWS else fit_by_neighbours
            fit(kernel, mean, likelihood, prior, rows, seed, time_budget=_share(setting))
        family = self._family(setting, kernel, mean, seed)
        if self._warm:
            bound = self.objective in ("elbo", "robust", "sgpr")
            match_noise(family, likelihood, prior, rows, share=1.0 if bound else 0.5)
            openness = share_of_many(len(rows)) if self.objective == "predictive" else 0.0
            solve_weights(family, likelihood, rows, max(self.beta, LEAST_BETA), not bound, openness)
        return Problem(family, likelihood, self.objective, coefficients, prior, options)

    def _family(self, setting: Setting, kernel: Kernel, mean: Any, seed: int) -> Sparse:
        """The family with its inducing points in place, and nothing else known."""
        rows, made_of = setting.rows, self._composition()
        points = self._points(setting, kernel, seed)
        weights = WEIGHTS[str(made_of.weights)](points.shape[-2], tuple(points.shape[:-2]))
        jitter = JITTER[rows.x.dtype]
        if made_of.family == "inducing":
            return Inducing(kernel, mean, points, weights, jitter).to(rows.x)
        if made_of.family == "conditional":
            own_kernel = decoupled_kernel(kernel, tuple(self.decoupled))
            omega = {"with_omega": self.omega_weight > 0, "omega_scale": self.omega_scale}
            return Conditional(kernel, own_kernel, mean, points, weights, jitter, self.whiten, **omega).to(rows.x)
        own = self._placed(setting, kernel, self.n_mean_inducing or self.n_inducing, seed + 1)
        family = Decoupled if made_of.family == "decoupled" else Orthogonal
        return family(kernel, mean, own, points, weights.to(rows.x), jitter).to(rows.x)

    def _kept(self, setting: Setting) -> Sparse | None:
        """The family whose points and q(v) training goes on with.

        A model of few rows had few points; with more rows it may have more, and then starts from new ones. Points that
        the user gave are as many as they are.
        """
        family = setting.start.family if setting.start is not None else None
        wanted = self.n_inducing if isinstance(self.init, str) else 1
        return family if isinstance(family, Sparse) and family.points.shape[-2] >= wanted else None

    def _points(self, setting: Setting, kernel: Kernel, seed: int) -> torch.Tensor:
        """Inducing points of each output, (P, M, D)."""
        if isinstance(self.init, str):
            return self._placed(setting, kernel, self.n_inducing, seed)
        n_features = setting.rows.x.shape[1]
        given = np.asarray(self.init, dtype=np.float64)
        if given.ndim != 2 or given.shape[1] != n_features or not len(given):
            raise ValueError(f"init must have shape (M, {n_features}), a column for each feature; got {given.shape}")
        if not np.isfinite(given).all():
            raise ValueError("init has inducing points at NaN or infinity; give finite ones, in the units of X")
        return self._for_each_output(setting, setting.inputs(given))

    def _placed(self, setting: Setting, kernel: Kernel, n_points: int, seed: int) -> torch.Tensor:
        """Points where the rows are; a warm start measures distances in lengthscales."""
        how = "random" if isinstance(self.init, str) and self.init == "random" else "kmeans"
        x = setting.rows.x.double().cpu().numpy()
        lengths = metric_of(kernel, x.shape[1]).double().cpu().numpy() if self._warm else None
        points = place_points(x, n_points, how, seed, lengths)
        return self._for_each_output(setting, points)

    def _for_each_output(self, setting: Setting, points: np.ndarray) -> torch.Tensor:
        rows = setting.rows
        return torch.as_tensor(points).to(rows.x).expand(rows.y.shape[1], *points.shape)


@torch.no_grad()
def _standard_deviation(kernel: Kernel) -> float:
    """√amplitude, averaged over outputs."""
    amplitude, _ = kernel.split()
    return 1.0 if amplitude is None else float(amplitude.double().log().mean().exp().sqrt())


def _independence(family: Family) -> float:
    """Of the quarter of the inducing points that depend on the others the most, that of the freest one."""
    assert isinstance(family, Sparse)
    return float(family.independence().flatten().quantile(0.25))


def _share(setting: Setting) -> float | None:
    """Seconds that hyper-parameters may take."""
    time_left = setting.budget.left()
    return None if time_left is None else WARM_SHARE * time_left
