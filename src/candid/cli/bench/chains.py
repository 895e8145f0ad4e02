"""``candid bench chains``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from candid.bench.chains import N_INDUCING, N_SAMPLES, ChainSpeed, measure_chains
from candid.bench.markdown import NOTHING
from candid.cli.bench.tables import Measured
from candid.cli.console import collected_warnings, working
from candid.cli.environment import thread_count

__all__ = ["chains"]

COLUMNS = ("data", "layers", "chains", "batch", "steps per second", "published", "rows per second")
LEGEND = (
    "A step moves all chains. published: by eight cores (Rossi et al. 2021). rows: predicted from all samples, mean "
    "and standard deviation, in float64."
)


def chains(
    inducing: Annotated[int, typer.Option(min=1, help="Number of inducing points.")] = N_INDUCING,
    samples: Annotated[int, typer.Option(min=8, help="Number of samples of all chains together.")] = N_SAMPLES,
    markdown: Annotated[Path | None, typer.Option(help="Write the table to this file, too.")] = None,
) -> None:
    """Time steps of sampled models (SGHMC, one layer and two, one chain and four) and their predictions."""
    with collected_warnings(), working("Measuring …") as tell:
        speeds = list(
            measure_chains(n_inducing=inducing, n_samples=samples, tell=lambda text: tell(f"Measuring {text}"))
        )
    machine = f"{thread_count()} threads, M = {inducing}, {samples} samples"
    measured = Measured(machine, COLUMNS, [_row(entry) for entry in speeds], LEGEND)
    measured.show("Chains")
    if markdown is not None:
        measured.write(markdown, "Speed of chains", left=1)


def _row(entry: ChainSpeed) -> tuple[str, ...]:
    case = entry.case
    published = NOTHING if case.published is None else f"{case.published:.1f}"
    sizes = (case.n_layers, case.n_chains, case.batch_size)
    return (case.data, *map(str, sizes), f"{entry.steps:.1f}", published, f"{entry.rows:,.0f}")
