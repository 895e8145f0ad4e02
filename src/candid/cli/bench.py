"""``candid bench``."""

from __future__ import annotations

from typing import Annotated

import typer

from candid.bench import BENCHMARKS, Case, Measurement, default_cases, measure
from candid.cli.console import collected_warnings, note, output, result_table, working
from candid.cli.environment import optional_versions, thread_count

__all__ = ["bench"]

bench = typer.Typer(help="Measure this library on this machine.", no_args_is_help=True)


@bench.command("list")
def list_benchmarks() -> None:
    """List the benchmarks."""
    table = result_table("Benchmarks", "name", "what it measures", numbers=False)
    for name, description in BENCHMARKS.items():
        table.add_row(name, description)
    output().print(table)


@bench.command()
def speed(
    quick: Annotated[bool, typer.Option("--quick", help="Only M = 100 and 300.")] = False,
    inducing: Annotated[str | None, typer.Option(help="Numbers of inducing points instead, with commas.")] = None,
    features: Annotated[int, typer.Option(min=1, help="Number of features that goes with --inducing.")] = 8,
    batch_size: Annotated[int, typer.Option(min=1, help="Rows in a batch.")] = 1000,
    repeats: Annotated[int, typer.Option(min=1, help="How often each time is taken; the median counts.")] = 9,
) -> None:
    """Time one training step (forward, backward, Adam) and the prediction of 2,000 rows, beside GPyTorch."""
    cases = default_cases(quick, batch_size)
    if inducing is not None:
        methods = dict.fromkeys(case.method for case in cases)
        cases = [Case(method, m, features, batch_size) for m in _sizes(inducing) for method in methods]
    with collected_warnings(), working("Measuring …") as tell:
        measurements = measure(cases, repeats, tell=lambda text: tell(f"Measuring {text}"))
    console = output()
    rate = max(entry.gemm_rate for entry in measurements)
    version = optional_versions()["gpytorch"]
    if measurements[0].step_gpytorch is None:
        note(console, "GPyTorch is not installed, so there is nothing to compare with: pip install gpytorch")
    console.print(
        f"{thread_count()} threads, float32 matrix products at {rate / 1e9:.0f} GF/s"
        + (f", GPyTorch {version}" if version else "")
        + f", batches of {batch_size:,} rows; milliseconds, medians of {repeats}"
    )
    table = result_table("One training step", "method", "M", "D", "candid", "GPyTorch", "ratio", "limit")
    for entry in measurements:
        limit = entry.case.flops() / rate
        table.add_row(*_names(entry), _ms(entry.step), *_versus(entry.step, entry.step_gpytorch), _ms(limit))
    console.print(table)
    console.print("limit: the time of the step's matrix products and solves alone, at the rate above")
    table = result_table(
        "Mean and variance of 2,000 rows", "method", "M", "D", "float64", "float32", "GPyTorch", "ratio (float32)"
    )
    for entry in measurements:
        versus = _versus(entry.predict32, entry.predict_gpytorch)
        table.add_row(*_names(entry), _ms(entry.predict64), _ms(entry.predict32), *versus)
    console.print(table)


def _sizes(text: str) -> list[int]:
    try:
        sizes = [int(part) for part in text.split(",")]
    except ValueError:
        sizes = []
    if not sizes or min(sizes) < 1:
        raise ValueError(f"--inducing takes positive whole numbers with commas between them, got {text!r}")
    return sizes


def _names(entry: Measurement) -> tuple[str, str, str]:
    return entry.case.method, str(entry.case.n_inducing), str(entry.case.n_features)


def _ms(seconds: float) -> str:
    return f"{1000 * seconds:.3g}"


def _versus(ours: float, theirs: float | None) -> tuple[str, str]:
    return ("–", "–") if theirs is None else (_ms(theirs), f"{theirs / ours:.1f}×")
