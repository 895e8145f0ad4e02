"""The rows a model is fitted on: read, encoded, incomplete ones dropped, every decision said aloud."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from rich.console import Console

from candid.cli.console import count, note
from candid.cli.encoding import Encoding
from candid.cli.tables import TextTable, find_column, read_table

__all__ = ["FEWEST_ROWS", "TrainingRows", "training_rows"]

FEWEST_ROWS = 10


@dataclass(frozen=True)
class TrainingRows:
    """Complete rows of a table, and how its columns became features."""

    source: str
    X: np.ndarray
    y: np.ndarray
    encoding: Encoding


def training_rows(console: Console, data: Path | TextTable, target: str | None) -> TrainingRows:
    """Read and encode a table; without a target it is the last column."""
    table = read_table(data) if isinstance(data, Path) else data
    if target is None:
        target = list(table.columns)[-1]
        note(console, f"no --target was given; the target is the last column, {target!r}")
    encoding, notes = Encoding.learn(table, find_column(table, target))
    encoded = encoding.apply(table)
    for text in (*table.notes, *notes, *encoded.notes):
        note(console, text)
    assert encoded.y is not None
    kept = encoded.complete & np.isfinite(encoded.y)
    if not kept.all():
        note(console, f"{(~kept).sum():,} of {count(len(kept), 'row')} left out because of missing values")
    if kept.sum() < FEWEST_ROWS:
        raise ValueError(f"{table.source} has {count(kept.sum(), 'complete row')}; a fit needs at least {FEWEST_ROWS}")
    return TrainingRows(table.source, encoded.X[kept], encoded.y[kept], encoding)
