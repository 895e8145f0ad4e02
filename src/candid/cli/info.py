"""``candid info``."""

from __future__ import annotations

import os

from rich.markup import escape

from candid import datasets
from candid.cli.console import one_line, output, result_table
from candid.cli.environment import optional_versions, thread_count, versions
from candid.datasets.loading import Source
from candid.engines import pick_device

__all__ = ["info"]

PLACES: dict[Source, str] = {"directory": "CANDID_DATA", "cache": "the cache", "shipped": "scikit-learn"}


def info() -> None:
    """Show versions, the machine, and where data sets are found."""
    table = result_table("Candid on this machine", "what", "value", numbers=False)
    for name, number in versions().items():
        table.add_row(name, number or "not installed as a package")
    for name, number in optional_versions().items():
        table.add_row(name, number or "[yellow]not installed[/]")
    table.add_row("device", str(pick_device("auto")))
    table.add_row("threads", str(thread_count()))
    table.add_row("CANDID_DATA", escape(os.environ.get("CANDID_DATA") or "not set"))
    for source, place in PLACES.items():
        table.add_row(f"data sets in {place}", escape(_data_sets(source)))
    output().print(table)


def _data_sets(source: Source) -> str:
    try:
        return ", ".join(datasets.available(source=source)) or "none"
    except OSError as error:
        return one_line(error)
