"""What a person sees while a model trains: a bar and a time estimate on a terminal, nothing elsewhere."""

from __future__ import annotations

import logging
import time
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

__all__ = ["ProgressBar"]

logger = logging.getLogger("candid")
# A fit that is over sooner needs no bar.
QUIET_SECONDS = 2.0
LONG_SECONDS = 60.0


class ProgressBar:
    """Shows how far training is. The log (``logging.getLogger("candid")``) hears of long fits in any case."""

    def __init__(self, title: str, enabled: bool = True) -> None:
        self.title = title
        self.console = Console(stderr=True)
        self.enabled = enabled and self.console.is_terminal
        self._bar: Progress | None = None
        self._start = time.perf_counter()
        self._done_before = 0.0
        self._told = False

    def __enter__(self) -> ProgressBar:
        self._start = time.perf_counter()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def begin(self, done: float) -> None:
        """Training starts, or goes on where the share ``done`` of it is behind us."""
        self._start, self._done_before = time.perf_counter(), done

    def update(self, done: float, step: int, n_steps: int, note: str) -> None:
        """``step`` of ``n_steps`` are done, which is the share ``done`` of the training unless it runs out of time."""
        elapsed = time.perf_counter() - self._start
        if elapsed < QUIET_SECONDS:
            return
        if not self._told:
            self._told = True
            self._estimate(elapsed, done, n_steps - step)
        if self.enabled:
            if self._bar is None:
                self._bar = self._make_bar(n_steps, step)
            self._bar.update(self._bar.task_ids[0], completed=step, total=n_steps, note=note)

    def _estimate(self, elapsed: float, done: float, steps_left: int) -> None:
        remaining = elapsed / max(done - self._done_before, 1e-9) * (1 - done)
        if remaining > LONG_SECONDS:
            message = f"{self.title}: about {remaining / 60:.0f} min for at most {steps_left} more steps"
            logger.info(message)
            if self.enabled:
                self.console.print(message)

    def _make_bar(self, n_steps: int, step: int) -> Progress:
        bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.completed}/{task.total}"),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[note]}"),
            console=self.console,
            transient=True,
        )
        bar.add_task(self.title, total=n_steps, completed=step, note="")
        bar.start()
        return bar
