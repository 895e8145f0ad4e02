"""What a person sees of a run that takes hours: a line for each fit, and below them a bar and the time that is left."""

from __future__ import annotations

from types import TracebackType

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from candid.bench import Event
from candid.bench.markdown import number
from candid.cli.console import count, one_line

__all__ = ["RunProgress", "duration"]


class RunProgress:
    """Hears of every fit. Without a terminal there is no bar, and the lines are a log."""

    def __init__(self, console: Console) -> None:
        self._console, self._reused = console, 0
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[left]}"),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self._task = self._bar.add_task("", left="")

    def __enter__(self) -> RunProgress:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()
        if self._reused:
            self._console.print(f"{count(self._reused, 'fit')} had been done by an earlier run")

    def __call__(self, event: Event) -> None:
        left = "" if event.seconds_left is None else f"about {duration(event.seconds_left)} left"
        self._bar.update(self._task, description=_name(event), completed=event.done, total=event.total, left=left)
        if event.record is not None and not event.reused:
            self._console.print(_line(event, left), soft_wrap=True)
        self._reused += event.reused


def duration(seconds: float) -> str:
    """In the unit that a person would use."""
    if seconds < 90:
        return f"{seconds:.{1 if seconds < 10 else 0}f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def _name(event: Event) -> str:
    fit = event.fit
    text = f"{fit.data}, {fit.name}, split {fit.split}"
    tried = {name: value for name, value in fit.parameters.items() if name != "max_epochs"}
    if fit.purpose == "choice":
        text += ", trying " + ", ".join(f"{name} = {value:g}" for name, value in tried.items())
    return text


def _line(event: Event, left: str) -> str:
    record = event.record
    assert record is not None
    start = f"[dim]{event.done}/{event.total}[/] {_name(event)}: "
    if record["error"] is not None:
        return f"{start}[red]failed[/]: {escape(one_line(record['error']))}"
    result = f"NLL {number(record['nll'])}, {record['epochs']} epochs, {duration(record['seconds'])}"
    return start + result + (f"; {left}" if left else "")
