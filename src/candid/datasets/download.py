"""Fetching a data set from the UCI repository: download, unpack, parse, check."""

from __future__ import annotations

import gzip
import http.client
import io
import urllib.request
import zipfile
import zlib
from pathlib import PurePosixPath

import numpy as np

from candid.datasets.facts import Facts
from candid.datasets.recipes import Columns, Recipe, table_digest

__all__ = ["download", "parse_archive"]

_TIMEOUT_SECONDS = 60


def download(name: str, recipe: Recipe) -> tuple[Columns, Facts]:
    """The table of ``recipe``, in the form in which it is cached, and the facts about it."""
    request = urllib.request.Request(recipe.url, headers={"User-Agent": "candid-gp"})
    try:
        with urllib.request.urlopen(request, timeout=_TIMEOUT_SECONDS) as response:
            archive = response.read()
    except (OSError, http.client.HTTPException) as error:
        raise ConnectionError(
            f"could not download {name!r} from {recipe.url} ({error}). If this machine has no network, put "
            f"{name}.parquet into a directory and set the environment variable CANDID_DATA to that directory, or copy "
            "the cached file from a machine where candid.datasets.load has already fetched it"
        ) from error
    try:
        columns, facts = parse_archive(recipe, archive)
    except (zipfile.BadZipFile, zlib.error, ValueError, EOFError, OSError) as error:
        raise ValueError(
            f"what {recipe.url} sent could not be read as {name!r} ({error}); try again later, or get {name}.parquet "
            "elsewhere and set CANDID_DATA to its directory"
        ) from error
    if table_digest(columns) != recipe.digest:
        raise ValueError(
            f"the table read from {recipe.url} is not the one Candid knows as {name!r}: its digest is "
            f"{table_digest(columns)}, expected {recipe.digest}. The data there have changed or the download is "
            f"damaged; nothing was kept. Try again, or get {name}.parquet elsewhere and set CANDID_DATA to its "
            "directory"
        )
    return columns, facts


def parse_archive(recipe: Recipe, archive: bytes) -> tuple[Columns, Facts]:
    """Read the files of ``recipe`` from a zip archive."""
    files = []
    for wanted in recipe.files:
        content = _find_member(archive, wanted)
        if content is None:
            raise ValueError(f"the archive has no file {wanted}")
        files.append(_data_lines(recipe, content.decode("utf-8")))
        if not files[-1]:
            raise ValueError(f"{wanted} is empty")

    kept = [(j, column) for j, column in enumerate(recipe.columns) if column]
    rows: list[int] = []
    numbers: list[np.ndarray] = []
    texts: list[np.ndarray] = []
    for lines in files:
        numbers.append(_read(recipe, lines, [j for j, column in kept if column not in recipe.text], np.float64))
        rows.append(len(numbers[-1]))
        if recipe.text:
            texts.append(_read(recipe, lines, [j for j, column in kept if column in recipe.text], np.str_))

    real = np.concatenate(numbers).T.astype(np.float32)
    columns: Columns = dict(zip((column for _, column in kept if column not in recipe.text), real, strict=True))
    levels: dict[str, tuple[str, ...]] = {}
    if texts:
        for column, values in zip((c for _, c in kept if c in recipe.text), np.concatenate(texts).T, strict=True):
            codes, levels[column] = _encode(values, recipe.text[column])
            columns[column] = codes.astype(np.int32 if column.startswith("y") else np.float32)
    # Columns in the order of the file, inputs before targets.
    columns = {column: columns[column] for _, column in sorted(kept, key=lambda item: item[1].startswith("y"))}
    if recipe.derive is not None:
        columns = recipe.derive(columns, rows)

    classes = {column: names for column, names in levels.items() if column.startswith("y")}
    if recipe.class_names is not None:
        classes["y"] = recipe.class_names
    facts = Facts(
        description=recipe.title,
        licence=recipe.licence,
        classes=classes,
        levels={column: names for column, names in levels.items() if not column.startswith("y")},
        official_train_rows=rows[0] if recipe.official else None,
    )
    return columns, facts


def _data_lines(recipe: Recipe, content: str) -> list[str]:
    lines = content.splitlines()[int(recipe.header) :]
    return [line for line in lines if line.strip() and not (recipe.comment and line.startswith(recipe.comment))]


def _read(recipe: Recipe, lines: list[str], columns: list[int], dtype: type) -> np.ndarray:
    return np.loadtxt(lines, dtype=dtype, comments=None, delimiter=recipe.delimiter, usecols=columns, ndmin=2)


def _encode(values: np.ndarray, order: tuple[str, ...] | None) -> tuple[np.ndarray, tuple[str, ...]]:
    # The test part of Adult ends its class names with a full stop.
    stripped = np.char.rstrip(np.char.strip(values), ".")
    found, codes = np.unique(stripped, return_inverse=True)
    if order is None:
        return codes, tuple(map(str, found))
    unknown = sorted(set(found.tolist()) - set(order))
    if unknown:
        raise ValueError(f"unexpected value {unknown[0]!r}, known are {', '.join(order)}")
    return np.array([order.index(level) for level in found])[codes], order


def _find_member(archive: bytes, wanted: str) -> bytes | None:
    """The file called ``wanted`` anywhere in the archive, also gzipped or in an archive within the archive."""
    with zipfile.ZipFile(io.BytesIO(archive)) as opened:
        names = {PurePosixPath(member).name: member for member in opened.namelist() if "__MACOSX" not in member}
        if wanted in names:
            return opened.read(names[wanted])
        if f"{wanted}.gz" in names:
            return gzip.decompress(opened.read(names[f"{wanted}.gz"]))
        for name, member in names.items():
            if name.endswith(".zip") and (content := _find_member(opened.read(member), wanted)) is not None:
                return content
    return None
