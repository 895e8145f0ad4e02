"""How times grow with the number of rows, as a picture."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from candid.bench.neighbour_growth import Growth
from candid.bench.studies import Panel, draw_panels

__all__ = ["draw_growth"]

#: What is drawn, from left to right → its title.
TIMES = {"index": "Index", "step": "Training step", "query": "Prediction of a row"}


def draw_growth(growth: Sequence[Growth], title: str) -> Any:
    """A figure of seconds against rows, both logarithmic, with a curve for each way to search."""
    panels = []
    for name, heading in TIMES.items():
        curves = {}
        for search in dict.fromkeys(entry.search for entry in growth):
            line = [entry for entry in growth if entry.search == search]
            curves[f"{search} search"] = ([entry.n_rows for entry in line], [getattr(entry, name) for entry in line])
        panels.append(Panel(heading, "rows", "seconds", curves, {}, log_x=True, log_y=True))
    return draw_panels(panels, title)
