"""Tables on disk, CSV or Parquet, as columns of numbers or text."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from candid.datasets import Dataset

__all__ = ["TextTable", "find_column", "is_number", "read_table", "table_of", "write_table"]

CSV, PARQUET = (".csv", ".tsv", ".txt"), (".parquet", ".pq")
SEPARATORS = (",", ";", "\t", "|")
# What stands for a missing value, beyond pyarrow's own list.
MISSING = ["", "?", "NA", "N/A", "n/a", "NaN", "nan", "NULL", "null", "None", "#N/A"]
LARGEST_BLOCK = 1 << 30


@dataclass(frozen=True)
class TextTable:
    """Columns by name: float64 with NaN for what is missing, or objects (text, with None for what is missing).

    ``notes`` tell what happened while reading.
    """

    source: str
    columns: Mapping[str, np.ndarray]
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(next(iter(self.columns.values()))) if self.columns else 0


def read_table(path: Path, text: Collection[str] = ()) -> TextTable:
    """Read a file by its ending; the columns named in ``text`` are kept as text whatever they look like."""
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}")
    pyarrow = _pyarrow()
    endings = [suffix.lower() for suffix in path.suffixes]
    notes: list[str] = []
    try:
        if any(ending in PARQUET for ending in endings):
            from pyarrow import parquet

            table = parquet.read_table(path)
        elif any(ending in CSV for ending in endings):
            table = _read_csv(path, text, notes)
        else:
            known = ", ".join((*CSV, *PARQUET))
            raise ValueError(f"{path} is neither CSV nor Parquet by its name; known endings are {known}")
        names = table.column_names
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8 text, or not text at all; save it as UTF-8") from error
    except pyarrow.ArrowException as error:
        raise ValueError(f"{path} cannot be read: {error}") from error
    repeated = [name for name, count in Counter(names).items() if count > 1]
    if repeated:
        raise ValueError(f"{path} has several columns called {', '.join(map(repr, repeated))}; rename them")
    if not table.num_rows:
        raise ValueError(f"{path} has no rows")
    columns = {}
    for name in names:
        values = _values(table.column(name), as_text=name in text)
        if values is None:
            notes.append(f"column {name!r} is left out: it holds neither numbers nor text")
        else:
            columns[name] = values
    return TextTable(str(path), columns, tuple(notes))


def write_table(path: Path, columns: Mapping[str, np.ndarray]) -> None:
    """Write columns of numbers as CSV, or as Parquet if the path ends so; NaN becomes an empty cell."""
    pyarrow = _pyarrow()
    table = pyarrow.table({name: pyarrow.array(values, from_pandas=True) for name, values in columns.items()})
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix.lower() in PARQUET:
        from pyarrow import parquet

        parquet.write_table(table, path)
    else:
        from pyarrow import csv

        csv.write_csv(table, path)


def table_of(data: Dataset) -> TextTable:
    """A data set with one target as a table, the target last."""
    columns = {name: data.X[:, position] for position, name in enumerate(data.feature_names)}
    return TextTable(data.name, {**columns, data.target_names[0]: data.y.astype(np.float64)})


def find_column(table: TextTable, name: str) -> str:
    """``name``, if the table has such a column."""
    if name in table.columns:
        return name
    names = list(table.columns)
    folded = {known.casefold(): known for known in names}
    near = difflib.get_close_matches(name.casefold(), folded, n=1, cutoff=0.5)
    hint = f" Did you mean {folded[near[0]]!r}?" if near else ""
    shown = ", ".join(names[:30]) + (f" and {len(names) - 30} more" if len(names) > 30 else "")
    raise ValueError(f"{table.source} has no column {name!r}.{hint} Its columns are {shown}")


def _pyarrow() -> Any:
    try:
        import pyarrow
    except ImportError as error:
        raise ImportError(
            "reading and writing tables needs pyarrow, which is not installed: pip install candid-gp[data]"
        ) from error
    return pyarrow


def _read_csv(path: Path, text: Collection[str], notes: list[str]) -> Any:
    import pyarrow
    from pyarrow import csv

    with pyarrow.input_stream(str(path)) as stream:
        first = stream.read(1 << 16).decode("utf-8", errors="replace").lstrip("\ufeff").partition("\n")[0]
    if not first.strip():
        raise ValueError(f"{path} is empty, or its first line is")
    separator = max(SEPARATORS, key=first.count)
    headless = all(is_number(cell) for cell in first.split(separator))
    if headless:
        notes.append(f"the first line of {path} holds numbers, not names; the columns are called f0, f1, …")
    # One block for the whole file: the type of a column is decided by all of its cells.
    packed = path.suffix.lower() not in CSV
    block = min(max(1 << 20, path.stat().st_size * (20 if packed else 1)), LARGEST_BLOCK)

    def read(as_text: Collection[str]) -> Any:
        return csv.read_csv(
            str(path),
            csv.ReadOptions(block_size=block, autogenerate_column_names=headless),
            csv.ParseOptions(delimiter=separator, newlines_in_values=True),
            csv.ConvertOptions(
                null_values=MISSING,
                strings_can_be_null=True,
                quoted_strings_can_be_null=True,
                column_types={name: pyarrow.string() for name in as_text},
            ),
        )

    table = read(text)
    # As in the file: dates that were written in another way would be other levels to a model.
    dates = [field.name for field in table.schema if pyarrow.types.is_temporal(field.type)]
    return read({*text, *dates}) if dates else table


def is_number(cell: str) -> bool:
    """Whether a cell of a text file holds a number."""
    try:
        float(cell.strip().strip('"'))
    except ValueError:
        return False
    return True


def _values(column: Any, as_text: bool) -> np.ndarray | None:
    import pyarrow
    from pyarrow import types

    if types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    kind = column.type
    number = types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind) or types.is_decimal(kind)
    if types.is_null(kind) or (number and not as_text):
        if types.is_boolean(kind):
            column = column.cast(pyarrow.int8())
        return column.cast(pyarrow.float64(), safe=False).to_numpy().astype(np.float64)
    try:
        return column.cast(pyarrow.string()).to_numpy(zero_copy_only=False).astype(object)
    except (pyarrow.ArrowNotImplementedError, pyarrow.ArrowInvalid):
        return None
