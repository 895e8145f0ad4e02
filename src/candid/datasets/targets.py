"""From a file to a :class:`Dataset`: which target is meant, of what kind it is, and what its classes are called."""

from __future__ import annotations

import re
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path

import numpy as np

from candid.datasets.dataset import Dataset
from candid.datasets.facts import Facts, facts_from_manifest, verify_checksum
from candid.datasets.parquet import ParquetTable

__all__ = ["choose_targets", "read_dataset"]


def choose_targets(
    name: str, targets: Sequence[str], is_class: Sequence[bool], wanted: str | Sequence[str] | None
) -> tuple[str, ...]:
    """The target columns to use.

    Without a wish: the only target; else ``y``; else the numbered targets ``y0``, ``y1``, … if all of them are real;
    else all targets if all are real. Anything else is ambiguous and an error.
    """
    class_of = dict(zip(targets, is_class, strict=True))
    if wanted is not None:
        chosen = (wanted,) if isinstance(wanted, str) else tuple(wanted)
        for target in chosen:
            if target not in class_of:
                near = get_close_matches(target, targets, n=1)
                hint = f"; did you mean {near[0]!r}?" if near else ""
                raise ValueError(f"{name!r} has no target {target!r}, it has {', '.join(targets)}{hint}")
        if not chosen or len(set(chosen)) < len(chosen):
            raise ValueError(f"target must name at least one column and none twice, got {chosen}")
        if len(chosen) > 1 and any(class_of[target] for target in chosen):
            raise ValueError(f"several targets at once must all be real numbers, but {chosen} contains classes")
        return chosen
    if len(targets) == 1:
        return (targets[0],)
    if "y" in class_of:
        return ("y",)
    numbered = tuple(target for target in targets if re.fullmatch(r"y\d+", target))
    for candidates in (numbered, tuple(targets)):
        if candidates and not any(class_of[target] for target in candidates):
            return candidates
    raise ValueError(f"{name!r} has several targets; pick one with target=…: {', '.join(targets)}")


def read_dataset(path: Path, name: str, target: str | Sequence[str] | None = None) -> Dataset:
    """Read the Parquet file ``path``, with what a manifest beside it or the file itself says about it."""
    facts = facts_from_manifest(path.parent, name)
    if facts is not None and facts.sha256 is not None:
        verify_checksum(path, facts.sha256)
    table = ParquetTable.open(path)
    facts = facts or table.facts or Facts()

    inferred = {column: "class" if column in table.integer_targets else "real" for column in table.targets}
    kinds = {**inferred, **{column: kind for column, kind in facts.kinds.items() if column in inferred}}
    is_class = [kinds[column] == "class" for column in table.targets]
    chosen = choose_targets(name, table.targets, is_class, target)

    if kinds[chosen[0]] == "class":
        task, y = "classification", table.read(chosen, np.int64)[:, 0]
        classes = _class_names(path, chosen[0], y, facts.classes.get(chosen[0]))
    else:
        task, y, classes = "regression", table.read(chosen, np.float64), None
        y = y[:, 0] if len(chosen) == 1 else y
    return Dataset(
        name=name,
        X=table.read(table.features, np.float64),
        y=y,
        feature_names=table.features,
        target_names=chosen,
        task=task,
        classes=classes,
        description=facts.description,
        licence=facts.licence,
        official_train_rows=facts.official_train_rows,
        levels=facts.levels,
    )


def _class_names(path: Path, target: str, y: np.ndarray, names: tuple[str, ...] | None) -> tuple[str, ...]:
    if len(y) and y.min() < 0:
        raise ValueError(f"classes are counted from 0, but column {target!r} of {path} contains {y.min()}")
    count = int(y.max()) + 1 if len(y) else 0
    if names is None:
        return tuple(map(str, range(count)))
    if count > len(names):
        raise ValueError(
            f"column {target!r} of {path} has class {count - 1}, but only {len(names)} class names are known"
        )
    return names
