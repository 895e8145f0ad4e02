from __future__ import annotations

import builtins
import hashlib
import json
import os

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from candid.datasets import available, facts, load

REAL = np.array([1, 2, 3, 4, 5, 6, 7.5], dtype=np.float32)
CLASS = np.array([0, 1, 2, 1, 0, 2, 1], dtype=np.int32)


def write_manifest(directory, path, **entry):
    entry = {"name": path.stem, "sha256": hashlib.sha256(path.read_bytes()).hexdigest(), **entry}
    (directory / "manifest.json").write_text(json.dumps({"datasets": [entry]}))


def test_regression_table(make_file, data_dir):
    make_file("toy", y=REAL)
    data = load("toy", data_dir=data_dir)
    assert data.X.shape == (7, 2)
    assert data.X.dtype == np.float64
    assert data.y.dtype == np.float64
    np.testing.assert_array_equal(data.y, REAL)
    assert (data.feature_names, data.target_names) == (("a", "b"), ("y",))
    assert (data.task, data.classes, data.official_train_rows) == ("regression", None, None)
    assert data.constant_features == ("b",)
    assert repr(data) == "Dataset('toy', 7×2, regression)"
    X, y = data.Xy
    assert X is data.X
    assert y is data.y


def test_data_set_is_frozen_and_splits_itself(make_file, data_dir):
    make_file("toy", y=REAL)
    data = load("toy", data_dir=data_dir)
    with pytest.raises(AttributeError):
        data.name = "other"  # type: ignore[misc]
    assert [len(part) for part in data.split(seed=1)] == [5, 1, 1]
    assert len(data.folds(3, seed=1)) == 3
    with pytest.raises(ValueError, match="no official split"):
        data.official_split()


def test_environment_variable_and_argument(make_file, data_dir, monkeypatch, tmp_path):
    make_file("toy", y=REAL)
    monkeypatch.setenv("CANDID_DATA", str(data_dir))
    assert load("toy").X.shape == (7, 2)
    other = tmp_path / "other"
    other.mkdir()
    with pytest.raises(ValueError, match="no data set called 'toy'"):
        load("toy", data_dir=other)


def test_integer_target_without_manifest_is_a_class(make_file, data_dir):
    make_file("toy", y=CLASS)
    data = load("toy", data_dir=data_dir)
    assert data.task == "classification"
    assert data.y.dtype == np.int64
    np.testing.assert_array_equal(data.y, CLASS)
    assert data.classes == ("0", "1", "2")


def test_manifest_gives_names_licence_and_official_split(make_file, data_dir):
    path = make_file("toy", y=CLASS, y_size=REAL)
    write_manifest(
        data_dir,
        path,
        target_info={"y": {"kind": "class", "classes": 3}, "y_size": {"kind": "real"}},
        class_labels=["red", "green", "blue"],
        categorical={"a": ["no", "yes"]},
        original="A toy",
        processing="none",
        licence="CC0",
        official_train_rows=5,
    )
    data = load("toy", data_dir=data_dir)
    assert data.classes == ("red", "green", "blue")
    assert data.levels == {"a": ("no", "yes")}
    assert (data.description, data.licence) == ("A toy. none", "CC0")
    train, test = data.official_split()
    assert (train.tolist(), test.tolist()) == ([0, 1, 2, 3, 4], [5, 6])
    size = load("toy", target="y_size", data_dir=data_dir)
    assert (size.task, size.classes, size.target_names) == ("regression", None, ("y_size",))


def test_manifest_can_declare_an_integer_target_real(make_file, data_dir):
    path = make_file("toy", y=CLASS)
    write_manifest(data_dir, path, target_info={"y": {"kind": "real"}})
    assert load("toy", data_dir=data_dir).task == "regression"


def test_numbered_real_targets_are_outputs(make_file, data_dir):
    make_file("toy", y0=REAL, y1=-REAL, y_floor=CLASS)
    data = load("toy", data_dir=data_dir)
    assert data.target_names == ("y0", "y1")
    np.testing.assert_array_equal(data.y, np.column_stack([REAL, -REAL]))
    assert "2 outputs" in repr(data)
    assert load("toy", "y1", data_dir).y.shape == (7,)
    assert load("toy", ["y1", "y0"], data_dir).y[0].tolist() == [-1.0, 1.0]
    assert load("toy", "y_floor", data_dir).task == "classification"


def test_named_real_targets_are_outputs(make_file, data_dir):
    make_file("toy", y_cd=REAL, y_co=-REAL)
    assert load("toy", data_dir=data_dir).target_names == ("y_cd", "y_co")


def test_ambiguous_target(make_file, data_dir):
    make_file("toy", y_colour=CLASS, y_size=REAL)
    with pytest.raises(ValueError, match=r"several targets; pick one.*y_colour, y_size"):
        load("toy", data_dir=data_dir)


@pytest.mark.parametrize(
    ("target", "message"),
    [("y_ring", "did you mean 'y_rings'"), (["y", "y_rings"], "contains classes"), ([], "at least one column")],
)
def test_bad_target(make_file, data_dir, target, message):
    make_file("toy", y=CLASS, y_rings=REAL)
    with pytest.raises(ValueError, match=message):
        load("toy", target, data_dir)


def test_checksum_mismatch(make_file, data_dir):
    path = make_file("toy", y=REAL)
    write_manifest(data_dir, path, sha256="0" * 64)
    with pytest.raises(ValueError, match=r"SHA-256 is .* expected 0000"):
        load("toy", data_dir=data_dir)


def test_checksum_is_computed_once_per_unchanged_file(make_file, data_dir, monkeypatch):
    path = make_file("toy", y=REAL)
    write_manifest(data_dir, path)
    computed = []
    file_digest = hashlib.file_digest
    monkeypatch.setattr(facts.hashlib, "file_digest", lambda *args: computed.append(1) or file_digest(*args))
    load("toy", data_dir=data_dir)
    load("toy", data_dir=data_dir)
    assert len(computed) == 1
    os.utime(path, ns=(1, 1))
    load("toy", data_dir=data_dir)
    assert len(computed) == 2


@pytest.mark.parametrize("text", ["not json", "[]", '{"datasets": [{"sha256": 1}]}'])
def test_damaged_manifest(make_file, data_dir, text):
    make_file("toy", y=REAL)
    (data_dir / "manifest.json").write_text(text)
    with pytest.raises(ValueError, match="not a manifest that Candid can read"):
        load("toy", data_dir=data_dir)


@pytest.mark.parametrize("keep", [0, 10, 0.5])
def test_damaged_file(make_file, data_dir, keep):
    path = make_file("toy", y=REAL)
    content = path.read_bytes()
    path.write_bytes(content[: int(keep * len(content)) if keep < 1 else keep])
    with pytest.raises(ValueError, match=r"toy\.parquet cannot be read as Parquet"):
        load("toy", data_dir=data_dir)


def test_damaged_values_behind_a_sound_footer(make_file, data_dir):
    path = make_file("toy", n=5000, y=np.arange(5000, dtype=np.float32))
    content = bytearray(path.read_bytes())
    content[4:6000] = bytes(5996)
    path.write_bytes(bytes(content))
    with pytest.raises(ValueError, match=r"toy\.parquet cannot be read as Parquet"):
        load("toy", data_dir=data_dir)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"a": [1.0], "b": [2.0]}, "at least one target column"),
        ({"y": [1.0]}, "one input column"),
        ({"a": ["red"], "y": [1.0]}, "not numbers: a"),
        ({"a": [None, 1.0], "y": [1.0, 2.0]}, "column 'a' .* 1 missing"),
        ({"a": [0.0, 1.0], "y": [-1, 1]}, "counted from 0"),
    ],
)
def test_table_that_breaks_the_convention(data_dir, columns, message):
    pq.write_table(pa.table(columns), data_dir / "toy.parquet")
    with pytest.raises(ValueError, match=message):
        load("toy", data_dir=data_dir)


def test_more_classes_than_names(make_file, data_dir):
    path = make_file("toy", y=CLASS)
    write_manifest(data_dir, path, target_info={"y": {"kind": "class"}}, class_labels=["no", "yes"])
    with pytest.raises(ValueError, match="has class 2, but only 2 class names"):
        load("toy", data_dir=data_dir)


def test_missing_pyarrow(make_file, data_dir, monkeypatch):
    make_file("toy", y=REAL)
    real_import = builtins.__import__

    def without_pyarrow(name, *args, **kwargs):
        if name.split(".")[0] == "pyarrow":
            raise ImportError("No module named 'pyarrow'")
        return real_import(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without_pyarrow)
    for name in ("toy", "yacht_raw"):
        with pytest.raises(ImportError, match=r"pip install candid-gp\[data\]"):
            load(name, data_dir=data_dir)
    assert load("iris").X.shape == (150, 4)


def test_unknown_name_suggests_a_close_one(make_file, data_dir):
    make_file("turbines", y=REAL)
    with pytest.raises(ValueError, match=r"no data set called 'turbine'\. Did you mean 'turbines'"):
        load("turbine", data_dir=data_dir)
    with pytest.raises(ValueError, match="Did you mean 'kin40k'"):
        load("kin40")
    with pytest.raises(ValueError, match="available"):
        load("qqqqqq")


def test_known_data_set_without_a_file_names_its_origin(data_dir):
    with pytest.raises(FileNotFoundError, match=r"CANDID_DATA is not set.*treforevans/uci_datasets.*pol\.parquet"):
        load("pol")
    with pytest.raises(FileNotFoundError, match=r"energy2.*not in .*UCI data set 242.*CANDID_DATA"):
        load("energy2", data_dir=data_dir)


@pytest.mark.parametrize("name", ["", "../toy", "a/b"])
def test_path_instead_of_a_name(name):
    with pytest.raises(ValueError, match="not the name of a data set"):
        load(name)


def test_directory_that_does_not_exist(monkeypatch, tmp_path):
    monkeypatch.setenv("CANDID_DATA", str(tmp_path / "nowhere"))
    with pytest.raises(NotADirectoryError, match=r"nowhere.*CANDID_DATA"):
        load("pol")
    with pytest.raises(NotADirectoryError, match=r"nowhere.*CANDID_DATA"):
        available()
    assert load("iris").X.shape == (150, 4)


def test_available_by_source(make_file, data_dir, cache):
    make_file("toy", y=REAL)
    make_file("iris", y=CLASS)
    cache.mkdir(parents=True)
    (cache / "yacht_raw.parquet").touch()
    (cache / ".adult.parquet.0.part").touch()
    names = available(data_dir)
    assert names == sorted(names)
    assert {"toy", "iris", "digits", "adult", "yacht_raw"} <= set(names)
    assert available(data_dir, source="directory") == ["iris", "toy"]
    assert available(data_dir, source="cache") == ["yacht_raw"]
    assert available(data_dir, source="shipped") == ["breast_cancer", "diabetes", "digits", "wine_recognition"]
    assert "yacht_raw" not in available(data_dir, source="download")
    assert "adult" in available(data_dir, source="download")
    assert "toy" not in available()
    with pytest.raises(ValueError, match="source must be"):
        available(source="network")  # type: ignore[arg-type]


def test_own_file_wins_over_a_shipped_data_set(make_file, data_dir):
    make_file("iris", y=REAL)
    assert load("iris", data_dir=data_dir).task == "regression"
