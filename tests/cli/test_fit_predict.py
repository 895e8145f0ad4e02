"""``candid fit`` and ``candid predict``."""

from __future__ import annotations

import numpy as np
import pytest

from candid import ExactGPRegressor, load
from candid.cli.fit import _parsed
from candid.cli.tables import read_table

COLUMNS = ["price", "colour", "doors", "one", "weight"]


@pytest.fixture
def fitted(candid, cars, tmp_path):
    result = candid("fit", cars, "--target", "price", "--method", "exact", "--output", "models/m.candid")
    assert result.exit_code == 0, result.output
    assert "fitted to 58 rows and 5 features" in result.stdout
    return tmp_path / "models" / "m.candid"


def test_predictions_of_new_rows(candid, fitted, write, tmp_path):
    new = write(
        "new.csv",
        COLUMNS,
        [[23.0, "red", 3, 1, 1.2], ["", "green", 5, 1, 1.2], [20.0, "blue", 3, 1, ""], [21.0, "blue", 5, 1, 1.2]],
    )
    result = candid("predict", fitted, new)
    assert result.exit_code == 0, result.output
    columns = read_table(tmp_path / "predictions.csv").columns
    assert list(columns) == ["mean", "std", "lower", "upper"]
    model = load(fitted)
    # Features are colour=blue, colour=red, doors, one, weight; a level that was never seen is neither.
    p = model.predict_distribution([[0, 1, 3, 1, 1.2], [0, 0, 5, 1, 1.2], [1, 0, 5, 1, 1.2]])
    rows = [0, 1, 3]
    np.testing.assert_allclose(columns["mean"][rows], p.mean, rtol=1e-12)
    np.testing.assert_allclose(columns["std"][rows], p.std, rtol=1e-12)
    np.testing.assert_allclose([columns["lower"][rows], columns["upper"][rows]], p.interval(0.95), rtol=1e-12)
    assert all(np.isnan(values[2]) for values in columns.values())
    assert "'green'" in result.stdout
    assert "1 prediction left empty" in result.stdout
    assert "2 rows with a known target" in result.stdout
    assert "NLL" in result.stdout


def test_predictions_without_target(candid, fitted, write, tmp_path):
    new = write("new.csv", COLUMNS[1:], [["red", 3, 1, 1.2]])
    result = candid("predict", fitted, new, "--output", "p.parquet")
    assert result.exit_code == 0, result.output
    assert "NLL" not in result.stdout
    assert len(read_table(tmp_path / "p.parquet")) == 1


def test_settings_reach_the_estimator(candid, cars, tmp_path):
    result = candid(
        *("fit", cars, "--target", "price", "--method", "svgp", "--seed", 5, "--time-budget", 9),
        *("--set", "n_inducing=7", "--set", "kernel=rbf", "--set", "ard=false", "--set", "max_epochs=2"),
    )
    assert result.exit_code == 0, result.output
    parameters = load(tmp_path / "model.candid").get_params()
    expected = {"n_inducing": 7, "kernel": "rbf", "ard": False, "max_epochs": 2, "random_state": 5, "time_budget": 9}
    assert {name: parameters[name] for name in expected} == expected
    assert parameters["objective"] == "elbo"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a=1", 1),
        ("a=1e-3", 1e-3),
        ("a=none", None),
        ("a=True", True),
        ("a=x + y", "x + y"),
        ("a=(1, 2)", (1, 2)),
        ("a=", ""),
    ],
)
def test_values_of_settings(text, value):
    assert _parsed(text) == ("a", value)


def test_models_from_python(candid, write, tmp_path):
    pandas = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    frame = pandas.DataFrame(rng.normal(size=(20, 2)), columns=["b", "a"])
    ExactGPRegressor(max_epochs=1).fit(frame, frame["a"]).save(tmp_path / "named.candid")
    ExactGPRegressor(max_epochs=1).fit(frame.to_numpy(), frame["a"]).save(tmp_path / "plain.candid")
    new = write("new.csv", ["a", "b"], [[1, 2]])
    for name, inputs in (("named", [[2, 1]]), ("plain", [[1, 2]])):
        result = candid("predict", tmp_path / f"{name}.candid", new)
        assert result.exit_code == 0, result.output
        mean = read_table(tmp_path / "predictions.csv").columns["mean"]
        model = load(tmp_path / f"{name}.candid")
        inputs = pandas.DataFrame(inputs, columns=["b", "a"]) if name == "named" else inputs
        np.testing.assert_allclose(mean, model.predict(inputs), rtol=1e-12)
    result = candid("predict", tmp_path / "plain.candid", write("wide.csv", ["a", "b", "c"], [[1, 2, 3]]))
    assert result.exit_code == 2
    assert "fitted on 2 features without names" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["fit", "cars.csv", "--set", "n_indcing=3"], "no parameter 'n_indcing'"),
        (["fit", "cars.csv", "--set", "n_inducing"], "--set takes key=value"),
        (["fit", "cars.csv", "--target", "price", "--set", "n_inducing=many"], "n_inducing"),
        (["fit", "cars.csv", "--target", "price", "--method", "exakt"], "did you mean exact"),
        (["fit", "cars.csv", "--target", "price", "--method", "pgvi"], "pgvi is for classification"),
        (["fit", "cars.csv", "--target", "price", "--set", "task=classification"], "commands are for regression"),
        (
            ["fit", "cars.csv", "--target", "price", "--method", "svgp-dkl", "--set", "features=(8, 'a')"],
            "of the wrong kind: features are a name",
        ),
        (["fit", "cars.csv", "--target", "price", "--output", "."], "--output is the file of the model"),
        (["compare", "cars.csv", "--target", "price", "--methods", "svgp,pgvi"], "pgvi is for classification"),
        (["predict", "none.candid", "cars.csv"], "there is no model file none.candid"),
        (["predict", "cars.csv", "cars.csv"], "not a candid model"),
    ],
)
def test_errors_are_one_line(candid, cars, arguments, message):
    result = candid(*arguments)
    assert result.exit_code == 2
    assert result.stderr.startswith("Error: ")
    assert result.stderr.count("\n") == 1
    assert message in result.stderr


def test_missing_columns(candid, fitted, write):
    result = candid("predict", fitted, write("new.csv", ["colour", "Doors", "one", "weight"], [["red", 3, 1, 1.2]]))
    assert result.exit_code == 2
    assert "no column 'doors'. Did you mean 'Doors'?" in result.stderr
