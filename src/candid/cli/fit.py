"""``candid fit``."""

from __future__ import annotations

import ast
import time
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

from candid.cli.console import collected_warnings, count, note, output, working
from candid.cli.rows import training_rows
from candid.estimators import make_gp

__all__ = ["fit"]

REGRESSION = "regression"
WORDS = {"true": True, "false": False, "none": None, "null": None}


def fit(
    data: Annotated[Path, typer.Argument(help="CSV or Parquet file.")],
    target: Annotated[str | None, typer.Option(help="Column to predict; by default the last one.")] = None,
    method: Annotated[str, typer.Option(help="A name from 'candid methods'.")] = "ppgpr-chol",
    model: Annotated[Path, typer.Option("--output", help="File for the model.")] = Path("model.candid"),
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="A parameter of the estimator as key=value; may be repeated.")
    ] = None,
    time_budget: Annotated[float | None, typer.Option(min=0.0, help="Seconds of training.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of the fit.")] = 0,
) -> None:
    """Fit one method on all rows of a table and save the model."""
    parameters: dict[str, Any] = {"random_state": seed, "time_budget": time_budget, "verbose": False}
    parameters |= dict(_parsed(setting) for setting in settings or ())
    if parameters.pop("task", REGRESSION) != REGRESSION:
        raise ValueError("commands are for regression; for classes use candid.make_gp(…, task='classification')")
    gp = make_gp(method, task=REGRESSION, **parameters)
    if model.is_dir():
        raise ValueError(f"--output is the file of the model, but {model} is a directory")
    console = output()
    rows = training_rows(console, data, target)

    def on_epoch(record: dict[str, Any]) -> None:
        tell(f"Fitting {method}: epoch {record['epoch']}, loss {record['loss']:.3f}, {record['seconds']:.0f} s")

    start = time.perf_counter()
    with collected_warnings() as said, working(f"Fitting {method} …") as tell:
        try:
            gp.set_params(callbacks=(on_epoch,)).fit(rows.X, rows.y)
        except TypeError as error:
            if not settings:
                raise
            raise ValueError(f"a value of --set is of the wrong kind: {error}") from error
    for text in said:
        note(console, text)
    model.parent.mkdir(parents=True, exist_ok=True)
    gp.save(model)
    described = rows.encoding.write(model)
    console.print(
        f"{method} was fitted to {count(len(rows.y), 'row')} and {count(rows.X.shape[1], 'feature')} in "
        f"{time.perf_counter() - start:.1f} s. The model is {escape(str(model))}, the description of its columns "
        f"{escape(str(described))}.",
        soft_wrap=True,
    )


def _parsed(setting: str) -> tuple[str, Any]:
    """``key=value``, where the value is a Python literal, true, false or none, or else text."""
    key, sign, value = setting.partition("=")
    if not sign or not key.strip():
        raise ValueError(f"--set takes key=value, got {setting!r}")
    value = value.strip()
    if value.lower() in WORDS:
        return key.strip(), WORDS[value.lower()]
    try:
        return key.strip(), ast.literal_eval(value)
    except (ValueError, SyntaxError):
        return key.strip(), value
