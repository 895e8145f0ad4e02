"""A fit that has only one feature, with what it is unsure of."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtri

from candid.plots.style import BESIDE, INK, OKABE_ITO, dress, new_axes
from candid.predictive import Predictive

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["fit_1d"]

GRID = 400
LEVEL = 0.95


def fit_1d(gp: Any, X: ArrayLike, y: ArrayLike, ax: Axes | None = None) -> Axes:
    """Rows, predictive mean and two central 95 % bands of a model of one feature.

    The inner band is where the function is believed to be, the outer one where a new observation will fall.

    Parameters
    ----------
    gp : fitted estimator
        Trained on one feature and one target.
    X : array of shape (N, 1) or (N,)
    y : array of shape (N,)
        The rows to draw as points.
    ax : matplotlib axes, optional
        Where to draw; by default a new figure, which is ``.figure`` of the result.

    Returns
    -------
    matplotlib axes
    """
    x, targets = np.asarray(X, dtype=np.float64), np.asarray(y, dtype=np.float64)
    if x.ndim > 2 or (x.ndim == 2 and x.shape[1] != 1) or getattr(gp, "n_features_in_", 1) != 1:
        raise ValueError("fit_1d draws models of one feature; give X with one column and a model that was fitted on it")
    if targets.size != x.size:
        raise ValueError(f"X has {x.size} rows and y has {targets.size} values; fit_1d draws one target")
    x, targets = x.ravel(), targets.ravel()
    if not len(x):
        raise ValueError("there are no rows to draw")
    margin = 0.05 * (np.ptp(x) or 1.0)
    grid = np.linspace(x.min() - margin, x.max() + margin, GRID)
    with warnings.catch_warnings():
        # A model that was fitted on a data frame may be asked by number.
        warnings.filterwarnings("ignore", message="X does not have valid feature names")
        p = gp.predict_distribution(grid[:, None])
    if not isinstance(p, Predictive):
        raise ValueError(f"fit_1d draws real numbers, and {type(gp).__name__} predicts classes")
    mean, latent = p.mean.reshape(GRID), ndtri((1 + LEVEL) / 2) * p.latent_std.reshape(GRID)
    lower, upper = (end.reshape(GRID) for end in p.interval(LEVEL))

    ax = new_axes(6.4, 3.8) if ax is None else ax
    blue = OKABE_ITO[0]
    ax.fill_between(grid, lower, upper, color=blue, alpha=0.14, linewidth=0, label="95 % of observations")
    ax.fill_between(
        grid, mean - latent, mean + latent, color=blue, alpha=0.34, linewidth=0, label="95 % of the function"
    )
    ax.plot(grid, mean, color=blue, linewidth=1.6, label="mean")
    opacity = float(np.clip(100 / len(x), 0.1, 0.8))
    ax.scatter(
        x, targets, s=9, color=INK, alpha=opacity, linewidths=0, label="rows", zorder=3, rasterized=len(x) > 2000
    )
    ax.set_xlim(grid[0], grid[-1])
    names = getattr(gp, "feature_names_in_", ["x"])
    dress(ax, type(gp).__name__, str(names[0]), "y", BESIDE)
    return ax
