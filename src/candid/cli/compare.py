"""``candid compare``: the main job."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape

from candid import datasets, plots
from candid.cli.comparison import Outcome, Split, best_outcome, compare_methods
from candid.cli.console import count, note, output, result_table, working
from candid.cli.environment import thread_count, versions
from candid.cli.rows import TrainingRows, training_rows
from candid.cli.tables import table_of
from candid.methods import find_method

__all__ = ["compare"]

SHIPPED = "diabetes"


def compare(
    data: Annotated[
        Path | None, typer.Argument(help="CSV or Parquet file; without it, a data set that scikit-learn ships.")
    ] = None,
    target: Annotated[str | None, typer.Option(help="Column to predict; by default the last one.")] = None,
    methods: Annotated[str, typer.Option(help="Names from 'candid methods', with commas.")] = "exact,svgp,ppgpr-chol",
    time_budget: Annotated[float, typer.Option(min=0.0, help="Seconds of training for all methods together.")] = 120.0,
    output_dir: Annotated[
        Path, typer.Option("--output", help="Directory for the picture, the numbers and the best model.")
    ] = Path("candid-comparison"),
    seed: Annotated[int, typer.Option(min=0, help="Of the split and of every fit.")] = 0,
    test_fraction: Annotated[float, typer.Option(help="Share of the rows that is held out.")] = 0.2,
) -> None:
    """Fit several methods on a table, compare them on held-out rows and keep the best model."""
    names = list(dict.fromkeys(name.strip() for name in methods.split(",") if name.strip()))
    if not names:
        raise ValueError("--methods names no method; 'candid methods' lists them")
    for name in names:
        find_method(name).estimator_for("regression")
    if not 0 < test_fraction < 1:
        raise ValueError(f"--test-fraction must lie between 0 and 1, got {test_fraction:g}")
    console = output()
    if data is None:
        note(console, f"no file was given; the table is scikit-learn's {SHIPPED!r}")
    rows = training_rows(console, data or table_of(datasets.load(SHIPPED)), target)
    train, test, _ = datasets.train_test_validation_split(len(rows.y), seed, (1 - test_fraction, test_fraction, 0))
    split = Split(rows.X[train], rows.y[train], rows.X[test], rows.y[test])
    console.print(
        f"{count(len(train), 'row')} for training, {len(test):,} held out, {count(rows.X.shape[1], 'feature')}, "
        f"target {escape(repr(rows.encoding.target))}",
        soft_wrap=True,
    )
    output_dir.mkdir(parents=True, exist_ok=True)
    with working("Starting …") as tell:
        outcomes = compare_methods(names, split, time_budget, seed, tell)
    best = best_outcome(outcomes)
    console.print(_table(outcomes, best, rows.encoding.target or "y"))
    for outcome in outcomes:
        for text in outcome.warnings:
            note(console, f"{outcome.method}: {text}")

    setting = {"seed": seed, "test_fraction": test_fraction, "time_budget": time_budget}
    facts = {"source": rows.source, "target": rows.encoding.target, "features": rows.encoding.features}
    facts |= {"train_rows": len(train), "test_rows": len(test)}
    _write_results(output_dir / "results.json", setting | {"data": facts}, outcomes, best)
    if best is None:
        raise RuntimeError(f"no method succeeded; the reasons are in {output_dir / 'results.json'}")
    _finish(console, output_dir, split, rows, outcomes, best)


def _table(outcomes: list[Outcome], best: Outcome | None, target: str) -> Any:
    columns = ["method", "NLL", "CRPS", "RMSE", "95 % coverage", "seconds"]
    table = result_table(f"Held-out rows, in units of {escape(target)}", *columns)
    if any(outcome.problem for outcome in outcomes):
        table.add_column("note", style="yellow")
    for outcome in outcomes:
        scores = [_number(outcome.scores[name]) if outcome.scores else "–" for name in ("nll", "crps", "rmse")]
        coverage = f"{100 * outcome.scores['coverage']:.1f} %" if outcome.scores else "–"
        name = f"{outcome.method} ★" if outcome is best else outcome.method
        row = [name, *scores, coverage, f"{outcome.seconds:.1f}", escape(outcome.problem or "")]
        table.add_row(*row[: len(table.columns)], style="green" if outcome is best else None)
    return table


def _number(value: float) -> str:
    return f"{value:.4g}" if not 0.001 <= abs(value) < 10_000 else f"{value:.3f}"


def _write_results(path: Path, setting: dict[str, Any], outcomes: list[Outcome], best: Outcome | None) -> None:
    methods = {
        outcome.method: {
            **{name: value if math.isfinite(value) else None for name, value in outcome.scores.items()},
            "seconds": round(outcome.seconds, 3),
            "problem": outcome.problem,
            "warnings": list(outcome.warnings),
        }
        for outcome in outcomes
    }
    results = {
        **setting,
        "best": None if best is None else best.method,
        "methods": methods,
        "versions": versions(),
        "threads": thread_count(),
    }
    path.write_text(json.dumps(results, indent=2, allow_nan=False) + "\n", encoding="utf-8")


def _finish(
    console: Console, directory: Path, split: Split, rows: TrainingRows, outcomes: list[Outcome], best: Outcome
) -> None:
    model = directory / "best.candid"
    best.model.save(model)
    rows.encoding.write(model)
    console.print(
        f"The best NLL on the {count(len(split.y_test), 'held-out row')} is that of [bold]{best.method}[/].",
        soft_wrap=True,
    )
    try:
        predictions = {outcome.method: outcome.prediction for outcome in outcomes if outcome.prediction is not None}
        picture = directory / "calibration.png"
        figure: Any = plots.calibration(split.y_test, predictions).figure
        figure.savefig(picture)
        console.print(
            f"The picture of their calibration is {escape(str(picture))}: the nearer a line is to the diagonal, the "
            "better the probabilities that the model gives.",
            soft_wrap=True,
        )
    except ImportError as error:
        note(console, f"there is no picture: {error}")
    console.print(f"The model is {escape(str(model))}; ask it for new rows with", soft_wrap=True)
    console.print(f"  candid predict {escape(str(model))} NEW_ROWS.csv", soft_wrap=True)
    console.print(f"All numbers, seeds and versions are in {escape(str(directory / 'results.json'))}.", soft_wrap=True)
