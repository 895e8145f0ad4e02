"""What the commands say, and how: results on stdout, progress and errors on stderr."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from typer.core import TyperGroup

__all__ = ["OneLineErrors", "collected_warnings", "count", "note", "one_line", "output", "result_table", "working"]

# What can be the user's or the data's doing; anything else is a bug, whose traceback is worth seeing.
EXPECTED = (ValueError, OSError, ImportError, ArithmeticError, RuntimeError, MemoryError)


class OneLineErrors(TyperGroup):
    """A group of commands whose expected errors end in one line and exit code 2."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except EXPECTED as error:
            # click's own ways to leave a command are RuntimeErrors too.
            if type(error).__module__.startswith(("click", "typer")):
                raise
            Console(stderr=True, soft_wrap=True).print(
                f"[bold red]Error:[/] {escape(one_line(error))}", highlight=False
            )
            raise typer.Exit(2) from None


def one_line(error: BaseException | str) -> str:
    """The message of an error without line breaks."""
    return " ".join(str(error).split()) or type(error).__name__


def count(number: int, what: str) -> str:
    """A number with its noun: 1 row, 2 rows."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def output() -> Console:
    """The console for results."""
    return Console(highlight=False)


def note(console: Console, text: str) -> None:
    """Say something that the user should know but did not ask for."""
    console.print(f"[yellow]note:[/] {escape(text)}")


def result_table(title: str, *columns: str, numbers: bool = True) -> Table:
    """An empty table; with ``numbers``, all columns but the first are right-aligned."""
    table = Table(title=title, title_justify="left", title_style="bold", header_style="bold")
    for position, name in enumerate(columns):
        table.add_column(name, justify="right" if numbers and position else "left")
    return table


@contextmanager
def working(text: str) -> Iterator[Callable[[str], None]]:
    """Show on a terminal, and nowhere else, what is being done; gives a function that changes the text."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda text: None
        return
    with console.status(escape(text)) as status:
        yield lambda text: status.update(escape(text))


@contextmanager
def collected_warnings() -> Iterator[list[str]]:
    """Warnings become texts in the list, each once, instead of lines on stderr."""
    texts: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        try:
            yield texts
        finally:
            texts.extend(dict.fromkeys(one_line(entry.message) for entry in caught if _for_users(entry)))


def _for_users(entry: warnings.WarningMessage) -> bool:
    return issubclass(entry.category, UserWarning | RuntimeWarning)
