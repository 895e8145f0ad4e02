"""Checkpoints: everything a run needs to go on exactly where it stopped, in one safetensors file."""

from __future__ import annotations

import json
import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

__all__ = ["Checkpoint"]

# Writing checkpoints may take this share of the training time.
SHARE_OF_TIME = 0.05
# A half-written file that is so many seconds old belongs to nobody any more.
LEFTOVER_AGE = 3600.0
# What a run cannot go on without.
PARTS = {"state": dict, "problem": dict, "steppers": list, "stopping": dict, "draws": dict}


class Checkpoint:
    """A file that is rewritten during training, atomically and as often as costs little.

    Parameters
    ----------
    path : path
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._cost = 0.0
        self._written = time.perf_counter()

    def due(self) -> bool:
        """Whether a checkpoint written now would keep within the share of time."""
        return time.perf_counter() - self._written >= self._cost / SHARE_OF_TIME

    def write(self, state: dict[str, Any]) -> None:
        """Replace the file: it holds either the old state or the new one, never half of each."""
        start = time.perf_counter()
        tensors: dict[str, Tensor] = {}
        outline = _flatten(state, "", tensors)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        scratch = self.path.with_name(f"{self.path.name}.{uuid4().hex}.part")
        try:
            save_file(tensors, scratch, metadata={"outline": json.dumps(outline)})
            os.replace(scratch, self.path)
        finally:
            scratch.unlink(missing_ok=True)
        self._written = time.perf_counter()
        self._cost = self._written - start

    def read(self) -> dict[str, Any] | None:
        """The state as it was written, or None if there is none that a run can go on from."""
        try:
            with safe_open(self.path, framework="pt") as file:
                outline = json.loads((file.metadata() or {})["outline"])
                # Copies: the file's own tensors would change with the file.
                tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118
            state = _unflatten(outline, tensors)
        except (FileNotFoundError, SafetensorError, KeyError, ValueError, TypeError, AttributeError, RecursionError):
            return None
        whole = isinstance(state, dict) and all(isinstance(state.get(part), kind) for part, kind in PARTS.items())
        return state if whole else None

    def delete(self) -> None:
        """Remove the file, and what killed processes left half-written beside it long ago.

        A younger half-written file may be one that another process or thread is writing at this moment.
        """
        self.path.unlink(missing_ok=True)
        for part in self.path.parent.glob(f"{self.path.name}.*.part"):
            with suppress(FileNotFoundError):
                if time.time() - part.stat().st_mtime > LEFTOVER_AGE:
                    part.unlink()


def _flatten(tree: Any, path: str, tensors: dict[str, Tensor]) -> Any:
    """Move the tensors of a tree of dicts and lists into ``tensors``; what remains is JSON."""
    if isinstance(tree, Tensor):
        tensors[path] = tree.detach().cpu().contiguous().clone()
        return {"tensor": path}
    if isinstance(tree, dict):
        return {"dict": [[key, _flatten(value, f"{path}/{key}", tensors)] for key, value in tree.items()]}
    if isinstance(tree, (list, tuple)):
        return {"list": [_flatten(value, f"{path}/{position}", tensors) for position, value in enumerate(tree)]}
    return {"value": tree}


def _unflatten(outline: Any, tensors: dict[str, Tensor]) -> Any:
    ((kind, content),) = outline.items()
    if kind == "tensor":
        return tensors[content]
    if kind == "dict":
        return {key: _unflatten(value, tensors) for key, value in content}
    if kind == "list":
        return [_unflatten(value, tensors) for value in content]
    if kind == "value":
        return content
    raise ValueError(f"unknown kind of entry {kind!r}")
