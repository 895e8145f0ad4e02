"""What is known about a table beyond its numbers, and the checksum of its file.

A directory of Parquet files may hold a ``manifest.json``: ``{"datasets": [{"name": …, "sha256": …, …}, …]}``.
Everything in it is optional; a table without an entry is read all the same.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path

__all__ = ["Facts", "facts_from_manifest", "verify_checksum"]

_verified: set[tuple[str, int, int, str]] = set()


@dataclass(frozen=True)
class Facts:
    """Facts about one table.

    ``kinds`` maps a target to ``"real"`` or ``"class"``, ``classes`` a target to its class names, ``levels`` a
    categorical input to the names of its codes.
    """

    description: str = ""
    licence: str = ""
    kinds: Mapping[str, str] = field(default_factory=dict)
    classes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    levels: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    official_train_rows: int | None = None
    sha256: str | None = None

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str | bytes) -> Facts:
        values = json.loads(text)
        for key in ("classes", "levels"):
            values[key] = {name: tuple(names) for name, names in values.get(key, {}).items()}
        return cls(**{entry.name: values[entry.name] for entry in fields(cls) if entry.name in values})


def facts_from_manifest(directory: Path, name: str) -> Facts | None:
    """The entry for ``name`` in the manifest of ``directory``, or None if there is no manifest or no entry."""
    path = directory / "manifest.json"
    if not path.is_file():
        return None
    try:
        entries = json.loads(path.read_text(encoding="utf-8"))["datasets"]
        entry = next((entry for entry in entries if entry["name"] == name), None)
        return None if entry is None else _facts_from_entry(entry)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(
            f"{path} is not a manifest that Candid can read ({type(error).__name__}: {error}); repair or remove it: "
            "the tables beside it are readable without one"
        ) from error


def _facts_from_entry(entry: Mapping) -> Facts:
    kinds = {target: about["kind"] for target, about in entry.get("target_info", {}).items()}
    class_targets = [target for target, kind in kinds.items() if kind == "class"]
    labels = tuple(map(str, entry.get("class_labels", ())))
    main = "y" if "y" in class_targets else next(iter(class_targets), None)
    description = ". ".join(text for text in (entry.get("original", ""), entry.get("processing", "")) if text)
    return Facts(
        description=description,
        licence=entry.get("licence", ""),
        kinds=kinds,
        classes={main: labels} if main is not None and labels else {},
        levels={name: tuple(map(str, names)) for name, names in entry.get("categorical", {}).items()},
        official_train_rows=entry.get("official_train_rows"),
        sha256=entry.get("sha256"),
    )


def verify_checksum(path: Path, expected: str) -> None:
    """Raise unless the SHA-256 of the file is ``expected``; an unchanged file is read only once per process."""
    state = path.stat()
    key = (str(path.resolve()), state.st_mtime_ns, state.st_size, expected)
    if key in _verified:
        return
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != expected:
        raise ValueError(
            f"{path} is not the file that manifest.json beside it describes: its SHA-256 is {found}, expected "
            f"{expected}. Fetch the file again, or correct the manifest if you changed the file on purpose"
        )
    _verified.add(key)
