"""Metrics and lengthscales against the parameter that a benchmark varies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from candid.bench.comparison import Comparison
from candid.bench.published import Figure
from candid.bench.spec import LENGTHSCALES, METRICS, Sweep
from candid.plots.style import OKABE_ITO, dress, new_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["COLUMNS", "draw_sweep"]

#: What is drawn, from left to right → how it is called.
COLUMNS = {"nll": f"test {METRICS['nll']}", "rmse": f"test {METRICS['rmse']}", **LENGTHSCALES}
PANEL_WIDTH, PANEL_HEIGHT, MARGIN = 2.9, 2.5, 0.8
LINE, ZERO, ORIGIN = OKABE_ITO[0], OKABE_ITO[2], OKABE_ITO[1]


def draw_sweep(sweep: Sweep, comparisons: Mapping[str, Sequence[Comparison]], title: str) -> Any:
    """A figure with a row of panels for each data set and method, and one column for each entry of :data:`COLUMNS`.

    Parameters
    ----------
    sweep : Sweep
    comparisons : mapping
        Metric → our results, for every name in :data:`COLUMNS`.
    title : str
    """
    ours = {
        (metric, entry.data, entry.method): entry.ours
        for metric, entries in comparisons.items()
        for entry in entries
        if entry.ours is not None
    }
    methods = {name: row.method for name, row in sweep.rows().items()}
    rows = list(dict.fromkeys((data, methods[name]) for _, data, name in ours if name in methods))
    if not rows:
        raise ValueError("there are no results to draw")
    figure: Any = new_axes(PANEL_WIDTH * len(COLUMNS), PANEL_HEIGHT * len(rows) + MARGIN).figure
    figure.clear()
    panels = figure.subplots(len(rows), len(COLUMNS), squeeze=False)
    for (data, method), line in zip(rows, panels, strict=True):
        for (metric, label), panel in zip(COLUMNS.items(), line, strict=True):
            curve = {value: ours.get((metric, data, sweep.name(method, value))) for value in sweep.values}
            # The method that a row grows out of has one lengthscale for both.
            same = "lengthscale" if metric in LENGTHSCALES else metric
            _draw_panel(panel, sweep, method, curve, ours.get((same, data, sweep.origins[method])))
            first = panel is line[0]
            dress(panel, f"{data}, {method}" if first else "", sweep.symbol, label, {"loc": "best"} if first else None)
    figure.suptitle(title, x=0.01, ha="left")
    return figure


def _draw_panel(
    ax: Axes, sweep: Sweep, method: str, curve: Mapping[float, Figure | None], origin: Figure | None
) -> None:
    """Points with 2 standard errors. Zero, which a logarithmic axis does not have, is a dashed line."""
    points = [(value, figure) for value, figure in curve.items() if value > 0 and figure is not None]
    ax.errorbar(
        [value for value, _ in points],
        [figure.mean for _, figure in points],
        yerr=[2 * (figure.standard_error or 0.0) for _, figure in points],
        fmt="o-",
        markersize=4,
        linewidth=1.4,
        elinewidth=1.0,
        color=LINE,
        label=method,
    )
    zero = curve.get(0.0)
    if zero is not None:
        ax.axhline(zero.mean, color=ZERO, linestyle="dashed", linewidth=1.2, label=f"{sweep.symbol} = 0")
    if origin is not None:
        ax.axhline(origin.mean, color=ORIGIN, linestyle="dotted", linewidth=1.6, label=sweep.origins[method])
    ax.set_xscale("log")
