"""``candid bench speed``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import torch
import typer

from candid.bench.contenders import ACTIVITIES
from candid.bench.markdown import GOOD, NOTHING
from candid.bench.speed import Measurement, all_goals, default_goals, machine_rate, measure, precision_of
from candid.cli.bench.options import whole_numbers
from candid.cli.bench.tables import Measured, milliseconds
from candid.cli.console import collected_warnings, note, output, working
from candid.cli.environment import optional_versions, thread_count

__all__ = ["speed"]

COLUMNS = ("what", "method", "M", "D", "candid", "GPyTorch", "ratio", "target", "limit", "from the limit")
LEGEND = (
    "ratio: how many times faster candid is (✓ where the target is reached). limit: the matrix products and solves "
    "that are needed, at the rate above; from the limit: how many times longer candid takes. Each contender of each "
    "row has a process of its own; GPyTorch runs with the settings that it comes with, and our steps as in a fit: "
    "those with little to share out on one thread, those with very many rows by blocks of these."
)


def speed(
    quick: Annotated[bool, typer.Option("--quick", help="Only M = 100 and 300.")] = False,
    inducing: Annotated[str | None, typer.Option(help="Numbers of inducing points instead, with commas.")] = None,
    features: Annotated[int, typer.Option(min=1, help="Number of features that goes with --inducing.")] = 8,
    batch_size: Annotated[int, typer.Option(min=1, help="Rows in a batch.")] = 1000,
    repeats: Annotated[int, typer.Option(min=1, help="How often each time is taken; the median counts.")] = 9,
    markdown: Annotated[Path | None, typer.Option(help="Write the table to this file, too.")] = None,
) -> None:
    """Time training steps (forward, backward, Adam) and predictions of 2,000 rows and of one, beside GPyTorch."""
    goals = default_goals(quick, batch_size)
    if inducing is not None:
        goals = all_goals(whole_numbers(inducing, "--inducing"), features, batch_size)
    with collected_warnings(), working("Measuring …") as tell:
        measurements = measure(goals, repeats, tell=lambda text: tell(f"Measuring {text}"))
    if measurements[0].gpytorch is None:
        note(output(), "GPyTorch is not installed, so there is nothing to compare with: pip install gpytorch")
    machine = _machine(measurements, batch_size, repeats)
    measured = Measured(machine, COLUMNS, _rows(measurements), LEGEND)
    measured.show("Milliseconds")
    if markdown is not None:
        measured.write(markdown, "Speed")


def _machine(measurements: Sequence[Measurement], batch_size: int, repeats: int) -> str:
    rates = [machine_rate(measurements, precision) / 1e9 for precision in (torch.float32, torch.float64)]
    version = optional_versions()["gpytorch"]
    return (
        f"{thread_count()} threads, matrix products at {rates[0]:.0f} GF/s in float32 and {rates[1]:.0f} in float64"
        + (f", GPyTorch {version}" if version else "")
        + f", batches of {batch_size:,} rows; milliseconds, medians of {repeats}"
    )


def _rows(measurements: Sequence[Measurement]) -> list[tuple[str, ...]]:
    rows = []
    for entry in measurements:
        case, limit = entry.goal.case, entry.limit(machine_rate(measurements, precision_of(entry.goal)))
        rows.append(
            (
                ACTIVITIES[entry.goal.activity],
                case.method,
                str(case.n_inducing),
                str(case.n_features),
                milliseconds(entry.ours),
                milliseconds(entry.gpytorch),
                _times(entry.ratio) + (f" {GOOD}" if entry.reached else ""),
                NOTHING if entry.goal.times is None else f"≥ {entry.goal.times:g}×",
                milliseconds(limit),
                _times(None if limit is None else entry.ours / limit),
            )
        )
    return rows


def _times(ratio: float | None) -> str:
    return NOTHING if ratio is None else f"{ratio:.1f}×"
