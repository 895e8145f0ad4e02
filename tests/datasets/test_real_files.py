"""The benchmark files themselves; CANDID_DATA names their directory."""

from __future__ import annotations

import io
import json
import urllib.request
import zipfile

import numpy as np
import pyarrow.parquet as pq
import pytest

from candid.datasets import available, load
from candid.datasets.recipes import RECIPES, table_digest

pytestmark = pytest.mark.data


@pytest.mark.parametrize("name", sorted(RECIPES))
def test_digest_of_a_recipe_is_that_of_the_benchmark_file(real_data, name):
    table = pq.read_table(real_data / f"{name}.parquet")
    assert table_digest({column: table[column].to_numpy() for column in table.column_names}) == RECIPES[name].digest


@pytest.mark.parametrize("name", ["yacht_raw", "wine_red", "pendigits", "landsat"])
def test_download_gives_the_same_table_as_the_file(real_data, name, monkeypatch, tmp_path):
    recipe = RECIPES[name]
    local = load(name)
    separator = recipe.delimiter or " "
    labels = local.y if local.classes is None else [local.classes[label] for label in local.y]
    lines = [separator.join([*(f"{v:.9g}" for v in x), str(label)]) for x, label in zip(local.X, labels, strict=True)]
    cut = local.official_train_rows or (7494 if name == "pendigits" else len(lines))
    parts = {recipe.files[0]: lines[:cut], recipe.files[-1]: lines[cut:] or lines}
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for file, content in parts.items():
            archive.writestr(file, "\n".join(["header"] * recipe.header + content) + "\n")
    monkeypatch.delenv("CANDID_DATA")
    monkeypatch.setattr(urllib.request, "urlopen", lambda *args, **kwargs: io.BytesIO(buffer.getvalue()))
    fetched = load(name)
    np.testing.assert_array_equal(fetched.X, local.X)
    np.testing.assert_array_equal(fetched.y, local.y)
    assert fetched.classes == local.classes
    assert fetched.feature_names == local.feature_names


def test_every_small_file_loads_as_the_manifest_says(real_data):
    entries = json.loads((real_data / "manifest.json").read_text())["datasets"]
    assert {entry["name"] for entry in entries} == set(available(source="directory"))
    for entry in entries:
        if entry["N"] * entry["D"] > 300_000:
            continue
        data = load(entry["name"])
        assert data.X.shape == (entry["N"], entry["D"])
        assert data.feature_names == tuple(entry["features"])
        assert data.constant_features == tuple(entry["constant_features"])
        assert np.isfinite(data.X).all()
        info = entry["target_info"][data.target_names[0]]
        if data.task == "classification":
            assert np.bincount(data.y).tolist() == info["counts"]
        else:
            np.testing.assert_allclose(data.y.reshape(len(data.y), -1)[:, 0].mean(), info["mean"], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("name", "target", "task", "shape"),
    [
        ("energy2", None, "regression", (768, 2)),
        ("jura", None, "regression", (359, 3)),
        ("sarcos_test", None, "regression", (4449, 7)),
        ("abalone", None, "classification", (4177,)),
        ("abalone", "y_rings", "regression", (4177,)),
        ("cardiotocography", "y_pattern", "classification", (2126,)),
        ("winequality", "y_quality", "regression", (6497,)),
    ],
)
def test_targets_of_data_sets_with_several(real_data, name, target, task, shape):
    data = load(name, target)
    assert (data.task, data.y.shape) == (task, shape)
