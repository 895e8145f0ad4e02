"""The look that all pictures share: sizes, colours, labels.

References
----------
Okabe, Ito (2008), Color universal design: eight colours that people with any kind of colour vision can tell apart.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["BESIDE", "GREY", "INK", "OKABE_ITO", "dress", "line_style", "new_axes"]

#: Blue, vermilion, green, purple, orange, sky blue; yellow is too faint for lines on white, black is for references.
OKABE_ITO = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
#: For text and data; for what is only there to compare with.
INK, GREY = "#222222", "#8C8C8C"
# Lines of one colour, should there be more lines than colours, and all lines in black and white.
DASHES: tuple[Any, ...] = ("solid", (0, (6, 1.2)), (0, (2.5, 1)), (0, (6, 1, 1.2, 1)))
#: A legend to the right of the axes, where it hides nothing.
BESIDE: dict[str, Any] = {"loc": "center left", "bbox_to_anchor": (1.02, 0.5)}
SMALL, NORMAL, LARGE = 8.5, 9.5, 11.0


def new_axes(width: float, height: float) -> Axes:
    """Axes in a figure of their own, in inches; works without a display."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError("pictures need matplotlib, which is not installed: pip install candid-gp[report]") from error
    return Figure(figsize=(width, height), dpi=160, layout="constrained").add_subplot()


def line_style(position: int) -> dict[str, Any]:
    """Colour and dashes of the line number ``position``: neighbours differ in both."""
    turn = position // len(OKABE_ITO)
    return {
        "color": OKABE_ITO[position % len(OKABE_ITO)],
        "linestyle": DASHES[(position + turn) % len(DASHES)],
        "linewidth": 1.6,
    }


def dress(ax: Axes, title: str, x_label: str, y_label: str, legend: dict[str, Any] | None = None) -> None:
    """Title, labels, legend and a quiet frame; ``legend`` holds options of ``Axes.legend``."""
    ax.set_title(title, loc="left", fontsize=LARGE, color=INK, pad=8)
    ax.set_xlabel(x_label, fontsize=NORMAL, color=INK)
    ax.set_ylabel(y_label, fontsize=NORMAL, color=INK)
    ax.tick_params(labelsize=SMALL, color=GREY, labelcolor=INK, length=3)
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        ax.spines[side].set_color(GREY)
    if legend is not None:
        ax.legend(fontsize=SMALL, frameon=False, labelcolor=INK, handlelength=2.4, **legend)
