"""Reading and writing tables."""

from __future__ import annotations

import datetime
import gzip
import sys

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest

from candid.cli.tables import TextTable, find_column, read_table, write_table


@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
def test_separators(write, separator):
    table = read_table(write("a.csv", ["x", "name"], [[1, "a b"], [2.5, "c"]], separator))
    np.testing.assert_array_equal(table.columns["x"], [1, 2.5])
    assert table.columns["name"].tolist() == ["a b", "c"]


def test_missing_values(write):
    table = read_table(write("a.csv", ["x", "name", "none"], [[1, "?", ""], ["NA", "a", ""], ["nan", "", ""]]))
    np.testing.assert_array_equal(table.columns["x"], [1, np.nan, np.nan])
    assert table.columns["name"].tolist() == [None, "a", None]
    assert np.isnan(table.columns["none"]).all()


def test_types_are_decided_by_all_rows(write):
    rows = [[number, number] for number in range(300_000)] + [[0.5, "text"]]
    table = read_table(write("long.csv", ["x", "code"], rows))
    assert table.columns["x"][-1] == 0.5
    assert table.columns["code"][0] == "0"


def test_columns_can_be_kept_as_text(write):
    path = write("a.csv", ["zip", "x"], [["01234", 1], ["00007", 2]])
    assert read_table(path, text=["zip"]).columns["zip"].tolist() == ["01234", "00007"]
    assert read_table(path).columns["zip"].tolist() == [1234, 7]


def test_dates_and_times_of_csv_files_stay_as_they_are_written(write):
    """So that reading them as text, as a model that knows them does, gives the same."""
    path = write(
        "a.csv", ["day", "at", "x"], [["2020-01-02T00:00:00", "08:30", 1], ["2020-01-03T00:00:00", "09:30", 2]]
    )
    table = read_table(path)
    assert table.columns["day"].tolist() == ["2020-01-02T00:00:00", "2020-01-03T00:00:00"]
    assert table.columns["at"].tolist() == ["08:30", "09:30"]
    assert table.columns["x"].tolist() == [1, 2]


def test_names_that_are_not_utf8(tmp_path):
    (tmp_path / "a.csv").write_bytes("größe,y\n1,2\n".encode("latin-1"))
    with pytest.raises(ValueError, match=r"a\.csv is not UTF-8"):
        read_table(tmp_path / "a.csv")


def test_file_without_names(tmp_path):
    (tmp_path / "a.csv").write_text("1,2\n3,4\n")
    table = read_table(tmp_path / "a.csv")
    assert list(table.columns) == ["f0", "f1"]
    assert len(table) == 2
    assert "not names" in table.notes[0]


def test_compressed(tmp_path):
    with gzip.open(tmp_path / "a.csv.gz", "wt") as file:
        file.write("x,y\n1,2\n")
    assert read_table(tmp_path / "a.csv.gz").columns["y"].tolist() == [2.0]


def test_parquet_types(tmp_path):
    columns = {
        "flag": [True, False, None],
        "whole": pyarrow.array([1, None, 3], pyarrow.int32()),
        "level": pyarrow.array(["a", "b", None]).dictionary_encode(),
        "day": [datetime.date(2024, 1, 1)] * 3,
        "list": [[1], [2], [3]],
    }
    pyarrow.parquet.write_table(pyarrow.table(columns), tmp_path / "a.parquet")
    table = read_table(tmp_path / "a.parquet")
    np.testing.assert_array_equal(table.columns["flag"], [1, 0, np.nan])
    np.testing.assert_array_equal(table.columns["whole"], [1, np.nan, 3])
    assert table.columns["level"].tolist() == ["a", "b", None]
    assert table.columns["day"].tolist() == ["2024-01-01"] * 3
    assert "list" not in table.columns
    assert "'list'" in table.notes[0]


@pytest.mark.parametrize("name", ["a.csv", "a.parquet"])
def test_what_is_written_is_read(tmp_path, name):
    values = {"x": np.array([1.25, np.nan]), "y": np.array([1 / 3, 1e-300])}
    write_table(tmp_path / "new" / name, values)
    table = read_table(tmp_path / "new" / name)
    for column, written in values.items():
        np.testing.assert_array_equal(table.columns[column], written)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", "x,x\n1,2\n", "several columns called 'x'"),
        ("a.csv", "x,y\n", "no rows"),
        ("a.csv", "", "empty"),
        ("a.csv", "x,y\n1,2,3\n", "cannot be read"),
        ("a.parquet", "x,y\n", "cannot be read"),
        ("a.xlsx", "x", "neither CSV nor Parquet"),
    ],
)
def test_files_that_cannot_be_read(tmp_path, name, content, message):
    (tmp_path / name).write_text(content)
    with pytest.raises(ValueError, match=message):
        read_table(tmp_path / name)


def test_no_file(tmp_path):
    with pytest.raises(FileNotFoundError, match="there is no file"):
        read_table(tmp_path / "a.csv")


def test_without_pyarrow_the_error_says_what_to_install(write, monkeypatch):
    path = write("a.csv", ["x"], [["a"]])
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ImportError, match=r"pip install candid-gp\[data\]"):
        read_table(path)


def test_near_names_are_offered():
    table = TextTable("table", {"Price": np.zeros(1), "weight": np.zeros(1)})
    assert find_column(table, "Price") == "Price"
    with pytest.raises(ValueError, match=r"no column 'prize'. Did you mean 'Price'\? Its columns are Price, weight"):
        find_column(table, "prize")
