"""Results as lines of JSON: written at once, one for each fit, so that nothing is lost when a run breaks off."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from candid.bench.fit import Fit

__all__ = ["Results", "append_line"]


class Results:
    """The records of a file, by the key of their fit; a later record replaces an earlier one of the same key.

    Parameters
    ----------
    path : Path
    others : iterable of Path
        Files of other benchmarks. What they have done already is copied when it is asked for.
    """

    def __init__(self, path: Path, others: Iterable[Path] = ()) -> None:
        self.path = path
        self._records = _read(path) if path.is_file() else {}
        self._others = {key: record for other in others for key, record in _read(other).items()}

    def finished(self, fit: Fit) -> dict[str, Any] | None:
        """The record of a fit that succeeded; one that failed is worth another try."""
        key = fit.key()
        for records in (self._records, self._others):
            record = records.get(key)
            if record is not None and record["error"] is None and fit.agrees_with(record):
                if records is self._others:
                    self.append(record)
                return record
        return None

    def append(self, record: dict[str, Any]) -> None:
        append_line(self.path, record)
        self._records[record["key"]] = record


def _read(path: Path) -> dict[str, dict[str, Any]]:
    records: dict[str, dict[str, Any]] = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        # The line that was being written when a run was killed is not a record.
        with suppress(json.JSONDecodeError, KeyError, TypeError):
            record = json.loads(line)
            records[record["key"]] = record
    return records


def append_line(path: Path, record: dict[str, Any]) -> None:
    """Add a line to a file and see that it reaches the disk; numbers that are not finite become null."""
    path.parent.mkdir(parents=True, exist_ok=True)
    line = json.dumps(_finite(record), default=repr, ensure_ascii=False, allow_nan=False)
    with path.open("a+b") as file:
        # A line that was broken off must not swallow this one.
        if file.tell():
            file.seek(-1, os.SEEK_END)
            if file.read(1) != b"\n":
                file.write(b"\n")
        file.write(line.encode() + b"\n")
        file.flush()
        os.fsync(file.fileno())


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _finite(entry) for name, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(entry) for entry in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
