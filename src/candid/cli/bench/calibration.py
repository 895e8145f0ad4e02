"""``candid bench calibration``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape

from candid import plots
from candid.bench import Budget, find_spec
from candid.bench.calibration import COLUMNS, Calibration, calibrate, calibration_page, calibration_rows
from candid.bench.fit import Fit
from candid.bench.plan import known_methods
from candid.bench.protocol import load_data
from candid.cli.bench.options import names
from candid.cli.console import collected_warnings, note, one_line, output, result_table, working

__all__ = ["calibration"]


def calibration(
    data: Annotated[str, typer.Option(help="Data set.")] = "kin40k",
    methods: Annotated[str, typer.Option(help="Methods, with commas.")] = "svgp,dcsvgp,ppgpr-chol,dcppgpr",
    inducing: Annotated[int, typer.Option(min=1, help="Number of inducing points.")] = 500,
    split: Annotated[int, typer.Option(min=0, help="Seed of the split and of the fits.")] = 0,
    epochs: Annotated[int | None, typer.Option(min=0, help="Epochs of each fit, instead of our recipe's.")] = None,
    spec: Annotated[str, typer.Option(help="Benchmark whose parameters the fits have.")] = "dc/table2",
    output_dir: Annotated[
        Path | None, typer.Option("--output", help="Directory of the results; by default one in candid-bench.")
    ] = None,
) -> None:
    """Fit methods on a split, and see how often their predictions of the test rows come true."""
    chosen = find_spec(spec)
    rows = chosen.rows_called(names(methods, "--methods") or [])
    budget = Budget((data,), tuple(rows), (split,), inducing, max_epochs=epochs)
    console = output()
    known, unknown = known_methods(chosen, budget)
    if unknown:
        note(console, f"skipped, because this version does not have them: {', '.join(unknown)}")
    if not known:
        raise ValueError("no method is left; 'candid methods' lists them")
    directory = output_dir or Path("candid-bench") / f"calibration-{data}"
    tables = load_data([data])
    with collected_warnings(), working(f"Fitting on {data} …") as tell:

        def hear(fit: Fit, record: Mapping[str, Any] | None) -> None:
            tell(f"{fit.name} on {data} …" if record is None else f"{fit.name} is done")

        found = calibrate(chosen, budget, tables, directory, hear)
    _show(console, found)
    pictures = _draw(console, directory, found)
    (directory / "calibration.md").write_text(calibration_page(chosen, budget, found, pictures), encoding="utf-8")
    written = ", ".join(["results.jsonl", "calibration.md", *pictures])
    console.print(f"Written to {escape(str(directory))}: {written}", soft_wrap=True)


def _show(console: Console, found: Calibration) -> None:
    table = result_table("Calibration of test rows", *COLUMNS)
    for row in calibration_rows(found):
        table.add_row(*row)
    console.print(table)
    for name, record in found.records.items():
        if record["error"] is not None:
            note(console, f"{name} failed: {one_line(record['error'])}")


def _draw(console: Console, directory: Path, found: Calibration) -> list[str]:
    """Write the pictures; the names of their files."""
    written: list[str] = []
    try:
        for name, draw in (("calibration.png", plots.calibration), ("zscores.png", plots.zscores)):
            figure: Any = draw(found.targets, found.predictions).figure
            figure.savefig(directory / name)
            written.append(name)
    except (ImportError, ValueError) as error:
        note(console, f"there is no picture: {error}")
    return written
