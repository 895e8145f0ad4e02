"""A network with dropout."""

from __future__ import annotations

import math
from numbers import Integral, Real
from typing import Any, ClassVar

import torch
from sklearn.utils._param_validation import Interval

from candid.engines import Plan, Problem, n_batches
from candid.estimators.base import Regressor, gp_estimator
from candid.estimators.fitting import Setting
from candid.families import Dropout
from candid.kernels import make_network
from candid.likelihoods import Gaussian
from candid.methods import NETWORK, Composition

__all__ = ["NetworkRegressor"]

# Unless the user says otherwise, so many steps for each of the rows, within these bounds (above so many rows the upper
# one grows with their square root), and learning rates of the network and of the noise.
STEPS_PER_ROW, LEAST_STEPS, MOST_STEPS, MANY_ROWS = 0.5, 100, 4000, 40_000
RATE, NOISE_RATE = 0.003, 0.03


@gp_estimator
class NetworkRegressor(Regressor):
    """A neural network with dropout (MC-dropout): a baseline for GPs with the same interface.

    The network is fitted to the log-likelihood with Gaussian noise. In training hidden units are left out at random.
    For prediction there are ``n_passes`` copies of the network, each with some of its units left out for good, and the
    predictive distribution is a mixture of as many normals: how far the copies differ is the uncertainty of the model.

    Parameters
    ----------
    features : str, tuple of int or torch.nn.Module, default=(256, 256, 128, 128, 64)
        The network below the linear heads, of which there is one for each output: the widths of its hidden layers, with
        ReLU behind each, a name ("ppgpr", "dspp", "dc") or a module that maps (row, D) to (row, W). In a module, hidden
        units are those between the linear layers of a ``torch.nn.Sequential``, and the W features.
    dropout : float, default=0.1
        Probability to leave out a hidden unit: every layer but the first takes in what is left of the one before it.
    n_passes : int, default=50
        Number of thinned networks that predict.
    weight_decay : float, default=1e-4
        Of the network, as of Adam: half of it times the sum of squares is added to the loss per row. Short tables want
        more of it, or more dropout.
    likelihood : {"gaussian"}, default="gaussian"
    alpha : float or array of shape (N,) or (N, P), optional
        Known noise variance in squared units of y (the 1/τ of Gal and Ghahramani); by default the noise is learned.
    batch_size : int, default=256
    max_epochs : int, optional
        By default as many as make a step for every second row, from 100 to 4000 (more on more than 40,000 rows).
    lr : float, optional
        Of the network, by default 0.003; that of the noise is ten times as high.
    schedule : {"cosine", "gentle", "step", "thirds", "quarters", "constant"}, default="cosine"
    standardize, patience, time_budget, validation_fraction, n_restarts, device, dtype, n_threads, predict_dtype, \
random_state, verbose, checkpoint_dir, callbacks
        As for :class:`SparseGPRegressor`.

    Attributes
    ----------
    predictor_, noise_, history_, n_features_in_, feature_names_in_
        As for :class:`SparseGPRegressor`.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from candid import NetworkRegressor
    >>> X, y = load_diabetes(return_X_y=True)
    >>> net = NetworkRegressor(features=(32, 32), random_state=0).fit(X, y)
    >>> mean, std = net.predict(X[:3], return_std=True)
    >>> net.predict_distribution(X[:3])
    PredictiveMixture(3 rows, 50 sites)
    """

    features: str | tuple[int, ...] | torch.nn.Module = (256, 256, 128, 128, 64)
    dropout: float = 0.1
    n_passes: int = 50
    weight_decay: float = 1e-4
    batch_size: int = 256

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **Regressor._parameter_constraints,
        "features": [str, tuple, list, torch.nn.Module],
        "dropout": [Interval(Real, 0, 1, closed="left")],
        "n_passes": [Interval(Integral, 1, None, closed="left")],
        "weight_decay": [Interval(Real, 0, None, closed="left")],
    }
    _shaping: ClassVar[tuple[str, ...]] = (*Regressor._shaping, "features", "dtype")

    def _composition(self) -> Composition:
        return NETWORK

    def _model_dtype(self) -> torch.dtype:
        return getattr(torch, self.dtype)

    def _plan(self, setting: Setting, problem: Problem, seed: int) -> Plan:
        rate = RATE if self.lr is None else self.lr
        return Plan(
            steppers=NETWORK.steppers,
            max_epochs=self._epochs(len(setting.rows)) if self.max_epochs is None else self.max_epochs,
            batch_size=self.batch_size,
            lr=rate,
            rates={"rest": NOISE_RATE / RATE * rate},
            decay={"network": self.weight_decay},
            schedule=self.schedule,
            patience=self.patience,
            seed=seed,
        )

    def _epochs(self, n_rows: int) -> int:
        most = MOST_STEPS * max(1.0, math.sqrt(n_rows / MANY_ROWS))
        steps = min(max(STEPS_PER_ROW * n_rows, LEAST_STEPS), most)
        return math.ceil(steps / n_batches(n_rows, self.batch_size))

    def _build(self, setting: Setting, seed: int) -> Problem:
        rows = setting.rows
        n_features, n_outputs = rows.x.shape[1], rows.y.shape[1]
        network = make_network(self.features, n_features, seed)
        family = Dropout(network, n_outputs, self.dropout, self.n_passes, seed)
        likelihood = Gaussian(n_outputs=n_outputs, known=rows.noise, weight=rows.weight)
        problem = Problem(family, likelihood, NETWORK.objective).to(rows.x)
        if setting.start is not None:
            problem.load_state_dict(setting.start.state_dict())
        return problem
