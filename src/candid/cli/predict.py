"""``candid predict``."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.markup import escape

from candid.cli.console import count, note, output, result_table, working
from candid.cli.encoding import Column, Encoding
from candid.cli.tables import TextTable, read_table, write_table
from candid.estimators import load
from candid.metrics import summary
from candid.predictive import Predictive

__all__ = ["predict"]

LEVEL = 0.95


def predict(
    model: Annotated[Path, typer.Argument(help="A model from 'candid fit' or 'candid compare'.")],
    data: Annotated[Path, typer.Argument(help="CSV or Parquet file with the columns the model was fitted on.")],
    predictions: Annotated[Path, typer.Option("--output", help="CSV (or Parquet) file to write.")] = Path(
        "predictions.csv"
    ),
) -> None:
    """Predict the rows of a table: mean, standard deviation and the ends of the central 95 % interval."""
    gp = load(model)
    encoding = Encoding.read(model)
    table = read_table(data, () if encoding is None else encoding.text_columns)
    encoding = _plain(gp, table) if encoding is None else encoding
    encoded = encoding.apply(table)
    if encoded.X.shape[1] != gp.n_features_in_:
        raise ValueError(
            f"{model} was fitted on {gp.n_features_in_} features, but the description of its columns beside it gives "
            f"{encoded.X.shape[1]}; fit the model again"
        )
    if not encoded.complete.any():
        raise ValueError(f"every row of {data} has a missing input")
    console = output()
    for text in (*table.notes, *encoded.notes):
        note(console, text)
    if not encoded.complete.all():
        note(console, f"{count((~encoded.complete).sum(), 'prediction')} left empty: the inputs have missing values")
    with working(f"Predicting {count(encoded.complete.sum(), 'row')} …"), warnings.catch_warnings():
        # The features are in the model's order, whatever it was told of their names.
        warnings.filterwarnings("ignore", message="X does not have valid feature names")
        p = gp.predict_distribution(encoded.X[encoded.complete])
    write_table(predictions, _columns(p, encoded.complete))
    console.print(f"The predictions of {count(len(table), 'row')} are in {escape(str(predictions))}.", soft_wrap=True)
    if encoded.y is not None:
        seen = np.isfinite(encoded.y[encoded.complete])
        if seen.any():
            console.print(_scores(encoded.y[encoded.complete][seen], p[seen], encoding.target or "y"))


def _plain(gp: Any, table: TextTable) -> Encoding:
    """Columns for a model that was saved without a description: those it names, or all if their number is right."""
    names = getattr(gp, "feature_names_in_", None)
    if names is None and len(table.columns) != gp.n_features_in_:
        raise ValueError(
            f"the model was fitted on {gp.n_features_in_} features without names, and {table.source} has "
            f"{len(table.columns)} columns; leave exactly its features in the table"
        )
    names = table.columns if names is None else names
    return Encoding(target=None, columns=tuple(Column(name=str(name)) for name in names))


def _columns(p: Predictive, complete: np.ndarray) -> dict[str, np.ndarray]:
    lower, upper = p.interval(LEVEL)
    columns = {}
    for name, values in {"mean": p.mean, "std": p.std, "lower": lower, "upper": upper}.items():
        several = values.reshape(len(values), -1)
        for number in range(several.shape[1]):
            column = np.full(len(complete), np.nan)
            column[complete] = several[:, number]
            columns[name if several.shape[1] == 1 else f"{name}{number}"] = column
    return columns


def _scores(y: np.ndarray, p: Predictive, target: str) -> Any:
    scores = summary(y, p)
    table = result_table(
        f"{count(len(y), 'row')} with a known target, in units of {escape(target)}",
        "",
        "NLL",
        "CRPS",
        "RMSE",
        "95 % coverage",
    )
    numbers = [f"{scores[name]:.4g}" for name in ("nll", "crps", "rmse")]
    table.add_row("predictions", *numbers, f"{100 * scores['coverage']:.1f} %")
    return table
