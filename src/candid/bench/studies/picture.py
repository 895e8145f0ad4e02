"""Curves side by side."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from candid.bench.studies.findings import Panel
from candid.plots.style import GREY, dress, line_style, new_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["draw_panels"]

# Inches: of panels, of what is around them, of an entry of a legend and of each of its letters.
PANEL_WIDTH, PANEL_HEIGHT, MARGIN, ENTRY, LETTER = 4.0, 2.7, 0.7, 0.75, 0.085
# Curves of so few points have dots, and places of so few values are ticks.
FEW_POINTS, FEW_PLACES = 12, 8
# An axis is long where the largest value is so many times the smallest.
LONG = 300.0


def draw_panels(panels: Sequence[Panel], title: str) -> Any:
    """A figure with two or three panels in a row; a curve has one colour in all of them."""
    if not panels:
        raise ValueError("there is nothing to draw")
    columns = len(panels) if len(panels) <= 3 else 2
    rows, width = math.ceil(len(panels) / columns), PANEL_WIDTH * columns
    figure: Any = new_axes(width, PANEL_HEIGHT * rows + MARGIN).figure
    figure.clear()
    axes = figure.subplots(rows, columns, squeeze=False).flatten()
    names = list(dict.fromkeys(name for panel in panels for name in panel.curves))
    for panel, ax in zip(panels, axes, strict=False):
        _draw(ax, panel, names)
    for ax in axes[len(panels) :]:
        ax.set_axis_off()
    figure.suptitle(title, x=0.01, ha="left")
    labels = {label: handle for ax in axes for handle, label in zip(*ax.get_legend_handles_labels(), strict=True)}
    fitting = max(1, int(width / (ENTRY + LETTER * max(map(len, names)))))
    figure.legend(
        [labels[name] for name in names],
        names,
        loc="outside lower center",
        # As many in every line
        ncols=math.ceil(len(names) / math.ceil(len(names) / fitting)),
        frameon=False,
    )
    return figure


def _draw(ax: Axes, panel: Panel, names: Sequence[str]) -> None:
    few = max(len(places) for places, _ in panel.curves.values()) <= FEW_POINTS
    for name, (places, values) in panel.curves.items():
        style = line_style(names.index(name))
        ax.plot(places, values, label=name, marker="o" if few else "", markersize=3.5, **style)
        if name in panel.marks:
            best = min(range(len(places)), key=lambda i, name=name: abs(places[i] - panel.marks[name]))
            ax.plot(places[best], values[best], "o", markersize=5, color=style["color"], zorder=4)
    if panel.level is not None:
        ax.axhline(panel.level, color=GREY, linewidth=0.8, zorder=1)
    if panel.ticks:
        ax.set_xticks(range(len(panel.ticks)), labels=list(panel.ticks))
        ax.set_xlim(-0.3, len(panel.ticks) - 0.7)
    if panel.log_x:
        places = sorted({place for places, _ in panel.curves.values() for place in places})
        _make_logarithmic(ax, "x", places, len(places) <= FEW_PLACES)
    if panel.log_y:
        _make_logarithmic(ax, "y", [value for _, values in panel.curves.values() for value in values])
    if panel.bottom is not None:
        ax.set_ylim(panel.bottom, -0.05 * panel.bottom)
    dress(ax, panel.title, panel.x_label, panel.y_label)


def _make_logarithmic(ax: Axes, name: str, values: Sequence[float], number_all: bool = False) -> None:
    """Numbers at powers of ten; on a short axis at 1, 2 and 5 times these, or at all values."""
    from matplotlib.ticker import FormatStrFormatter, LogLocator, NullLocator

    ax.set(**{f"{name}scale": "log"})
    axis = ax.xaxis if name == "x" else ax.yaxis
    if max(values) > LONG * min(values):
        return
    if number_all:
        axis.set_ticks(list(values))
    else:
        axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axis.set_major_formatter(FormatStrFormatter("%g"))
    axis.set_minor_locator(NullLocator())
