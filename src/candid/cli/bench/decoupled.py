"""``candid bench decoupled``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from candid.bench.markdown import GOOD, NOTHING, number
from candid.bench.step_costs import StepCost, decoupled_steps, measure_steps
from candid.cli.bench.tables import Measured, milliseconds
from candid.cli.console import collected_warnings, working
from candid.cli.environment import thread_count

__all__ = ["decoupled"]

COLUMNS = ("training step", "milliseconds", "times svgp", "target")
LEGEND = (
    "A step is forward, backward and Adam, as in a fit, and Ω has as many draws as there. times svgp: how many "
    "times as long as a step of svgp it takes (✓ where the target is reached). Each row has a process of its own."
)


def decoupled(
    inducing: Annotated[int, typer.Option(min=1, help="Number of inducing points.")] = 500,
    features: Annotated[int, typer.Option(min=1, help="Number of features.")] = 8,
    batch_size: Annotated[int, typer.Option(min=1, help="Rows in a batch.")] = 1024,
    repeats: Annotated[int, typer.Option(min=1, help="How often each time is taken; the median counts.")] = 15,
    markdown: Annotated[Path | None, typer.Option(help="Write the table to this file, too.")] = None,
) -> None:
    """Time training steps of decoupled conditionals beside those of svgp."""
    with collected_warnings(), working("Measuring …") as tell:
        costs = measure_steps(
            decoupled_steps(inducing, features, batch_size), repeats, tell=lambda text: tell(f"Measuring {text}")
        )
    machine = (
        f"{thread_count()} threads, M = {inducing}, D = {features}, batches of {batch_size:,} rows; "
        f"medians of {repeats}"
    )
    measured = Measured(machine, COLUMNS, [_row(cost) for cost in costs], LEGEND)
    measured.show("Steps of decoupled conditionals")
    if markdown is not None:
        measured.write(markdown, "Steps of decoupled conditionals", left=1)


def _row(cost: StepCost) -> tuple[str, ...]:
    target = cost.step.at_most
    return (
        cost.step.name,
        milliseconds(cost.seconds),
        f"{number(cost.times, 2)}×" + (f" {GOOD}" if cost.reached else ""),
        NOTHING if target is None else f"≤ {target:g}×",
    )
