"""``candid bench``."""

from __future__ import annotations

import typer

from candid.cli.bench.calibration import calibration
from candid.cli.bench.chains import chains
from candid.cli.bench.decoupled import decoupled
from candid.cli.bench.neighbours import neighbours
from candid.cli.bench.overview import list_benchmarks
from candid.cli.bench.peers import peers
from candid.cli.bench.race import race
from candid.cli.bench.run import run
from candid.cli.bench.speed import speed
from candid.cli.bench.study import study

__all__ = ["bench"]

bench = typer.Typer(help="Measure this library on this machine.", no_args_is_help=True)
bench.command("list")(list_benchmarks)
for command in (run, speed, decoupled, neighbours, chains, peers, race, calibration, study):
    bench.command()(command)
