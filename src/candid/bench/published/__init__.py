"""Figures that papers report, as comma-separated tables with their source in the first lines."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from importlib.resources import files

__all__ = ["Figure", "PublishedTable", "read_published"]


@dataclass(frozen=True)
class Figure:
    """A mean over random splits, and its standard error, None where the paper gives none; with so many decimals."""

    mean: float
    standard_error: float | None
    decimals: int = 3


#: (metric, data set, method) → what the paper reports.
PublishedTable = dict[tuple[str, str, str], Figure]


def read_published(name: str | None) -> PublishedTable:
    """The table of that name, e.g. ``"ppgpr_table3"``; an empty one where nothing is published."""
    if name is None:
        return {}
    text = files(__name__).joinpath(f"{name}.csv").read_text(encoding="utf-8")
    lines = (line for line in text.splitlines() if not line.startswith("#"))
    return {
        (row["metric"], row["data"], row["method"]): Figure(
            float(row["mean"]),
            float(row["standard_error"]) if row["standard_error"] else None,
            len(row["mean"].partition(".")[2]),
        )
        for row in csv.DictReader(lines)
    }
