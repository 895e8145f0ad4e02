"""Our results and the published ones as a picture."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from candid.bench.comparison import Comparison
from candid.plots.style import GREY, OKABE_ITO, dress, new_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["draw_comparison", "draw_comparisons"]

PANELS_SIDE_BY_SIDE = 4
PANEL_WIDTH, ROW_HEIGHT, MARGIN = 2.6, 0.24, 0.9
OURS, PUBLISHED = OKABE_ITO[0], OKABE_ITO[1]


def draw_comparisons(comparisons: Sequence[Comparison], metric: str, title: str) -> Any:
    """A figure with one panel for each data set; in each, one line for each method."""
    data = list(dict.fromkeys(entry.data for entry in comparisons))
    methods = list(dict.fromkeys(entry.method for entry in comparisons))
    if not data:
        raise ValueError("there are no results to draw")
    columns = min(len(data), PANELS_SIDE_BY_SIDE)
    rows = math.ceil(len(data) / columns)
    height = rows * (MARGIN + ROW_HEIGHT * len(methods)) + MARGIN
    figure: Any = new_axes(MARGIN + PANEL_WIDTH * columns, height).figure
    figure.clear()
    panels = figure.subplots(rows, columns, sharey=True, squeeze=False).flatten()
    for name, panel in zip(data, panels, strict=False):
        draw_comparison([entry for entry in comparisons if entry.data == name], methods, panel)
        dress(panel, name, metric, "")
    for panel in panels[len(data) :]:
        panel.set_axis_off()
    figure.suptitle(title, x=0.01, ha="left")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(handles), frameon=False)
    return figure


def draw_comparison(comparisons: Sequence[Comparison], methods: Sequence[str], ax: Axes) -> Axes:
    """One data set: a full dot for our figure, a ring for the published one, a line between them, 2 standard errors."""
    for entry in comparisons:
        height, ends = methods.index(entry.method), [entry.ours, entry.published]
        known = [end.mean for end in ends if end is not None]
        ax.plot(known, [height] * len(known), color=GREY, linewidth=1.0, zorder=1)
    for side, colour, face in (("ours", OURS, OURS), ("published", PUBLISHED, "white")):
        points = [(getattr(entry, side), methods.index(entry.method)) for entry in comparisons]
        points = [(end, height) for end, height in points if end is not None]
        ax.errorbar(
            [end.mean for end, _ in points],
            [height for _, height in points],
            xerr=[2 * (end.standard_error or 0.0) for end, _ in points],
            fmt="o",
            markersize=5,
            color=colour,
            markerfacecolor=face,
            elinewidth=1.0,
            label=side,
            zorder=3 if side == "ours" else 2,
        )
    ax.set_yticks(range(len(methods)), labels=list(methods))
    ax.set_ylim(len(methods) - 0.5, -0.5)
    return ax
