"""``candid bench neighbours``."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from candid.bench.growth_picture import draw_growth
from candid.bench.markdown import NOTHING
from candid.bench.markdown import table as markdown_table
from candid.bench.neighbour_growth import Growth, measure_growth, sizes_up_to, table_of
from candid.bench.neighbour_steps import StepTimes, measure_steps
from candid.cli.bench.options import whole_numbers
from candid.cli.console import collected_warnings, note, output, result_table, working
from candid.cli.environment import thread_count

__all__ = ["neighbours"]

STEP_COLUMNS = ("k", "plain autograd", "closed form, torch", "machine code", "gain, torch", "gain, machine code")
GROWTH_COLUMNS = ("rows", "search", "index, s", "step, ms", "query, ms")
LEGENDS = (
    "Milliseconds of a step of loo-k (forward, backward, Adam) once neighbours are known; gain: how many times "
    "faster than plain autograd.",
    "index: until the first neighbours are found. step: with the search for neighbours, without Adam. "
    "query: one of 256 rows that are predicted together, in float64.",
)


def neighbours(
    sizes: Annotated[str, typer.Option("--neighbours", help="Numbers of neighbours, with commas.")] = "32,64,128,256",
    features: Annotated[int, typer.Option(min=1, help="Number of features in the table of steps.")] = 8,
    batch_size: Annotated[int, typer.Option(min=1, help="Rows in a batch.")] = 128,
    repeats: Annotated[int, typer.Option(min=1, help="How often each time is taken; the median counts.")] = 9,
    rows: Annotated[int, typer.Option(min=0, help="Most rows of the table of growth; 0 leaves it out.")] = 100_000,
    growth_neighbours: Annotated[int, typer.Option(min=1, help="Number of neighbours in it.")] = 32,
    sizes_of_growth: Annotated[
        str | None, typer.Option("--row-numbers", help="Numbers of rows in it instead of powers of ten, with commas.")
    ] = None,
    markdown: Annotated[Path | None, typer.Option(help="Write the tables to this file, too.")] = None,
    output_dir: Annotated[
        Path | None, typer.Option("--output", help="Write tables, figures and a picture of growth to this directory.")
    ] = None,
) -> None:
    """Time steps of nearest-neighbour GPs, and how these and predictions grow with the number of rows."""
    numbers = whole_numbers(sizes, "--neighbours")
    console, texts = output(), ["# Speed of nearest neighbours", f"{thread_count()} threads; medians of {repeats}."]
    with collected_warnings(), working("Measuring …") as tell:
        times = measure_steps(numbers, features, batch_size, repeats, lambda text: tell(f"Measuring {text}"))
    if times[0].compiled is None:
        note(console, "Numba is not installed, so there is no machine code: pip install 'candid-gp[fast]'")
    tables: list[tuple[str, Sequence[str], list[tuple[str, ...]]]] = []
    found: list[Growth] = []
    tables.append((f"Steps, D = {features}, B = {batch_size}", STEP_COLUMNS, [_step_row(entry) for entry in times]))
    if rows or sizes_of_growth:
        wanted = sorted(whole_numbers(sizes_of_growth, "--row-numbers")) if sizes_of_growth else sizes_up_to(rows)
        x, y, origin = table_of(wanted[-1])
        wanted = [size for size in wanted if size < len(x)] + [len(x)]
        with collected_warnings(), working("Measuring …") as tell:
            found = list(
                measure_growth(
                    x, y, wanted, k=growth_neighbours, batch_size=batch_size, repeats=repeats,
                    tell=lambda text: tell(f"Measuring {text}"),
                )
            )  # fmt: skip
        title = f"Growth, k = {growth_neighbours}, D = {x.shape[1]}, B = {batch_size}, {origin} rows"
        tables.append((title, GROWTH_COLUMNS, [_growth_row(entry) for entry in found]))
    for (title, columns, lines), legend in zip(tables, LEGENDS, strict=False):
        _show(title, columns, lines, legend)
        texts += [f"## {title}", markdown_table(columns, lines, left=0), legend]
    if output_dir is not None:
        _write(output_dir, texts, found, tables[-1][0])
    if markdown is not None:
        markdown.parent.mkdir(parents=True, exist_ok=True)
        markdown.write_text("\n\n".join(texts) + "\n", encoding="utf-8")
        console.print(f"The tables are in {escape(str(markdown))}.", soft_wrap=True)


def _write(directory: Path, texts: Sequence[str], growth: Sequence[Growth], title: str) -> None:
    """Page, and figures and picture of growth if that was measured."""
    directory.mkdir(parents=True, exist_ok=True)
    texts, written = list(texts), ["neighbours.md"]
    if growth:
        content = {"title": title, "threads": thread_count(), "growth": [asdict(entry) for entry in growth]}
        (directory / "growth.json").write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
        written.append("growth.json")
        try:
            draw_growth(growth, title).savefig(directory / "growth.png")
            written.append("growth.png")
            texts.append("![Growth](growth.png)")
        except ImportError as error:
            note(output(), f"there is no picture: {error}")
    (directory / "neighbours.md").write_text("\n\n".join(texts) + "\n", encoding="utf-8")
    output().print(f"Written to {escape(str(directory))}: {', '.join(written)}", soft_wrap=True)


def _show(title: str, columns: Sequence[str], lines: Sequence[Sequence[str]], legend: str) -> None:
    shown = result_table(title, *columns)
    for line in lines:
        shown.add_row(*line)
    console = output()
    console.print(shown)
    console.print(legend)


def _step_row(entry: StepTimes) -> tuple[str, ...]:
    return (
        str(entry.k),
        _milliseconds(entry.autograd),
        _milliseconds(entry.torch),
        _milliseconds(entry.compiled),
        _times(entry.autograd, entry.torch),
        _times(entry.autograd, entry.compiled),
    )


def _growth_row(entry: Growth) -> tuple[str, ...]:
    return (
        f"{entry.n_rows:,}",
        entry.search,
        f"{entry.index:.3g}",
        _milliseconds(entry.step),
        _milliseconds(entry.query),
    )


def _milliseconds(seconds: float | None) -> str:
    return NOTHING if seconds is None else f"{1000 * seconds:.3g}"


def _times(slow: float, fast: float | None) -> str:
    return NOTHING if fast is None else f"{slow / fast:.1f}×"
