"""Do predicted probabilities come true?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import kstwo

from candid.metrics import calibration_curve, z_scores
from candid.plots.models import MOST_POINTS, distance_label, named_predictions
from candid.plots.style import BESIDE, GREY, dress, line_style, new_axes
from candid.predictive import Predictive

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["calibration"]


def calibration(y: ArrayLike, predictions: Predictive | Mapping[str, Predictive], ax: Axes | None = None) -> Axes:
    """Empirical distribution of the z-scores against the normal distribution, for one model or several.

    A calibrated model follows the diagonal. A curve that is flat in the middle and steep at the ends belongs to a model
    that is too sure of itself; steep in the middle, to one that claims too little; a curve above the diagonal, to one
    that predicts too much. The grey band holds the whole curve of a calibrated model in 95 % of all cases
    (Kolmogorov–Smirnov). The legend gives each model's Wasserstein distance W₁ between its z-scores and N(0, 1).

    Parameters
    ----------
    y : array of the shape of the predictions
        What was observed, on rows that no model was trained on.
    predictions : predictive distribution, or dict of name → predictive distribution
    ax : matplotlib axes, optional
        Where to draw; by default a new figure, which is ``.figure`` of the result.

    Returns
    -------
    matplotlib axes

    Examples
    --------
    >>> ax = candid.plots.calibration(y_test, {"svgp": svgp.predict_distribution(X_test)})  # doctest: +SKIP
    >>> ax.figure.savefig("calibration.png")  # doctest: +SKIP
    """
    named, n_rows = named_predictions(predictions)
    curves = [(distance_label(name, z_scores(y, p)), *_curve(y, p)) for name, p in named.items()]
    ax = new_axes(6.2, 4.2) if ax is None else ax

    for position, (label, levels, observed) in enumerate(curves):
        ax.plot(levels, observed, drawstyle="steps-post", label=label, zorder=3, **line_style(position))
    diagonal = np.array([0.0, 1.0])
    reach = kstwo.ppf(0.95, n_rows)
    ax.plot(diagonal, diagonal, color=GREY, linewidth=0.9, label="perfectly calibrated", zorder=2)
    ax.fill_between(
        diagonal,
        diagonal - reach,
        diagonal + reach,
        color=GREY,
        alpha=0.16,
        linewidth=0,
        label="range of chance (95 %)",
        zorder=1,
    )
    ax.set(xlim=(0, 1), ylim=(0, 1), aspect="equal")
    ticks = np.linspace(0, 1, 6)
    ax.set_xticks(ticks)
    ax.set_yticks(ticks)
    dress(ax, f"Calibration on {n_rows:,} rows", "predicted probability  Φ(z)", "observed share of rows", BESIDE)
    return ax


def _curve(y: ArrayLike, p: Predictive) -> tuple[np.ndarray, np.ndarray]:
    """From (0, 0) to (1, 1), through every target or, if there are many, a grid of levels."""
    grid = np.linspace(0, 1, MOST_POINTS + 1) if p.mean.size > MOST_POINTS else None
    levels, observed = calibration_curve(y, p, levels=grid)
    return np.concatenate([[0.0], levels, [1.0]]), np.concatenate([[0.0], observed, [1.0]])
