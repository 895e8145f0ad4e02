"""GPs upon GPs."""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any, ClassVar

import torch
from sklearn.utils._param_validation import Interval, StrOptions

from candid.engines import Plan, Problem, Rows, train
from candid.estimators.base import GPRegressor, gp_estimator
from candid.estimators.deep_pace import cold_deep_pace, warm_deep_pace
from candid.estimators.deep_parts import LayerParts, build_layers
from candid.estimators.deep_start import DeepStart
from candid.estimators.fitting import Setting
from candid.estimators.inputs import Table
from candid.families import (
    RULES,
    TOPOLOGIES,
    Embedded,
    Family,
    FixedSites,
    Layers,
    MonteCarlo,
    Rule,
    Wiring,
    make_rule,
)
from candid.kernels import Features, make_network
from candid.likelihoods import Likelihood
from candid.methods import Composition, layers_of_gps
from candid.priors import HyperPrior, attach

__all__ = ["DeepGPRegressor"]

# Sites, unless the user says otherwise: of rules whose sites are lined up, and along each side of a grid.
LINED_UP, GRID = 10, 3
# Epochs for which starting points compete.
TRIAL_EPOCHS = 2


@gp_estimator
class DeepGPRegressor(GPRegressor):
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
    covariance : {"diagonal", "full", "none"}, default="diagonal"
        Covariance of q(u), the distribution of the inducing values, in every layer; "none" is a point estimate.
    beta : float, default=0.2
        Weight of the KL penalty, which is the sum over all GPs.
    gamma : float, default=1.03
        Of the γ-robust score: above 1, where it would be the evidence lower bound.
    n_inducing : int, default=300
        Number of inducing points of each GP; at most one for each distinct row is used.
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
        How q(u) moves: by an Adam in which small gradients count for less, or by plain Adam.
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
    mean : {"constant", "zero", "linear"}, default="constant"
        Mean function of the last layer. Hidden layers have linear ones.
    kernel, ard
        Of all layers; as for :class:`SparseGPRegressor`.
    likelihood, priors, fixed, alpha, standardize, schedule, time_budget, validation_fraction, patience, n_restarts, \
device, dtype, n_threads, predict_dtype, random_state, verbose, checkpoint_dir, callbacks
        As for :class:`SparseGPRegressor`. Names of hyper-parameters of hidden layers end with, for example,
        "hidden.0.kernel.base.lengthscale".

    Attributes
    ----------
    kernel_ : Kernel
        The fitted kernel of the last layer; its inputs are hidden values.
    predictor_, noise_, history_, jitter_, n_features_in_, feature_names_in_
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

    hidden_widths: tuple[int, ...] = (5,)
    propagation: str = "quadrature"
    quadrature: str = "qr3"
    n_sites: int | None = None
    n_predict_sites: int = 32
    topology: str = "chain"
    skip: bool = False
    objective: str = "predictive"
    covariance: str = "diagonal"
    beta: float = 0.2
    gamma: float = 1.03
    n_inducing: int = 300
    features: str | tuple[int, ...] | torch.nn.Module | None = None
    weight_decay: float = 0.003
    init: str = "warm"
    n_starts: int = 1
    optimizer: str = "auto"
    q_lr: float | None = None
    batch_size: int = 500

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **GPRegressor._parameter_constraints,
        "hidden_widths": [tuple, list],
        "propagation": [StrOptions({"quadrature", "sampling"})],
        "quadrature": [StrOptions(set(RULES))],
        "n_sites": [Interval(Integral, 1, None, closed="left"), None],
        "n_predict_sites": [Interval(Integral, 1, None, closed="left")],
        "topology": [StrOptions(set(TOPOLOGIES))],
        "skip": ["boolean"],
        "objective": [str],
        "covariance": [StrOptions({"none", "diagonal", "full"})],
        "beta": [Interval(Real, 0, None, closed="left")],
        "gamma": [Interval(Real, 1, None, closed="neither")],
        "n_inducing": [Interval(Integral, 1, None, closed="left")],
        "features": [str, tuple, list, torch.nn.Module, None],
        "weight_decay": [Interval(Real, 0, None, closed="left")],
        "init": [StrOptions({"warm", "kmeans", "random"})],
        "n_starts": [Interval(Integral, 1, None, closed="left")],
        "optimizer": [StrOptions({"auto", "adam"})],
        "q_lr": [Interval(Real, 0, None, closed="neither"), None],
    }
    _shaping: ClassVar[tuple[str, ...]] = (
        *GPRegressor._shaping,
        "hidden_widths",
        "propagation",
        "quadrature",
        "n_sites",
        "topology",
        "skip",
        "covariance",
        "features",
        "dtype",
    )

    def _composition(self) -> Composition:
        return layers_of_gps(self.objective, self.covariance, self.optimizer)

    def _model_dtype(self) -> torch.dtype:
        return getattr(torch, self.dtype)

    def _check_table(self, table: Table) -> None:
        widths = self.hidden_widths
        if not all(isinstance(width, Integral) and width > 0 for width in widths):
            raise ValueError(f"hidden_widths are the numbers of GPs in each hidden layer, such as (5,); got {widths!r}")

    def _plan(self, setting: Setting, problem: Problem, seed: int) -> Plan:
        n_rows = len(setting.rows)
        pace = (warm_deep_pace if self.init == "warm" else cold_deep_pace)(n_rows, self.batch_size)
        return Plan(
            steppers=self._composition().steppers,
            max_epochs=pace.epochs if self.max_epochs is None else self.max_epochs,
            batch_size=self.batch_size,
            **pace.rates(self.lr, self.q_lr),
            decay={"network": self.weight_decay},
            schedule=self.schedule,
            patience=self.patience,
            seed=seed,
        )

    # The model at its starting point

    def _build(self, setting: Setting, seed: int) -> Problem:
        earlier = setting.start
        if earlier is not None and _layers_of(earlier.family).last.points.shape[-2] >= self.n_inducing:
            problem = self._empty(setting, seed, _layers_of(earlier.family).last.points.shape[-2])
            problem.load_state_dict(earlier.state_dict())
            return problem
        if self.n_starts == 1:
            return self._started(setting, seed)
        return self._best_start(setting, seed)

    def _best_start(self, setting: Setting, seed: int) -> Problem:
        """Of several starts, the one whose objective is the best after a short training."""
        reached: list[tuple[float, Problem]] = []
        for start in range(self.n_starts):
            if start and setting.budget.spent():
                break
            problem = self._started(setting, seed + 1000 * start)
            plan = self._plan(setting, problem, seed)
            trial = Plan(**{**vars(plan), "max_epochs": TRIAL_EPOCHS, "schedule": "constant", "patience": None})
            train(problem, setting.rows, trial)
            reached.append((problem.standing(setting.rows), problem))
        return min(reached, key=lambda pair: pair[0])[1]

    def _started(self, setting: Setting, seed: int) -> Problem:
        """A problem at one starting point."""
        parts, likelihood, prior, network = self._make_parts(setting, seed)
        start = DeepStart(
            setting=setting,
            likelihood=likelihood,
            prior=prior,
            seed=seed,
            weight_decay=self.weight_decay,
            wiring=self._wiring,
            covariance=str(self._composition().weights),
            n_inducing=self.n_inducing,
            beta=self.beta,
            objective=self.objective,
        )
        x = setting.rows.x
        if network is not None:
            if self.init == "warm":
                start.fit_network(network, parts[0].kernel)
            x = _features(network, x)
        layers = start.warm(parts, x) if self.init == "warm" else start.cold(parts, x, self.init)
        return self._problem(Layers(layers, self._rule(seed), self._wiring), network, likelihood, prior, setting.rows)

    def _empty(self, setting: Setting, seed: int, n_points: int) -> Problem:
        """A problem whose tensors are still to be loaded."""
        parts, likelihood, prior, network = self._make_parts(setting, seed)
        layers = build_layers(parts, str(self._composition().weights), n_points, setting.rows.x)
        return self._problem(Layers(layers, self._rule(seed), self._wiring), network, likelihood, prior, setting.rows)

    def _problem(
        self, layers: Layers, network: Features | None, likelihood: Likelihood, prior: HyperPrior | None, rows: Rows
    ) -> Problem:
        family: Family = layers if network is None else Embedded(network, layers)
        options = {"gamma": self.gamma} if self.objective == "robust" else {}
        return Problem(family, likelihood, self.objective, {"kl": self.beta}, prior, options).to(rows.x)

    def _make_parts(
        self, setting: Setting, seed: int
    ) -> tuple[list[LayerParts], Any, HyperPrior | None, Features | None]:
        """Kernels and mean functions of the layers, the likelihood, the priors of all these, and a network."""
        rows, widths = setting.rows, [int(width) for width in self.hidden_widths]
        network = None if self.features is None else make_network(self.features, rows.x.shape[1], seed).to(rows.x)
        n_features = rows.x.shape[1] if network is None else network.width
        layers = []
        for layer, n_outputs in enumerate([*widths, setting.n_latents]):
            n_kernel, n_mean = self._wiring.widths(layer, n_features, widths)
            mean = self.mean if layer == len(widths) else "linear"
            kernel = self._make_kernel(n_kernel, n_outputs, seed)
            layers.append(LayerParts.make(kernel, n_kernel, mean, n_mean, n_outputs))
        *hidden, last = layers
        parts = torch.nn.ModuleDict(
            {
                "kernel": last.kernel,
                "mean": last.mean,
                "likelihood": self._make_likelihood(rows),
                "hidden": torch.nn.ModuleList([layer.module() for layer in hidden]),
            }
        ).to(rows.x)
        return layers, parts["likelihood"], attach(parts, self.priors, self.fixed), network

    @property
    def _wiring(self) -> Wiring:
        return Wiring(len(self.hidden_widths) + 1, self.topology, self.skip)

    def _rule(self, seed: int) -> Rule:
        widths = [int(width) for width in self.hidden_widths]
        if not widths:
            return FixedSites((), torch.zeros(1, 1), crossed=False)
        if self.propagation == "sampling":
            return MonteCarlo(self.n_sites or LINED_UP, widths, self.n_predict_sites, seed)
        return make_rule(
            self.quadrature, self.n_sites or (LINED_UP if self.quadrature == "qr3" else GRID), widths, seed
        )


def _layers_of(family: Family) -> Layers:
    inner = family.inner if isinstance(family, Embedded) else family
    assert isinstance(inner, Layers)
    return inner


@torch.no_grad()
def _features(network: Features, x: torch.Tensor) -> torch.Tensor:
    (features,) = network.settled(x)
    return features
