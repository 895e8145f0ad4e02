"""GPs with inducing points whose parameters are sampled."""

from __future__ import annotations

from dataclasses import replace
from numbers import Integral, Real
from typing import Any, ClassVar, Self

import numpy as np
import torch
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted

from candid.engines import Plan, Problem, Sampling, match_noise, n_batches, solve_weights
from candid.estimators.base import GPRegressor, gp_estimator
from candid.estimators.chains import Chains, chains_for
from candid.estimators.diagnostics import diagnostics, inference_data, read_samples
from candid.estimators.fitting import Fitted, Setting
from candid.estimators.inputs import Table
from candid.estimators.start import JITTER, Start
from candid.families import Inducing, Posterior
from candid.kernels import Kernel, Scale
from candid.likelihoods import Gaussian
from candid.methods import SAMPLED_OBJECTIVES, Composition, sampled_points
from candid.priors import POINT_PRIORS, Box, HyperPrior, complete
from candid.weights import Delta, Full

__all__ = ["BayesianGPRegressor"]

# What can be sampled.
SAMPLED = {"u", "theta", "z", "noise"}
# Up to this many rows sampler="auto" is HMC; its trajectories start with steps of this size, and find their own.
HMC_ROWS, HMC_STEP = 1000, 0.1
# Learning rate of everything before samples are drawn, and of what is optimised in burn-in.
RATE = 0.01
# Amplitude of a kernel that starts cold, as published.
COLD_AMPLITUDE = 0.1


@gp_estimator
class BayesianGPRegressor(GPRegressor):
    """Sparse Gaussian process regression that samples what others optimise, by stochastic-gradient Hamiltonian MC.

    From hyper-parameters that an optimiser has found, one chain or several draw inducing values u, hyper-parameters θ
    and inducing inputs Z from their joint posterior. A prediction is the mixture over all samples.

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
    hidden_widths : tuple of int, default=()
        Widths of hidden layers. There are none yet.
    n_inducing : int, default=100
        Number of inducing points; at most one for each distinct row is used.
    init : {"warm", "kmeans", "random"} or array of shape (M, D), default="warm"
        Where training starts, as for :class:`SparseGPRegressor`; u is drawn from its closed form.
    sampler : {"sghmc", "hmc", "auto"}, default="sghmc"
        SGHMC, with mini-batches; HMC, whose trajectories see all rows, and are accepted or not; or HMC on tables of up
        to 1000 rows.
    optimizer : {"adam", "window"}, default="adam"
        How that which is not sampled moves in burn-in: along gradients at the present samples, or (if only u is
        sampled) at one of the last 64, picked at random.
    n_samples : int, optional
        Samples of each chain, by default 64 on short tables and up to 256 on long ones (of 5000 rows or more).
    n_chains : int, default=1
        Chains side by side, as one computation.
    burn_in : int, optional
        Steps of the sampler before samples are collected, in which it adapts to its target; by default 200 to 2000.
    thin : int, optional
        Steps from one sample to the next, by default 8 to 32. A step of HMC is a trajectory of 12.
    step_size : float, optional
        Of the sampler. That of SGHMC is by default 0.05 on short tables, 0.03 on ones of 5000 rows, and falls to 0.01
        on longer ones; HMC finds its own, and starts at 0.1.
    max_epochs : int, optional
        Of the optimiser, before samples are drawn; by default none from a warm start, and as many as make 1000 steps
        from a cold one.
    max_steps : int, optional
        The same in steps.
    lr : float, optional
        Learning rate of the optimiser, by default 0.01.
    priors : dict, optional
        Hyper-parameter name → prior or bound of :mod:`candid.priors`, on the standardised scale. Where θ is sampled,
        log ℓ ~ N(0, 1) and log amplitude ~ N(log 0.05, 1) by default; where the noise is, log σ² ~ N(log 0.1, 1).
        Positive hyper-parameters are sampled through their logarithms, whose density the priors are taken for.
    batch_size : int, default=1000
    kernel, ard, mean, likelihood, fixed, alpha, standardize, schedule, time_budget, validation_fraction, patience, \
n_restarts, device, dtype, n_threads, predict_dtype, random_state, verbose, checkpoint_dir, callbacks
        As for :class:`SparseGPRegressor`. Of a time budget, training takes at most three tenths and burn-in ends at one
        half. Held-out rows watch over training, and see the mixture of the samples so far.

    Attributes
    ----------
    predictor_, history_, jitter_, n_features_in_, feature_names_in_
        As for :class:`SparseGPRegressor`.
    kernel_ : Kernel
        In the middle of the samples: hyper-parameters at the averages of their logarithms.
    noise_ : float or ndarray
        Standard deviation of the noise, in units of y, whose square is averaged over samples.
    samples_ : dict of ndarray
        Samples of each parameter, (chain, draw, …), on the standardised table; not part of model files.
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

    sample: tuple[str, ...] = ("u", "theta", "z")
    objective: str = "fitc"
    inducing_prior: str = "normal"
    hidden_widths: tuple[int, ...] = ()
    n_inducing: int = 100
    init: str | np.ndarray = "warm"
    sampler: str = "sghmc"
    optimizer: str = "adam"
    n_samples: int | None = None
    n_chains: int = 1
    burn_in: int | None = None
    thin: int | None = None
    step_size: float | None = None
    max_steps: int | None = None
    batch_size: int = 1000

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **GPRegressor._parameter_constraints,
        "sample": [tuple, list],
        "objective": [str],
        "inducing_prior": [StrOptions(set(POINT_PRIORS))],
        "hidden_widths": [tuple, list],
        "n_inducing": [Interval(Integral, 1, None, closed="left")],
        "init": [StrOptions({"warm", "kmeans", "random"}), "array-like"],
        "sampler": [StrOptions({"sghmc", "hmc", "auto"})],
        "optimizer": [StrOptions({"adam", "window"})],
        "n_samples": [Interval(Integral, 1, None, closed="left"), None],
        "n_chains": [Interval(Integral, 1, None, closed="left")],
        "burn_in": [Interval(Integral, 0, None, closed="left"), None],
        "thin": [Interval(Integral, 1, None, closed="left"), None],
        "step_size": [Interval(Real, 0, None, closed="neither"), None],
        "max_steps": [Interval(Integral, 0, None, closed="left"), None],
    }
    _shaping: ClassVar[tuple[str, ...]] = (
        *GPRegressor._shaping,
        "sample",
        "inducing_prior",
        "hidden_widths",
        "n_chains",
        "dtype",
    )

    def _composition(self) -> Composition:
        return sampled_points(self.objective, self.sample, self.sampler, self.optimizer)

    def _model_dtype(self) -> torch.dtype:
        return getattr(torch, self.dtype)

    @property
    def _warm(self) -> bool:
        return not (isinstance(self.init, str) and self.init in ("kmeans", "random"))

    def _check_table(self, table: Table) -> None:
        if not self.sample or not set(self.sample) <= SAMPLED:
            raise ValueError(f"sample must name some of {', '.join(sorted(SAMPLED))}; got {self.sample!r}")
        if self.objective not in SAMPLED_OBJECTIVES:
            raise ValueError(f"objective must be one of {', '.join(SAMPLED_OBJECTIVES)}; got {self.objective!r}")
        if self.hidden_widths:
            raise ValueError("this model has one layer: leave hidden_widths=()")
        if self.optimizer == "window" and set(self.sample) != {"u"}:
            raise ValueError("optimizer='window' remembers inducing values: use it with sample=('u',)")

    def _train(self, table: Table, start: Fitted | None) -> Self:
        super()._train(table, start)
        self.samples_ = read_samples(self._fitted.problem)
        return self

    @property
    def diagnostics_(self) -> dict[str, dict[str, float]]:
        return diagnostics(self._own_samples())

    def to_inference_data(self, X=None):
        """Samples as ArviZ's ``InferenceData``, with those of the latent function at the rows of ``X`` if given.

        Parameters
        ----------
        X : array-like of shape (N, D), optional
            Then a variable ``f`` (in units of y, without noise) has an entry for each of these rows.
        """
        samples = self._own_samples()
        if X is not None:
            mean = torch.cat([part.mean for part in self.predictor_.stream(self._inputs(X), mean_only=True)], -2)
            sites = mean.double().numpy().reshape(-1, self.n_chains, *mean.shape[1:])
            samples = {**samples, "f": self._shaped(np.moveaxis(sites, 1, 0))}
        return inference_data(samples)

    def _own_samples(self) -> dict[str, np.ndarray]:
        if not self.__sklearn_is_fitted__():
            check_is_fitted(self)
        if not hasattr(self, "samples_"):
            raise AttributeError("a model that was loaded from a file has no samples of parameters; fit it anew")
        return self.samples_

    # The model at its starting point

    def _build(self, setting: Setting, seed: int) -> Problem:
        if setting.start is not None:
            setting = replace(setting, start=setting.start.middle())
        kernel, mean, likelihood, prior = self._parts(setting, seed)
        sampled = {"kernel": kernel, "mean": mean} if "theta" in self.sample else {}
        if "noise" in self.sample:
            sampled["likelihood"] = likelihood
        prior = complete(torch.nn.ModuleDict(sampled), prior)
        how = "random" if isinstance(self.init, str) and self.init == "random" else "kmeans"
        start = Start(setting, likelihood, prior, seed, 0.0, self._warm, how, in_features=False)
        if self._warm and setting.start is None:
            start.fit(kernel, mean)
        elif setting.start is None:
            self._cool(kernel)
        points = self._points(start, kernel)
        shape = points.shape[-2], tuple(points.shape[:-2])
        family = Inducing(kernel, mean, points, Delta(*shape), JITTER[points.dtype]).to(points)
        values = family.weights.mean.detach().expand(self.n_chains, *family.weights.mean.shape)
        if self._warm:
            values = self._values(Inducing(kernel, mean, points, Full(*shape), JITTER[points.dtype]).to(points), start)
        problem = self._chained(setting, family, likelihood, prior)
        for weights in problem.family.weight_parameters():
            weights.data.copy_(values)
        return problem

    def _values(self, family: Inducing, start: Start) -> torch.Tensor:
        """Inducing values of each chain: drawn from what is known of them in closed form, if they are sampled."""
        rows, likelihood, fitc = start.setting.rows, start.likelihood, self.objective == "fitc"
        assert isinstance(likelihood, Gaussian)
        match_noise(family, likelihood, start.prior, rows, share=0.5 if fitc else 1.0)
        solve_weights(family, likelihood, rows, residual_is_noise=fitc)
        mean, root = family.weights.mean.detach(), family.weights.root()
        assert root is not None
        numbers = torch.randn(self.n_chains, *mean.shape, 1, generator=torch.Generator().manual_seed(start.seed))
        deviation = (root.detach() @ numbers.to(mean)).squeeze(-1)
        return mean + deviation if "u" in self.sample else mean.expand_as(deviation)

    def _chained(self, setting: Setting, family: Inducing, likelihood: Gaussian, prior: HyperPrior | None) -> Problem:
        """Several models of the kind, with priors of what is sampled."""
        places = []
        if "z" in self.sample:
            places = [(family, POINT_PRIORS[self.inducing_prior](Box.around(setting.rows.x)))]
        if "noise" in self.sample and likelihood.noise is not None:
            likelihood.noise.expand((self.n_chains, *likelihood.noise.raw.shape))
        posterior = Posterior(family, self.n_chains)
        if places or prior is not None:
            prior = HyperPrior([] if prior is None else prior.terms, places)
            prior.chains = (self.n_chains,)
        return Problem(posterior, likelihood, SAMPLED_OBJECTIVES[self.objective], prior=prior)

    def _cool(self, kernel: Kernel) -> None:
        """Where a kernel starts that the user has named but not given."""
        if isinstance(self.kernel, str) and isinstance(kernel, Scale) and not kernel.amplitude.fixed:
            kernel.amplitude.set(torch.full_like(kernel.amplitude.value, COLD_AMPLITUDE))

    def _points(self, start: Start, kernel: Kernel) -> torch.Tensor:
        """Inducing points of each output, (P, M, D)."""
        setting = start.setting
        if setting.start is not None:
            earlier = setting.start.family
            assert isinstance(earlier, Inducing)
            if earlier.points.shape[-2] >= (self.n_inducing if isinstance(self.init, str) else 1):
                return earlier.points.detach()
        if isinstance(self.init, str):
            return start.points(kernel, self.n_inducing, start.seed)
        return start.given(self._given_points(setting.rows.x.shape[1]))

    def _given_points(self, n_features: int) -> np.ndarray:
        given = np.asarray(self.init, dtype=np.float64)
        if given.ndim != 2 or given.shape[1] != n_features or not len(given):
            raise ValueError(f"init must have shape (M, {n_features}), a column for each feature; got {given.shape}")
        if not np.isfinite(given).all():
            raise ValueError("init has inducing points at NaN or infinity; give finite ones, in the units of X")
        return given

    # Training

    def _plan(self, setting: Setting, problem: Problem, seed: int) -> Plan:
        n_rows = len(setting.rows)
        hmc = self.sampler == "hmc" or (self.sampler == "auto" and n_rows <= HMC_ROWS)
        batch_size = n_rows if hmc else self.batch_size
        chains = self._chains(n_rows, batch_size)
        made_of = sampled_points(self.objective, self.sample, "hmc" if hmc else "sghmc", self.optimizer)
        rate = RATE if self.lr is None else self.lr
        step_size = HMC_STEP if hmc and self.step_size is None else chains.step_size
        samplers = ("sghmc", "hmc")
        rates = {group: step_size if kind in samplers else rate for group, kind in made_of.steppers.items()}
        return Plan(
            steppers={"all": "adam"},
            max_epochs=chains.epochs,
            max_steps=self.max_steps,
            batch_size=batch_size,
            lr=rate,
            schedule=self.schedule,
            patience=self.patience,
            seed=seed,
            sampling=Sampling(made_of.steppers, chains.burn_in, chains.n_samples, chains.thin, rates),
        )

    def _chains(self, n_rows: int, batch_size: int) -> Chains:
        """The default lengths, and what the user says instead."""
        given = {"burn_in": self.burn_in, "n_samples": self.n_samples, "thin": self.thin, "step_size": self.step_size}
        if self.max_epochs is not None:
            given["epochs"] = self.max_epochs
        elif self.max_steps is not None:
            given["epochs"] = -(-self.max_steps // n_batches(n_rows, batch_size))
        chosen = {name: value for name, value in given.items() if value is not None}
        return replace(chains_for(n_rows, batch_size, self._warm), **chosen)
