"""What a study has found: figures, curves, and a page that shows both."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from candid.bench.markdown import number, table

__all__ = ["Findings", "Panel", "Record"]

#: One line of a table: texts, whole numbers and figures by the name of their column.
Record = Mapping[str, str | int | float]


@dataclass(frozen=True)
class Panel:
    """Curves over one axis.

    Attributes
    ----------
    title, x_label, y_label : str
    curves : mapping
        Name → places and values.
    marks : mapping
        Name of a curve → where it deserves a mark: at its best.
    log_x, log_y : bool
        Whether an axis is logarithmic.
    ticks : sequence of str
        What the places 0, 1, … stand for, where they are no numbers.
    bottom : float or None
        Values below it are not drawn.
    level : float or None
        A value to compare with.
    """

    title: str
    x_label: str
    y_label: str
    curves: Mapping[str, tuple[Sequence[float], Sequence[float]]]
    marks: Mapping[str, float]
    log_x: bool = False
    log_y: bool = False
    ticks: Sequence[str] = ()
    bottom: float | None = None
    level: float | None = None


@dataclass(frozen=True)
class Findings:
    """The results of a study.

    Attributes
    ----------
    title : str
    description : str
        What was done, and what is to be seen.
    records : sequence of mappings
        All figures; all have the same columns.
    summary : sequence of mappings
        Those of them, or what follows from them, that a page has room for.
    panels : sequence of Panel
    """

    title: str
    description: str
    records: Sequence[Record]
    summary: Sequence[Record]
    panels: Sequence[Panel]

    def page(self, picture: str | None) -> str:
        """In Markdown, with the name of the file of the picture, if there is one."""
        parts = [f"# {self.title}", self.description, self.summary_table()]
        if picture is not None:
            parts.append(f"![{self.title}]({picture})")
        return "\n\n".join(parts) + "\n"

    def summary_table(self) -> str:
        """The summary in Markdown."""
        texts = sum(isinstance(value, str) for value in self.summary[0].values())
        return table(list(self.summary[0]), self.summary_rows(), left=texts)

    def summary_rows(self) -> list[list[str]]:
        """Its cells."""
        return [[cell(value) for value in record.values()] for record in self.summary]

    def write_csv(self, path: Path) -> None:
        """All figures, one line for each."""
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, list(self.records[0]))
            writer.writeheader()
            writer.writerows(dict(record) for record in self.records)


def cell(value: str | int | float) -> str:
    """As a page has it."""
    return number(value) if isinstance(value, float) else str(value)
