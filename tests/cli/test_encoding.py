"""From columns to features and back from a file."""

from __future__ import annotations

import numpy as np
import pytest

from candid.cli.encoding import MOST_LEVELS, Encoding
from candid.cli.tables import TextTable


def texts(*values):
    return np.array(values, dtype=object)


TABLE = TextTable(
    "table",
    {
        "size": np.array([1.0, 2.0, np.nan, 4.0]),
        "colour": texts("red", "blue", "red", None),
        "y": np.array([1.0, np.nan, 3.0, 4.0]),
    },
)


def test_numbers_and_levels():
    encoding, notes = Encoding.learn(TABLE, "y")
    assert notes == ()
    assert encoding.features == ["size", "colour=blue", "colour=red"]
    encoded = encoding.apply(TABLE)
    missing = np.nan
    np.testing.assert_array_equal(encoded.X, [[1, 0, 1], [2, 1, 0], [missing, 0, 1], [4, missing, missing]])
    np.testing.assert_array_equal(encoded.complete, [True, True, False, False])
    np.testing.assert_array_equal(encoded.y, [1, missing, 3, 4])


def test_new_rows_get_the_same_features_in_another_order_and_without_target():
    encoding, _ = Encoding.learn(TABLE, "y")
    new = TextTable("new", {"colour": texts("green", "red"), "more": texts("a", "b"), "size": np.array([5.0, 6.0])})
    encoded = encoding.apply(new)
    np.testing.assert_array_equal(encoded.X, [[5, 0, 0], [6, 0, 1]])
    assert encoded.y is None
    assert len(encoded.notes) == 1
    assert "'green'" in encoded.notes[0]


def test_columns_that_cannot_be_inputs_are_left_out():
    many = texts(*(str(number) for number in range(MOST_LEVELS + 1)))
    n = len(many)
    table = TextTable("table", {"id": many, "empty": np.full(n, np.nan), "x": np.arange(n) * 1.0, "y": np.ones(n)})
    encoding, notes = Encoding.learn(table, "y")
    assert encoding.features == ["x"]
    assert "51 levels" in notes[0]
    assert "missing" in notes[1]
    just_enough, _ = Encoding.learn(TextTable("table", {"id": many[1:], "y": np.ones(n - 1)}), "y")
    assert len(just_enough.features) == MOST_LEVELS
    with pytest.raises(ValueError, match="no column that can be an input"):
        Encoding.learn(TextTable("table", {"id": many, "y": np.ones(n)}), "y")


def test_columns_that_are_text_for_the_sake_of_a_few_cells():
    n = 40
    nearly, often = [texts(*map(str, range(n))) for _ in range(2)]
    nearly[[3, 5, 7]] = "broken", None, "broken"
    often[:5] = "broken"
    numbers = {"nearly": nearly, "often": often, "colour": texts(*["red", "blue"] * (n // 2))}
    _, notes = Encoding.learn(TextTable("table", {**numbers, "y": np.ones(n)}), "y")
    assert len(notes) == 1
    assert "'nearly' counts as text, because 2 of its 39 cells hold no number: 'broken'; mend these cells" in notes[0]


def test_file_beside_the_model(tmp_path):
    encoding, _ = Encoding.learn(TABLE, "y")
    model = tmp_path / "model.candid"
    assert Encoding.read(model) is None
    assert encoding.write(model) == tmp_path / "model.candid.json"
    assert Encoding.read(model) == encoding
    (tmp_path / "model.candid.json").write_text('{"format": "candid-columns", "version": 2, "target": "y"}')
    with pytest.raises(ValueError, match="does not describe columns"):
        Encoding.read(model)


def test_errors():
    encoding, _ = Encoding.learn(TABLE, "y")
    with pytest.raises(ValueError, match="no column 'size'"):
        encoding.apply(TextTable("new", {"colour": texts("red")}))
    with pytest.raises(ValueError, match="'size' of new must hold numbers, but it holds text: 'big'"):
        encoding.apply(TextTable("new", {"colour": texts("red"), "size": texts("big")}))
    with pytest.raises(ValueError, match="'colour' of table must hold numbers"):
        Encoding.learn(TABLE, "colour")[0].apply(TABLE)
