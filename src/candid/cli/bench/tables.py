"""Tables of measurements, on the screen and as pages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.markup import escape

from candid.bench.markdown import NOTHING
from candid.bench.markdown import table as markdown_table
from candid.cli.console import output, result_table

__all__ = ["Measured", "milliseconds"]


@dataclass(frozen=True)
class Measured:
    """What was measured: the machine, a table, and what its columns mean."""

    machine: str
    columns: Sequence[str]
    rows: Sequence[tuple[str, ...]]
    legend: str

    def show(self, title: str) -> None:
        table = result_table(title, *self.columns)
        for row in self.rows:
            table.add_row(*row)
        console = output()
        console.print(self.machine)
        console.print(table)
        console.print(self.legend)

    def write(self, path: Path, title: str, left: int = 2) -> None:
        """A page with the table, whose columns but the first ``left`` are aligned to the right."""
        path.parent.mkdir(parents=True, exist_ok=True)
        table = markdown_table(self.columns, self.rows, left)
        text = "\n\n".join([f"# {title}", f"{self.machine}.", table, self.legend])
        path.write_text(text + "\n", encoding="utf-8")
        output().print(f"The table is in {escape(str(path))}.", soft_wrap=True)


def milliseconds(seconds: float | None) -> str:
    """Three digits of them; whole ones, where they are many."""
    if seconds is None:
        return NOTHING
    return f"{1000 * seconds:.0f}" if seconds >= 0.1 else f"{1000 * seconds:.3g}"
