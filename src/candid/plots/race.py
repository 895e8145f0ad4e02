"""How good models become while they train."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from candid.plots.style import GREY, dress, line_style, new_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["race", "time_to_reach"]

#: Seconds of training and the score at these moments.
Curve = tuple[Sequence[float], Sequence[float]]


def race(
    curves: Mapping[str, Curve],
    level: float | None = None,
    title: str = "Test NLL while training",
    score: str = "test NLL",
    ax: Axes | None = None,
) -> Axes:
    """Scores against seconds of training on a logarithmic axis; the smaller a score the better.

    Parameters
    ----------
    curves : dict of name → (seconds, scores)
    level : float, optional
        Drawn as a horizontal line; the legend says when each curve reaches it.
    title, score : str
        Title of the picture, and what the scores are.
    ax : matplotlib axes, optional
        Where to draw; by default a new figure, which is ``.figure`` of the result.

    Returns
    -------
    matplotlib axes

    Examples
    --------
    >>> ax = candid.plots.race({"ours": ([1, 2, 4], [0.5, -0.2, -0.9])}, level=-0.866)  # doctest: +SKIP
    """
    drawn = {name: curve for name, curve in curves.items() if len(curve[0])}
    if not drawn:
        raise ValueError("there are no curves to draw: give seconds and scores of at least one model")
    ax = new_axes(6.8, 4.2) if ax is None else ax
    for position, (name, curve) in enumerate(drawn.items()):
        ax.plot(*curve, label=_label(name, curve, level), marker=".", markersize=4, zorder=3, **line_style(position))
    if level is not None:
        ax.axhline(level, color=GREY, linewidth=1.0, label=f"level to reach: {level:.3f}".replace("-", "−"), zorder=2)
    ax.set_xscale("log")
    dress(ax, title, "seconds of training", score, {"loc": "best"})
    return ax


def time_to_reach(curve: Curve, level: float) -> float | None:
    """Seconds at which a curve is for the first time at ``level`` or below; None if it never is."""
    return next((second for second, score in zip(*curve, strict=True) if score <= level), None)


def _label(name: str, curve: Curve, level: float | None) -> str:
    if level is None:
        return name
    seconds = time_to_reach(curve, level)
    return f"{name}: " + (
        f"after {_rounded(seconds)}" if seconds is not None else f"not within {_rounded(curve[0][-1])}"
    )


def _rounded(seconds: float) -> str:
    """Three digits, or all before the point."""
    return f"{seconds:.3g} s" if seconds < 1000 else f"{seconds:,.0f} s"
