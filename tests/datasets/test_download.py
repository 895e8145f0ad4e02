from __future__ import annotations

import dataclasses
import gzip
import http.client
import io
import urllib.request
import zipfile

import numpy as np
import pytest

from candid.datasets import load, loading
from candid.datasets.download import parse_archive
from candid.datasets.origins import ORIGINS
from candid.datasets.recipes import RECIPES, table_digest
from candid.datasets.shipped import SHIPPED

YACHT = "-2.3 0.568 4.78 3.99 3.17 0.125 0.11 \n-2.3 0.568 4.78 3.99 3.17 0.150 0.27\n\n"


def zipped(**files: str | bytes) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return buffer.getvalue()


@pytest.fixture
def serve(monkeypatch):
    """Make urlopen answer with these bytes; returns the list of requests it saw."""

    def start(content: bytes) -> list[urllib.request.Request]:
        seen: list[urllib.request.Request] = []

        def urlopen(request, timeout):
            assert timeout > 0
            seen.append(request)
            return io.BytesIO(content)

        monkeypatch.setattr(urllib.request, "urlopen", urlopen)
        return seen

    return start


@pytest.fixture
def trust(monkeypatch):
    """Expect the digest of the small archive in place of that of the whole data set."""

    def expect(name: str, archive: bytes) -> None:
        digest = table_digest(parse_archive(RECIPES[name], archive)[0])
        monkeypatch.setitem(loading.RECIPES, name, dataclasses.replace(RECIPES[name], digest=digest))

    return expect


def test_offline_error_says_what_to_do(cache):
    with pytest.raises(
        ConnectionError, match=r"uci\.edu/static/public/243/.*no network.*yacht_raw\.parquet.*CANDID_DATA"
    ):
        load("yacht_raw")
    assert not cache.exists()


def test_connection_that_breaks_off(monkeypatch):
    def urlopen(*args, **kwargs):
        raise http.client.IncompleteRead(b"PK")

    monkeypatch.setattr(urllib.request, "urlopen", urlopen)
    with pytest.raises(ConnectionError, match="could not download 'yacht_raw'"):
        load("yacht_raw")


def test_download_is_cached(serve, trust, cache):
    archive = zipped(**{"yacht_hydrodynamics.data": YACHT})
    trust("yacht_raw", archive)
    requests = serve(archive)
    first = load("yacht_raw")
    again = load("yacht_raw")
    assert [request.full_url for request in requests] == [RECIPES["yacht_raw"].url]
    assert first.X.shape == (2, 6)
    np.testing.assert_allclose(first.y, [0.11, 0.27], rtol=1e-6)
    np.testing.assert_array_equal(first.X, again.X)
    assert again.licence.startswith("CC BY 4.0")
    assert "Yacht" in again.description
    assert [path.name for path in cache.iterdir()] == ["yacht_raw.parquet"]


def test_table_with_another_digest_is_not_kept(serve, cache):
    serve(zipped(**{"yacht_hydrodynamics.data": YACHT}))
    with pytest.raises(
        ValueError, match=r"not the one Candid knows as 'yacht_raw'.*expected " + RECIPES["yacht_raw"].digest
    ):
        load("yacht_raw")
    assert not cache.exists()


@pytest.mark.parametrize(
    "archive",
    [
        b"<html>Moved</html>",
        zipped(**{"readme.txt": "nothing here"}),
        zipped(**{"yacht_hydrodynamics.data": "\n"}),
        zipped(**{"yacht_hydrodynamics.data.gz": gzip.compress(YACHT.encode())[:30]}),
        zipped(**{"yacht_hydrodynamics.data": "1 2 three 4 5 6 7\n"}),
        zipped(**{"yacht_hydrodynamics.data": b"\xff\xfe"}),
    ],
)
def test_answer_that_is_not_the_data(serve, archive, cache):
    serve(archive)
    with pytest.raises(ValueError, match=r"could not be read as 'yacht_raw'.*CANDID_DATA"):
        load("yacht_raw")
    assert not cache.exists()


def test_interrupted_write_leaves_nothing(serve, trust, cache, monkeypatch):
    archive = zipped(**{"yacht_hydrodynamics.data": YACHT})
    trust("yacht_raw", archive)
    serve(archive)

    def full_disk(*args, **kwargs):
        raise OSError("No space left on device")

    monkeypatch.setattr("pyarrow.parquet.write_table", full_disk)
    with pytest.raises(OSError, match="No space left"):
        load("yacht_raw")
    assert list(cache.iterdir()) == []


def test_adult_with_categories_and_official_split(serve, trust):
    row = "39, {work}, 77516, Bachelors, 13, Never-married, {job}, Husband, White, {sex}, 2174, 0, 40, Cuba, {y}\n"
    train = row.format(work="State-gov", job="?", sex="Male", y="<=50K") + row.format(
        work="Private", job="Sales", sex="Female", y=">50K"
    )
    test = "|1x3 Cross validator\n" + row.format(work="?", job="Sales", sex="Male", y=">50K.") + "\n"
    archive = zipped(**{"adult.data": train + "\n", "adult.test": test, "adult.names": "| notes"})
    trust("adult", archive)
    serve(archive)
    data = load("adult")
    assert data.y.tolist() == [0, 1, 1]
    assert data.classes == ("<=50K", ">50K")
    assert data.official_train_rows == 2
    assert data.levels["workclass"] == ("?", "Private", "State-gov")
    assert data.X[:, data.feature_names.index("workclass")].tolist() == [2, 1, 0]
    assert data.X[:, data.feature_names.index("sex")].tolist() == [1, 0, 1]
    assert data.X[0, data.feature_names.index("fnlwgt")] == 77516


def test_abalone_classes_from_rings(serve, trust):
    rows = "".join(
        f"{sex},0.455,0.365,0.095,0.514,0.2245,0.101,0.15,{r}\n" for sex, r in ("M8", "F9", ("I", 10), ("M", 11))
    )
    archive = zipped(**{"abalone.data": rows})
    trust("abalone", archive)
    serve(archive)
    data = load("abalone")
    assert data.X[:, 0].tolist() == [0, 1, 2, 0]
    assert data.levels == {"sex": ("M", "F", "I")}
    assert (data.y.tolist(), data.classes) == ([0, 1, 1, 2], ("1-8", "9-10", "11+"))
    assert load("abalone", target="y_rings").y.tolist() == [8, 9, 10, 11]


def test_unexpected_category():
    archive = zipped(**{"abalone.data": "X,0.455,0.365,0.095,0.514,0.2245,0.101,0.15,8\n"})
    with pytest.raises(ValueError, match="unexpected value 'X', known are M, F, I"):
        parse_archive(RECIPES["abalone"], archive)


def test_winequality_has_three_targets(serve, trust):
    header = ";".join(f'"column {j}"' for j in range(12)) + "\n"
    line = ";".join(["7.4"] * 11)
    archive = zipped(
        **{"winequality-white.csv": header + f"{line};9\n{line};3\n", "winequality-red.csv": header + f"{line};5\n"}
    )
    trust("winequality", archive)
    serve(archive)
    assert load("winequality").y.tolist() == [2, 6, 0]
    assert load("winequality").classes == ("3", "4", "5", "6", "7", "8", "9")
    assert load("winequality", target="y_white").y.tolist() == [0, 1, 1]
    assert load("winequality", target="y_quality").y.tolist() == [5.0, 9.0, 3.0]
    columns, _ = parse_archive(RECIPES["wine_red"], archive)
    assert columns["y"].tolist() == [5.0]


def test_target_before_the_inputs():
    archive = zipped(**{"CASP.csv": "RMSD,F1,F2,F3,F4,F5,F6,F7,F8,F9\n17.284,1,2,3,4,5,6,7,8,9\n"})
    columns, _ = parse_archive(RECIPES["protein_raw"], archive)
    assert list(columns) == [*(f"F{i}" for i in range(1, 10)), "y"]
    assert columns["F9"].tolist() == [9]
    np.testing.assert_allclose(columns["y"], [17.284], rtol=1e-6)


def test_dropped_columns_may_hold_text():
    row = "1,2011-01-01,1,0,1,0,0,6,0,1,0.24,0.2879,0.81,0,3,13,16\n"
    columns, _ = parse_archive(RECIPES["bike_hour"], zipped(**{"hour.csv": "instant,dteday\n" + row, "day.csv": ""}))
    assert len(columns) == 13
    assert columns["y"].tolist() == [16]
    assert columns["season"].tolist() == [1]


def test_file_in_a_folder_gzipped_or_in_an_inner_archive():
    recipe = RECIPES["naval"]
    line = "   " + "   ".join(f"{value:.7e}" for value in range(18)) + "\n"
    plain = zipped(**{"UCI CBM Dataset/data.txt": line, "__MACOSX/UCI CBM Dataset/data.txt": "rubbish"})
    for archive in (
        plain,
        zipped(**{"data.txt.gz": gzip.compress(line.encode())}),
        zipped(**{"readme": "", "inner.zip": plain}),
    ):
        columns, _ = parse_archive(recipe, archive)
        assert [columns[name].item() for name in ("lever_position", "y0", "y1")] == [0, 16, 17]


@pytest.mark.parametrize("name", ["optdigits", "pendigits", "landsat", "covtype", "spambase"])
def test_class_target_of_numeric_tables(name):
    recipe = RECIPES[name]
    separator = recipe.delimiter or " "
    n_inputs = len(recipe.columns) - 1
    lines = "".join(separator.join(["  3"] * n_inputs + [label]) + "\n" for label in ("1", "0"))
    columns, facts = parse_archive(recipe, zipped(**dict.fromkeys(recipe.files, lines)))
    assert columns["y"].dtype == np.int32
    assert columns["y"].tolist() == [1, 0] * len(recipe.files)
    assert facts.official_train_rows == (2 if recipe.official else None)
    assert facts.classes["y"] == (("ham", "spam") if name == "spambase" else ("0", "1"))


def test_digest_sees_values_names_order_and_type():
    base = {"a": np.array([0.0, 1.5], dtype=np.float32), "y": np.array([0, 1], dtype=np.int32)}
    digests = {
        table_digest(columns)
        for columns in (
            base,
            {"b": base["a"], "y": base["y"]},
            {"a": base["a"][::-1], "y": base["y"]},
            {"y": base["y"], "a": base["a"]},
            {"a": base["a"], "y": base["y"].astype(np.float32)},
        )
    }
    assert len(digests) == 5
    assert table_digest({"a": np.array([-0.0, 1.5]), "y": base["y"].astype(np.int64)}) == table_digest(base)


def test_every_name_has_one_place():
    assert not set(RECIPES) & set(ORIGINS)
    assert not set(SHIPPED) & (set(RECIPES) | set(ORIGINS))
    for recipe in RECIPES.values():
        kept = [column for column in recipe.columns if column]
        assert len(set(kept)) == len(kept)
        assert len(recipe.digest) == 64
        assert set(recipe.text) <= set(kept)
