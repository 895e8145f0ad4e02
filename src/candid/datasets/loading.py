"""``load`` and ``available``: from a name to a data set, wherever it is."""

from __future__ import annotations

import os
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Literal

from candid.datasets.dataset import Dataset
from candid.datasets.download import download
from candid.datasets.origins import ORIGINS
from candid.datasets.parquet import require_pyarrow, write_table
from candid.datasets.recipes import RECIPES
from candid.datasets.shipped import SHIPPED, load_shipped
from candid.datasets.targets import read_dataset

__all__ = ["available", "load"]

Source = Literal["directory", "cache", "shipped", "download"]


def load(
    name: str, target: str | Sequence[str] | None = None, data_dir: str | os.PathLike[str] | None = None
) -> Dataset:
    """Load a data set by name.

    The first of these that has it is used: ``<name>.parquet`` in ``data_dir`` or, without that argument, in the
    directory that the environment variable ``CANDID_DATA`` names; scikit-learn's own data sets; the cache
    (``$XDG_CACHE_HOME/candid``, by default ``~/.cache/candid``); the UCI repository, from where the data set is
    downloaded into the cache.

    Parameters
    ----------
    name
        One of :func:`available`.
    target
        Which target column to predict, or several real ones for a multi-output problem. By default ``y``, or all
        outputs ``y0``, ``y1``, … of a data set that has several.
    data_dir
        Directory of Parquet files, in place of ``CANDID_DATA``.

    Examples
    --------
    >>> from candid.datasets import load
    >>> data = load("iris")
    >>> data.X.shape, data.classes
    ((150, 4), ('setosa', 'versicolor', 'virginica'))
    """
    if not name or Path(name).name != name:
        raise ValueError(
            f"{name!r} is not the name of a data set; for a file of your own give its directory as data_dir"
        )
    directory = _directory(data_dir)
    if directory is not None and (path := directory / f"{name}.parquet").is_file():
        return read_dataset(path, name, target)
    if name in SHIPPED:
        return load_shipped(name, target)
    if directory is not None:
        _require_directory(directory)
    cached = _cache() / f"{name}.parquet"
    if not cached.is_file():
        if name not in RECIPES:
            raise _missing(name, directory)
        require_pyarrow()
        columns, facts = download(name, RECIPES[name])
        write_table(cached, columns, facts)
    return read_dataset(cached, name, target)


def available(data_dir: str | os.PathLike[str] | None = None, source: Source | None = None) -> list[str]:
    """Sorted names that :func:`load` accepts.

    Parameters
    ----------
    data_dir
        Directory of Parquet files, in place of ``CANDID_DATA``.
    source
        Only the names that come from there: ``"directory"`` (``data_dir`` or ``CANDID_DATA``), ``"cache"``,
        ``"shipped"`` (with scikit-learn) or ``"download"`` (not on this machine yet). Each name has one source.
    """
    directory = _directory(data_dir)
    if directory is not None:
        _require_directory(directory)
    found: dict[str, Source] = dict.fromkeys(RECIPES, "download")
    found |= dict.fromkeys(_names_in(_cache()), "cache")
    found |= dict.fromkeys(SHIPPED, "shipped")
    found |= dict.fromkeys(_names_in(directory), "directory")
    if source is not None and source not in ("directory", "cache", "shipped", "download"):
        raise ValueError(f"source must be 'directory', 'cache', 'shipped' or 'download', got {source!r}")
    return sorted(name for name, where in found.items() if source in (None, where))


def _directory(data_dir: str | os.PathLike[str] | None) -> Path | None:
    chosen = data_dir if data_dir is not None else os.environ.get("CANDID_DATA") or None
    return None if chosen is None else Path(chosen).expanduser()


def _require_directory(directory: Path) -> None:
    if not directory.is_dir():
        raise NotADirectoryError(
            f"{directory} (from data_dir or the environment variable CANDID_DATA) is not a directory"
        )


def _cache() -> Path:
    root = os.environ.get("XDG_CACHE_HOME")
    return (Path(root) if root else Path.home() / ".cache") / "candid"


def _names_in(directory: Path | None) -> list[str]:
    if directory is None or not directory.is_dir():
        return []
    return [path.stem for path in directory.glob("*.parquet") if not path.name.startswith(".")]


def _missing(name: str, directory: Path | None) -> Exception:
    if name in ORIGINS:
        where = "CANDID_DATA is not set" if directory is None else f"it is not in {directory}"
        return FileNotFoundError(
            f"{name!r} cannot be downloaded, and {where}. Its origin is {ORIGINS[name]}. Store it as {name}.parquet "
            "(targets in columns whose names start with 'y', inputs in all others) and set the environment variable "
            "CANDID_DATA, or data_dir, to the directory of that file"
        )
    local = _names_in(directory)
    near = get_close_matches(name, sorted({*RECIPES, *SHIPPED, *ORIGINS, *local}), n=3)
    hint = f"Did you mean {' or '.join(map(repr, near))}?" if near else "candid.datasets.available() lists the names."
    return ValueError(
        f"there is no data set called {name!r}. {hint} Parquet files of your own are found in the directory that "
        "data_dir or the environment variable CANDID_DATA names"
    )
