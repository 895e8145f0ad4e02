"""Do the sites of deep sigma point processes share the work?"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from candid.plots.style import BESIDE, GREY, OKABE_ITO, dress, new_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["leading_weights"]

RANKS = ("largest", "second largest", "third largest", "fourth largest", "fifth largest")
N_BINS = 20


def leading_weights(models: Iterable[Any], n_leading: int = 3, ax: Axes | None = None) -> Axes:
    """Histograms of the largest quadrature weights of several models.

    A deep sigma point process learns what each of its sites counts in the predictive mixture. Where one site takes all
    of the weight, the others are of no use, and the prediction is normal after all. The line is where the weights would
    be if all sites counted the same; the legend gives the mean of each weight.

    Parameters
    ----------
    models : iterable of fitted DeepGPRegressor or DeepGPClassifier, or of arrays of shape (S,)
        Models, or their ``quadrature_weights_``; all with as many sites.
    n_leading : int, default=3
        How many weights of each are shown: the largest, the second largest, and so on.
    ax : matplotlib axes, optional
        Where to draw; by default a new figure, which is ``.figure`` of the result.

    Returns
    -------
    matplotlib axes

    References
    ----------
    M. Jankowiak, G. Pleiss, J. R. Gardner, Deep sigma point processes (2020), Figure 9.

    Examples
    --------
    >>> models = [candid.make_gp("dspp", random_state=seed).fit(X, y) for seed in range(9)]  # doctest: +SKIP
    >>> ax = candid.plots.leading_weights(models)  # doctest: +SKIP
    """
    weights = _sorted_weights(models)
    if not 1 <= n_leading <= min(weights.shape[1], len(RANKS)):
        most = min(weights.shape[1], len(RANKS))
        raise ValueError(f"n_leading must be from 1 to {most} for {weights.shape[1]} sites, got {n_leading}")
    ax = new_axes(6.2, 3.8) if ax is None else ax
    edges = np.linspace(0, 1, N_BINS + 1)
    for rank in range(n_leading):
        label = f"{RANKS[rank]}  mean {weights[:, rank].mean():.2f}"
        ax.hist(weights[:, rank], edges.tolist(), color=OKABE_ITO[rank], alpha=0.55, label=label, zorder=3)
    ax.axvline(1 / weights.shape[1], color=GREY, linewidth=1.2, linestyle="--", label="all sites alike")
    ax.set(xlim=(0, 1))
    title = f"Leading weights of {len(weights):,} models with {weights.shape[1]} sites"
    dress(ax, title, "quadrature weight", "models", BESIDE)
    return ax


def _sorted_weights(models: Iterable[Any]) -> np.ndarray:
    """Of each model, (model, site), from the largest to the smallest."""
    each = [np.asarray(getattr(model, "quadrature_weights_", model), dtype=np.float64) for model in models]
    if not each:
        raise ValueError("there are no models; give fitted deep GPs, or their quadrature_weights_")
    if {weights.ndim for weights in each} != {1} or len({weights.shape for weights in each}) != 1:
        shapes = ", ".join(str(weights.shape) for weights in each)
        raise ValueError(f"models must be deep GPs with as many sites each; their weights have the shapes {shapes}")
    weights = np.stack(each)
    if (weights < 0).any() or not np.allclose(weights.sum(1), 1):
        raise ValueError("quadrature weights are not negative, and those of a model add up to one")
    return -np.sort(-weights, axis=1)
