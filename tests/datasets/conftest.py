from __future__ import annotations

import os
import urllib.error
import urllib.request
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

REAL_DATA = os.environ.get("CANDID_DATA")


@pytest.fixture(autouse=True)
def isolated(monkeypatch, tmp_path):
    """No data directory, an empty cache, and no network."""
    monkeypatch.delenv("CANDID_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))

    def offline(*args, **kwargs):
        raise urllib.error.URLError("Name or service not known")

    monkeypatch.setattr(urllib.request, "urlopen", offline)


@pytest.fixture
def cache(tmp_path) -> Path:
    return tmp_path / "xdg" / "candid"


@pytest.fixture
def data_dir(tmp_path) -> Path:
    directory = tmp_path / "data"
    directory.mkdir()
    return directory


@pytest.fixture
def real_data(monkeypatch) -> Path:
    if not REAL_DATA:
        pytest.skip("set CANDID_DATA to the directory of the benchmark Parquet files to run this test")
    monkeypatch.setenv("CANDID_DATA", REAL_DATA)
    return Path(REAL_DATA)


@pytest.fixture
def make_file(data_dir):
    """Write ``<name>.parquet`` with two inputs and the given targets; returns its path."""

    def make(name: str, n: int = 7, **targets: np.ndarray) -> Path:
        rng = np.random.default_rng(0)
        inputs = {"a": rng.normal(size=n).astype(np.float32), "b": np.full(n, 2, dtype=np.float32)}
        path = data_dir / f"{name}.parquet"
        pq.write_table(pa.table({**inputs, **targets}), path)
        return path

    return make
