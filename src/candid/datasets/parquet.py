"""Tables on disk: Parquet files in which every target column starts with ``y`` and no input column does."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np

from candid.datasets.facts import Facts

__all__ = ["ParquetTable", "require_pyarrow", "write_table"]

_FACTS_KEY = b"candid"


def require_pyarrow() -> tuple[Any, Any]:
    """The modules ``pyarrow`` and ``pyarrow.parquet``, imported only now because they are an optional dependency."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise ImportError(
            "reading and caching data sets needs pyarrow, which is not installed: pip install candid-gp[data]"
        ) from error
    return pyarrow, pyarrow.parquet


@dataclass(frozen=True)
class ParquetTable:
    """The columns of one file by their role; values are read on demand."""

    path: Path
    features: tuple[str, ...]
    targets: tuple[str, ...]
    integer_targets: frozenset[str]
    facts: Facts | None

    @classmethod
    def open(cls, path: Path) -> ParquetTable:
        """Read the schema and the facts that :func:`write_table` stored with it, but no values."""
        pyarrow, parquet = require_pyarrow()
        with _reading(path):
            schema = parquet.read_schema(path)
        types = dict(zip(schema.names, schema.types, strict=True))
        is_number = {
            name: pyarrow.types.is_integer(kind) or pyarrow.types.is_floating(kind) or pyarrow.types.is_boolean(kind)
            for name, kind in types.items()
        }
        if not all(is_number.values()):
            text = ", ".join(name for name, number in is_number.items() if not number)
            raise ValueError(f"{path} has columns that are not numbers: {text}. Replace them by codes counted from 0")
        targets = tuple(name for name in schema.names if name.startswith("y"))
        features = tuple(name for name in schema.names if not name.startswith("y"))
        if not targets or not features:
            raise ValueError(
                f"{path} needs at least one target column (its name starts with 'y') and one input column (its name "
                f"does not); it has {', '.join(schema.names) or 'no columns'}"
            )
        stored = (schema.metadata or {}).get(_FACTS_KEY)
        return cls(
            path=path,
            features=features,
            targets=targets,
            integer_targets=frozenset(name for name in targets if not pyarrow.types.is_floating(types[name])),
            facts=None if stored is None else Facts.from_json(stored),
        )

    def read(self, names: tuple[str, ...], dtype: type) -> np.ndarray:
        """The named columns as one N×len(names) array."""
        _, parquet = require_pyarrow()
        with _reading(self.path):
            table = parquet.read_table(self.path, columns=list(names))
        values = np.empty((table.num_rows, len(names)), dtype=dtype)
        for j, name in enumerate(names):
            column = table.column(name)
            if column.null_count:
                raise ValueError(
                    f"column {name!r} of {self.path} has {column.null_count} missing values; fill them or drop the rows"
                )
            values[:, j] = column.to_numpy()
        return values


def write_table(path: Path, columns: Mapping[str, np.ndarray], facts: Facts) -> None:
    """Write columns and facts so that a reader sees either the whole file or none."""
    pyarrow, parquet = require_pyarrow()
    table = pyarrow.table(dict(columns)).replace_schema_metadata({_FACTS_KEY: facts.to_json().encode()})
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{path.name}.{uuid4().hex}.part")
    try:
        parquet.write_table(table, unfinished, compression="zstd")
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    pyarrow, _ = require_pyarrow()
    try:
        yield
    except PermissionError:
        raise
    except (pyarrow.ArrowException, OSError) as error:
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise ValueError(
            f"{path} cannot be read as Parquet ({reason}); the file is damaged: delete it and fetch it again"
        ) from error
