"""``candid bench race``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape

from candid import plots
from candid.bench import Course, Lap, find_spec, read_published
from candid.bench import race as race_room
from candid.bench.markdown import number
from candid.bench.protocol import load_data, make_parts
from candid.bench.race import CANDID, GPYTORCH, curve
from candid.bench.results import append_line
from candid.cli.bench.progress import duration
from candid.cli.console import collected_warnings, note, output, result_table, working
from candid.cli.environment import optional_versions, thread_count, versions
from candid.methods import find_method
from candid.plots.race import time_to_reach

__all__ = ["race"]

SPEC = "ppgpr/table3"


def race(
    data: Annotated[str, typer.Option(help="Data set.")] = "pol",
    method: Annotated[str, typer.Option(help="Method that GPyTorch has, too.")] = "ppgpr-chol",
    minutes: Annotated[float, typer.Option(min=0.0, help="Training time of each, at most.")] = 10.0,
    level: Annotated[float | None, typer.Option(help="NLL to reach; by default the published one.")] = None,
    inducing: Annotated[int, typer.Option(min=1, help="Number of inducing points.")] = 1000,
    split: Annotated[int, typer.Option(min=0, help="Seed of the split and of both trainings.")] = 0,
    epochs: Annotated[int, typer.Option(min=1, help="Epochs of the published recipe in GPyTorch.")] = 400,
    our_epochs: Annotated[
        int | None, typer.Option(min=1, help="Epochs of our recipe, if not its own: rates fall towards the last.")
    ] = None,
    output_dir: Annotated[
        Path | None, typer.Option("--output", help="Directory of laps and picture; by default one in candid-bench.")
    ] = None,
) -> None:
    """Time to the published NLL: our recipe against the published one in GPyTorch, taking turns."""
    find_method(method)
    spec = find_spec(SPEC)
    published = read_published(spec.published).get(("nll", data, method))
    if level is None and published is not None:
        level = published.mean
    parts = make_parts(load_data([data])[data], split, spec.proportions)
    directory = output_dir or Path("candid-bench") / f"race-{data}-{method}"
    path = directory / "laps.jsonl"
    if path.is_file():
        path.replace(path.with_name("laps-before.jsonl"))
    course = Course(method, inducing, 60 * minutes, epochs, split, our_epochs)
    facts = {"data": data, "level": level, "threads": thread_count(), **versions(), **optional_versions()}
    append_line(path, {"race": asdict(course) | facts})
    console, laps = output(), list[Lap]()
    with collected_warnings(), working(f"Racing on {data} …") as tell:

        def hear(lap: Lap) -> None:
            laps.append(lap)
            append_line(path, asdict(lap))
            tell(f"{lap.who}: epoch {lap.epoch}, {lap.seconds:.0f} s, NLL {number(lap.nll)}")

        try:
            race_room.race(course, parts, hear)
        except KeyboardInterrupt:
            note(console, "interrupted; this is how far it went")
    _show(console, laps, level)
    _draw(console, directory, laps, level, f"{data}, {method}, M = {inducing}")


def _show(console: Console, laps: Sequence[Lap], level: float | None) -> None:
    columns = ("who", "time to the level", "last NLL", "best NLL", "epochs", "seconds")
    table = result_table("Test NLL" if level is None else f"Time to a test NLL of {number(level)}", *columns)
    for who in (CANDID, GPYTORCH):
        seconds, scores = curve(laps, who)
        if not scores:
            continue
        reached = None if level is None else time_to_reach((seconds, scores), level)
        epochs = max(lap.epoch for lap in laps if lap.who == who)
        table.add_row(
            who,
            "not reached" if reached is None else duration(reached),
            number(scores[-1]),
            number(min(scores)),
            str(epochs),
            f"{seconds[-1]:.1f}",
        )
    console.print(table)
    for lap in laps:
        if lap.error is not None:
            note(console, f"{lap.who} stopped in epoch {lap.epoch}: {lap.error}")


def _draw(console: Console, directory: Path, laps: Sequence[Lap], level: float | None, title: str) -> None:
    curves = {who: curve(laps, who) for who in (CANDID, GPYTORCH)}
    if level is not None:
        times = [time_to_reach(curves[who], level) for who in (CANDID, GPYTORCH)]
        if times[0] is not None and times[1] is not None:
            title += f": {times[1] / times[0]:.1f} times sooner"
    written = ["laps.jsonl"]
    try:
        figure: Any = plots.race(curves, level, title).figure
        figure.savefig(directory / "race.png")
        written.append("race.png")
    except (ImportError, ValueError) as error:
        note(console, f"there is no picture: {error}")
    console.print(f"Written to {escape(str(directory))}: {', '.join(written)}", soft_wrap=True)
