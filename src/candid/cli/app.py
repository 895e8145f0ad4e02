"""The command ``candid`` and what its parts are called; every part has a module of its own."""

from __future__ import annotations

import typer

from candid.cli.bench import bench
from candid.cli.compare import compare
from candid.cli.console import OneLineErrors
from candid.cli.fit import fit
from candid.cli.info import info
from candid.cli.methods import methods
from candid.cli.predict import predict

__all__ = ["app"]

app = typer.Typer(
    name="candid",
    help="Gaussian processes for large tables that say honestly how sure they are.",
    cls=OneLineErrors,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
for command in (compare, fit, predict, methods, info):
    app.command()(command)
app.add_typer(bench, name="bench")
