"""``candid bench list``."""

from __future__ import annotations

from candid.bench import BENCHMARKS, SPECS, Budget
from candid.cli.console import count, output, result_table

__all__ = ["list_benchmarks"]


def list_benchmarks() -> None:
    """List the benchmarks."""
    table = result_table("Benchmarks", "command", "what it measures", numbers=False)
    for name, spec in SPECS.items():
        table.add_row(f"run {name}", spec.title)
        for budget, content in spec.budgets.items():
            table.add_row(f"  --budget {budget}", _content(content))
    for name, description in BENCHMARKS.items():
        table.add_row(name, description)
    output().print(table)


def _content(budget: Budget) -> str:
    chosen = "" if budget.choice is None else ", parameters chosen on validation rows"
    return (
        f"{count(len(budget.data), 'data set')}, {count(len(budget.methods), 'method')}, "
        f"{count(len(budget.splits), 'split')}, {budget.size}{chosen}"
    )
