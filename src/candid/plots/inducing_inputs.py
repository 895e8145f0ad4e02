"""Where inducing inputs that were sampled may be."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import gaussian_kde

from candid.plots.models import MOST_POINTS
from candid.plots.style import BESIDE, GREY, OKABE_ITO, dress, new_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["inducing_inputs"]

# Nodes of the density in each direction, samples that it is made of at most, and its shades.
GRID, MOST_SAMPLES, SHADES = 80, 4000, 7
# Rows of more classes than there are colours and markers look alike.
MARKERS = ("o", "^", "s", "D", "v", "P")


def inducing_inputs(
    gp: Any,
    X: ArrayLike,
    y: ArrayLike | None = None,
    ax: Axes | None = None,
    features: tuple[int, int] = (0, 1),
) -> Axes:
    """The posterior density of inducing inputs over the rows, in the plane of two features.

    It is that of all inducing points together; of a deep model, those of its first layer.

    Parameters
    ----------
    gp : fitted estimator
        A :class:`~candid.BayesianGPRegressor` or :class:`~candid.BayesianGPClassifier` that has sampled "z".
    X : array of shape (N, D)
        The rows to draw.
    y : array of shape (N,), optional
        Labels, by which rows have colours and markers.
    ax : matplotlib axes, optional
        Where to draw; by default a new figure, which is ``.figure`` of the result.
    features : pair of int, default=(0, 1)
        The columns of the plane.

    Returns
    -------
    matplotlib axes
    """
    x, points = np.asarray(X, dtype=np.float64), _in_the_plane(gp, features)
    if x.ndim != 2 or x.shape[1] != gp.n_features_in_ or not len(x):
        raise ValueError(f"X needs rows of {gp.n_features_in_} features, as the model was fitted on; got {x.shape}")
    labels = np.zeros(len(x)) if y is None else np.asarray(y)
    if labels.shape != (len(x),):
        raise ValueError(f"X has {len(x)} rows and y has the shape {labels.shape}; give one label for each row")
    ax = new_axes(5.6, 4.2) if ax is None else ax
    rows = x[:, list(features)]
    _draw_density(ax, points, np.concatenate([rows, points]))
    some = points[:: -(-len(points) // MOST_POINTS)]
    ax.scatter(*some.T, s=3, color=OKABE_ITO[0], alpha=0.25, linewidths=0, label="samples of Z", zorder=2)
    _draw_rows(ax, rows, labels, y is not None)
    names = getattr(gp, "feature_names_in_", [f"x{number + 1}" for number in range(x.shape[1])])
    dress(ax, type(gp).__name__, str(names[features[0]]), str(names[features[1]]), BESIDE)
    return ax


def _in_the_plane(gp: Any, features: tuple[int, int]) -> np.ndarray:
    """All samples of all inducing inputs in the units of the table, (sample, 2)."""
    samples = getattr(gp, "samples_", {})
    z = samples.get("hidden.0.z", samples.get("z"))
    if z is None:
        raise ValueError(
            "there are no samples of inducing inputs: fit a Bayesian GP with 'z' in its parameter sample (model files "
            "do not hold samples of parameters)"
        )
    if len(features) != 2 or not all(0 <= number < z.shape[-1] for number in features):
        raise ValueError(f"features are two columns of X, of which there are {z.shape[-1]}; got {features!r}")
    shift, scale = (part.double().numpy() for part in (gp.predictor_.x_shift, gp.predictor_.x_scale))
    return (shift + scale * z.reshape(-1, z.shape[-1]))[:, list(features)]


def _draw_density(ax: Axes, points: np.ndarray, extent: np.ndarray) -> None:
    """Shades of a kernel density estimate; points on a line have none."""
    some = points[:: -(-len(points) // MOST_SAMPLES)]
    if len(some) < 3 or np.linalg.matrix_rank(np.cov(some.T)) < 2:
        return
    margin = 0.05 * np.ptp(extent, axis=0)
    low, high = extent.min(0) - margin, extent.max(0) + margin
    across, up = (np.linspace(low[axis], high[axis], GRID) for axis in (0, 1))
    plane = np.stack([part.ravel() for part in np.meshgrid(across, up)])
    # Half of the usual width: what these densities are about is their many modes.
    estimate = gaussian_kde(some.T, lambda density: 0.5 * density.scotts_factor())
    height = estimate(plane).reshape(GRID, GRID)
    shades = height.max() * np.linspace(0, 1, SHADES + 1)[1:-1]
    ax.contourf(across, up, height, [*shades, height.max()], cmap="Blues", alpha=0.6, zorder=1)


def _draw_rows(ax: Axes, rows: np.ndarray, labels: np.ndarray, labelled: bool) -> None:
    opacity = float(np.clip(150 / len(rows), 0.15, 0.7))
    for number, label in enumerate(np.unique(labels)):
        colour = OKABE_ITO[(number + 1) % len(OKABE_ITO)] if labelled else GREY
        own = {"color": colour, "marker": MARKERS[number % len(MARKERS)], "label": str(label) if labelled else "rows"}
        ax.scatter(*rows[labels == label].T, s=9, alpha=opacity, linewidths=0, zorder=3, **own)
