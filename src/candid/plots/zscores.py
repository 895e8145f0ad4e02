"""How far observations are from their predictions, in predicted standard deviations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtri
from scipy.stats import norm

from candid.metrics import z_scores
from candid.plots.models import distance_label, named_predictions
from candid.plots.style import BESIDE, GREY, dress, line_style, new_axes
from candid.predictive import Predictive

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["zscores"]

# The axis ends where the density of the furthest score does, but between these.
LEAST_REACH, MOST_REACH = 3.5, 6.0
# Densities are computed at so many places.
GRID = 601
# Half the width of the triangle that every score becomes, in spreads of the scores times N^(−1/5). The best one for
# normal scores is 2.58; it would make them look wider than they are, by a tenth for 60 rows.
BANDWIDTH = 1.8


def zscores(y: ArrayLike, predictions: Predictive | Mapping[str, Predictive], ax: Axes | None = None) -> Axes:
    """Densities of the z-scores ``Φ⁻¹(F(y))`` beside that of N(0, 1), for one model or several.

    A density that is wider than the normal one belongs to a model that is too sure of itself; a narrower one, to one
    that claims too little; one that leans to the right, to one that predicts too little. Scores count only close to
    where they are, so a tail that is there can be seen, and none is smoothed in. Of scores beyond ±6, which are not
    drawn, the legend gives the share, and the area below the curve is smaller by so much. The legend also gives each
    model's Wasserstein distance W₁ between its z-scores and N(0, 1).

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

    See Also
    --------
    candid.plots.calibration : the same scores as a cumulative distribution, with the range of chance.

    Examples
    --------
    >>> ax = candid.plots.zscores(y_test, {"svgp": svgp.predict_distribution(X_test)})  # doctest: +SKIP
    >>> ax.figure.savefig("zscores.png")  # doctest: +SKIP
    """
    named, n_rows = named_predictions(predictions)
    scores = {name: z_scores(y, p).ravel() for name, p in named.items()}
    end = max(np.abs(z).max() + _half_width(z) for z in scores.values())
    grid = np.linspace(-1, 1, GRID) * np.clip(end, LEAST_REACH, MOST_REACH)
    ax = new_axes(6.8, 3.8) if ax is None else ax

    for position, (name, z) in enumerate(scores.items()):
        ax.plot(grid, _density(z, grid), label=_label(name, z), zorder=3, **line_style(position))
    ax.fill_between(grid, norm.pdf(grid), color=GREY, alpha=0.28, linewidth=0, label="N(0, 1)", zorder=1)
    ax.set_xlim(grid[0], grid[-1])
    ax.set_ylim(bottom=0)
    dress(ax, f"z-scores on {n_rows:,} rows", "z = Φ⁻¹(F(y))", "density", BESIDE)
    return ax


def _label(name: str, z: np.ndarray) -> str:
    beyond = np.mean(np.abs(z) > MOST_REACH)
    return distance_label(name, z) + (f"\n{100 * beyond:.2g} % beyond ±{MOST_REACH:g}" if beyond else "")


def _density(z: np.ndarray, grid: np.ndarray) -> np.ndarray:
    """Mean of triangles around the scores, at the places of an even grid; it may hold less than all of them."""
    step = grid[1] - grid[0]
    reach = max(1, round(_half_width(z) / step))
    # As many cells more at either end as scores reach into the grid
    cells = np.linspace(grid[0] - (reach + 0.5) * step, grid[-1] + (reach + 0.5) * step, len(grid) + 2 * reach + 1)
    counts, _ = np.histogram(z, cells)
    triangle = 1 - np.abs(np.arange(-reach, reach + 1)) / reach
    return np.convolve(counts, triangle, mode="valid") / (len(z) * triangle.sum() * step)


def _half_width(z: np.ndarray) -> float:
    """Of the triangles: as the scores are spread, but not wider than for N(0, 1)."""
    lower, upper = np.quantile(z, [0.25, 0.75], method="nearest")
    spread = min((upper - lower) / (2 * ndtri(0.75)), 1.0) if np.isfinite([lower, upper]).all() else 1.0
    return BANDWIDTH * spread * len(z) ** -0.2
