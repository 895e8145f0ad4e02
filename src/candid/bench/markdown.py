"""Numbers and tables in Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from candid.bench.published import Figure

__all__ = ["GOOD", "NOTHING", "figure", "number", "table"]

#: A figure that is as good as it should be; a cell without content.
GOOD, NOTHING = "✓", "–"


def number(value: float | None, decimals: int = 3, sign: bool = False) -> str:
    """A number with a typographic minus."""
    if value is None:
        return NOTHING
    return f"{value:{'+' if sign else ''}.{decimals}f}".replace("-", "−")


def figure(entry: Figure | None) -> str:
    """Mean ± standard error."""
    if entry is None:
        return NOTHING
    error = "" if entry.standard_error is None else f" ± {number(entry.standard_error, entry.decimals)}"
    return number(entry.mean, entry.decimals) + error


def table(header: Sequence[str], rows: Iterable[Sequence[str]], left: int = 2) -> str:
    """A Markdown table whose columns but the first ``left`` are aligned to the right."""
    rule = [" --- " if position < left else " ---: " for position in range(len(header))]
    lines = [f"| {' | '.join(header)} |", f"|{'|'.join(rule)}|"]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)])
