"""Is a model unsure because of noise, or because of itself?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from candid.plots.models import MOST_POINTS, named_predictions
from candid.plots.style import BESIDE, dress, line_style, new_axes
from candid.predictive import Predictive

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["variance_share"]


def variance_share(predictions: Predictive | Mapping[str, Predictive], ax: Axes | None = None) -> Axes:
    """Which part of the predictive variance is noise, row by row, for one model or several.

    The noise shares (noise variance / predictive variance) of all rows in increasing order: below a curve is the noise,
    above it the model's own uncertainty about the function. A curve close to one belongs to a model that explains
    nearly all of its errors as noise; a flat one, to one whose error bars hardly differ between rows. The legend gives
    the mean share, which is the area below the curve. Rows that are predicted without any uncertainty count as zero.

    Parameters
    ----------
    predictions : predictive distribution, or dict of name → predictive distribution
    ax : matplotlib axes, optional
        Where to draw; by default a new figure, which is ``.figure`` of the result.

    Returns
    -------
    matplotlib axes

    See Also
    --------
    candid.metrics.noise_share : the mean alone.

    Examples
    --------
    >>> predictions = {name: gp.predict_distribution(X_test) for name, gp in models.items()}  # doctest: +SKIP
    >>> ax = candid.plots.variance_share(predictions)  # doctest: +SKIP
    """
    named, n_rows = named_predictions(predictions)
    ax = new_axes(6.2, 3.8) if ax is None else ax
    for position, (name, p) in enumerate(named.items()):
        shares = _noise_shares(p)
        label = f"{name}  mean {shares.mean():.2f}"
        ax.plot(*_curve(shares), drawstyle="steps-pre", label=label, zorder=3, **line_style(position))
    ax.set(xlim=(0, 1), ylim=(0, 1.02))
    dress(
        ax,
        f"Noise share on {n_rows:,} rows",
        "share of rows, from the least noise to the most",
        "noise share of the predictive variance",
        BESIDE,
    )
    return ax


def _noise_shares(p: Predictive) -> np.ndarray:
    """Of all entries, in increasing order."""
    ratio = np.divide(p.noise_std, p.std, out=np.zeros(p.shape), where=p.std > 0)
    return np.sort(ratio.ravel() ** 2)


def _curve(shares: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The quantile function: a step for every entry or, if there are many, quantiles on a grid."""
    levels = np.linspace(0, 1, min(len(shares), MOST_POINTS) + 1)
    heights = np.quantile(shares, levels, method="inverted_cdf")
    return levels, heights
