"""From a table to numbers: a declarative description that is kept beside the model, so that new rows get the same."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Self

import numpy as np
from pydantic import BaseModel, ConfigDict, ValidationError

from candid.cli.tables import TextTable, find_column, is_number

__all__ = ["Column", "Encoded", "Encoding"]

MOST_LEVELS = 50
# A column of text in which no larger share of the cells is text was probably meant to hold numbers.
MOST_STRAYS = 0.1


class Column(BaseModel):
    """One column: its number as it is (no ``levels``), or one 0/1 feature for each of its levels."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    levels: tuple[str, ...] | None = None

    @property
    def features(self) -> list[str]:
        return [self.name] if self.levels is None else [f"{self.name}={level}" for level in self.levels]


@dataclass(frozen=True)
class Encoded:
    """Features N×D with their names, targets (None if the table has no target column), and what there is to say.

    ``complete`` marks the rows without a missing input; the others hold NaN.
    """

    X: np.ndarray
    y: np.ndarray | None
    complete: np.ndarray
    notes: tuple[str, ...]


class Encoding(BaseModel):
    """Which columns are inputs and how they become features; which one is the target (None where that is unknown)."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    format: Literal["candid-columns"] = "candid-columns"
    version: Literal[1] = 1
    target: str | None
    columns: tuple[Column, ...]

    @classmethod
    def learn(cls, table: TextTable, target: str) -> tuple[Self, tuple[str, ...]]:
        """The encoding of a table, and notes on the columns that are left out."""
        find_column(table, target)
        columns, notes = [], []
        for name, values in table.columns.items():
            if name == target:
                continue
            levels = None if values.dtype != object else tuple(sorted({value for value in values if value is not None}))
            if levels is not None:
                notes += _strays(name, values)
            if _present(values).sum() == 0:
                notes.append(f"column {name!r} is left out: all its values are missing")
            elif levels is not None and len(levels) > MOST_LEVELS:
                notes.append(
                    f"column {name!r} is left out: it is text with {len(levels)} levels (at most {MOST_LEVELS})"
                )
            else:
                columns.append(Column(name=name, levels=levels))
        if not columns:
            why = "".join(f"; {note}" for note in notes)
            raise ValueError(f"{table.source} has no column that can be an input beside the target {target!r}{why}")
        return cls(target=target, columns=tuple(columns)), tuple(notes)

    @property
    def features(self) -> list[str]:
        """Names of the features."""
        return [feature for column in self.columns for feature in column.features]

    @property
    def text_columns(self) -> list[str]:
        """Names of the columns that must be read as text."""
        return [column.name for column in self.columns if column.levels is not None]

    def apply(self, table: TextTable) -> Encoded:
        """The features of a table that has all the columns; a level that is not known gives zeros."""
        complete, notes = np.ones(len(table), dtype=bool), []
        parts = []
        for column in self.columns:
            values = table.columns[find_column(table, column.name)]
            present = _present(values)
            complete &= present
            if column.levels is None:
                parts.append(np.where(present, _numbers(values, column.name, table), np.nan)[:, None])
                continue
            codes = {level: code for code, level in enumerate(column.levels)}
            code = np.array([codes.get(value, -1) for value in values])
            unseen = sorted({str(value) for value in values[present & (code < 0)]})
            if unseen:
                notes.append(
                    f"{column.name!r} has levels the model has never seen, which count as none: {_few(unseen)}"
                )
            parts.append(np.where(present[:, None], code[:, None] == np.arange(len(codes)), np.nan))
        return Encoded(np.concatenate(parts, axis=1), self._targets(table), complete, tuple(notes))

    def _targets(self, table: TextTable) -> np.ndarray | None:
        if self.target is None or self.target not in table.columns:
            return None
        values = table.columns[self.target]
        return np.where(_present(values), _numbers(values, self.target, table), np.nan)

    def write(self, model: Path) -> Path:
        """Write the description beside a model file."""
        path = _beside(model)
        path.write_text(self.model_dump_json(indent=2) + "\n", encoding="utf-8")
        return path

    @classmethod
    def read(cls, model: Path) -> Self | None:
        """The description beside a model file, or None if there is none."""
        path = _beside(model)
        try:
            return cls.model_validate_json(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        except ValidationError as error:
            fault = error.errors()[0]
            where = ".".join(map(str, fault["loc"])) or "the file"
            raise ValueError(
                f"{path} does not describe columns ({where}: {fault['msg']}); fit the model again"
            ) from error


def _beside(model: Path) -> Path:
    return model.with_name(model.name + ".json")


def _present(values: np.ndarray) -> np.ndarray:
    if values.dtype == object:
        return np.array([value is not None for value in values], dtype=bool)
    return np.isfinite(values)


def _numbers(values: np.ndarray, name: str, table: TextTable) -> np.ndarray:
    if values.dtype != object:
        return values
    sample = _few([str(value) for value in dict.fromkeys(values) if value is not None])
    raise ValueError(f"column {name!r} of {table.source} must hold numbers, but it holds text: {sample}")


def _strays(name: str, values: np.ndarray) -> list[str]:
    """A note on a column that is text for the sake of a few cells."""
    present = values[_present(values)]
    strays = [value for value in present if not is_number(value)]
    if not 0 < len(strays) <= MOST_STRAYS * len(present):
        return []
    shown = _few(list(dict.fromkeys(strays)))
    return [
        f"column {name!r} counts as text, because {len(strays)} of its {len(present)} cells hold no number: {shown}; "
        "mend these cells, or leave them empty, and it counts as a number"
    ]


def _few(texts: list[str]) -> str:
    return ", ".join(map(repr, texts[:3])) + (f" and {len(texts) - 3} more" if len(texts) > 3 else "")
