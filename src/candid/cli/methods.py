"""``candid methods``."""

from __future__ import annotations

from rich.markup import escape

from candid.cli.console import output, result_table
from candid.methods import methods as all_methods

__all__ = ["methods"]


def methods() -> None:
    """List all methods; --method and --methods accept those for regression."""
    table = result_table("Methods", "name", "what it is", "for", "cost", "published in", numbers=False)
    table.columns[0].no_wrap = True
    for row in all_methods():
        table.add_row(*map(escape, (row.name, row.summary, ", ".join(row.tasks), row.cost, row.source)))
    output().print(table)
