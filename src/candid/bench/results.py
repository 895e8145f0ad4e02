"""Results as lines of JSON: written at once, one for each fit, so that nothing is lost when a run breaks off."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any

__all__ = ["Results", "append_line"]


class Results:
    """The records of a file, by the key of their fit; a later record replaces an earlier one of the same key."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._records: dict[str, dict[str, Any]] = {}
        if path.is_file():
            for line in path.read_text(encoding="utf-8").splitlines():
                self._read(line)

    def finished(self, key: str) -> dict[str, Any] | None:
        """The record of a fit that succeeded; one that failed is worth another try."""
        record = self._records.get(key)
        return record if record is not None and record["error"] is None else None

    def append(self, record: dict[str, Any]) -> None:
        append_line(self.path, record)
        self._records[record["key"]] = record

    def _read(self, line: str) -> None:
        try:
            record = json.loads(line)
            self._records[record["key"]] = record
        except (json.JSONDecodeError, KeyError, TypeError):
            # The line that was being written when a run was killed.
            return


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
