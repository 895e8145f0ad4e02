"""``candid methods``."""

from __future__ import annotations

from rich.markup import escape

from candid.cli.console import output, result_table
from candid.methods import methods as all_methods

__all__ = ["methods"]


def methods() -> None:
    """List the methods that --method and --methods accept."""
    table = result_table("Methods", "name", "what it is", "for", "cost", "published in", numbers=False)
    table.columns[0].no_wrap = True
    for row in all_methods():
        table.add_row(*map(escape, (row.name, row.summary, ", ".join(row.tasks), row.cost, row.source)))
    output().print(table)
