"""Tables of every kind in: numpy, pandas, polars, torch, lists."""

from __future__ import annotations

import numpy as np
import pandas
import polars
import pytest
import torch
from sklearn.compose import ColumnTransformer
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from candid import ExactGPRegressor, kernels
from candid.metrics import crps, crps_scorer, nll, nll_scorer, rmse_scorer

NAMES = ["angle", "height", "mass"]


@pytest.fixture(scope="module")
def expected(quick, table, new_rows):
    return quick().fit(*table).predict(new_rows[0], return_std=True)


@pytest.mark.parametrize(
    "make",
    [
        lambda X: pandas.DataFrame(X, columns=NAMES),
        lambda X: polars.DataFrame(X, schema=NAMES),
        torch.as_tensor,
        lambda X: torch.tensor(X, requires_grad=True),
        lambda X: X.tolist(),
        np.asfortranarray,
    ],
    ids=["pandas", "polars", "torch", "torch with gradients", "lists", "fortran"],
)
def test_every_kind_of_table_gives_the_same_predictions(make, quick, table, new_rows, expected):
    X, y = table
    gp = quick().fit(make(X), y)
    mean, std = gp.predict(make(new_rows[0]), return_std=True)
    np.testing.assert_array_equal(mean, expected[0])
    np.testing.assert_array_equal(std, expected[1])
    assert isinstance(mean, np.ndarray)


@pytest.mark.parametrize(
    "make", [pandas.Series, polars.Series, torch.as_tensor, list], ids=["pandas", "polars", "torch", "list"]
)
def test_every_kind_of_target(make, quick, table, new_rows, expected):
    X, y = table
    gp = quick().fit(X, make(y), sample_weight=make(np.ones(len(y))))
    np.testing.assert_array_equal(gp.predict(new_rows[0]), expected[0])


def test_integers_and_single_precision(quick, table):
    X, y = table
    rough = np.round(X * [10.0, 1.0, 1000.0])
    wanted = quick().fit(rough, y).predict(rough)
    np.testing.assert_array_equal(quick().fit(rough.astype(int), y).predict(rough.astype(int)), wanted)
    np.testing.assert_array_equal(quick().fit(rough.astype(np.float32), y).predict(rough), wanted)


@pytest.mark.parametrize("frame", [pandas.DataFrame, polars.DataFrame])
def test_feature_names_are_kept_and_checked(frame, quick, table):
    X, y = table
    named = frame(dict(zip(NAMES, X.T, strict=True)))
    gp = quick(max_epochs=1).fit(named, y)
    assert list(gp.feature_names_in_) == NAMES
    assert gp.n_features_in_ == 3
    with pytest.raises(ValueError, match="feature names should match"):
        gp.predict(frame(dict(zip(["angle", "height", "weight"], X.T, strict=True))))
    with pytest.raises(ValueError, match="feature names should match"):
        gp.predict(frame(dict(zip(NAMES[::-1], X.T[::-1], strict=True))))
    with pytest.warns(UserWarning, match="does not have valid feature names"):
        gp.predict(X)


def test_the_callers_arrays_are_left_alone(kind, table):
    X, y = (part.copy() for part in table)
    weight = np.linspace(0.5, 2.0, len(y))
    kind(random_state=0).fit(X, y, weight)
    np.testing.assert_array_equal(X, table[0])
    np.testing.assert_array_equal(y, table[1])
    np.testing.assert_array_equal(weight, np.linspace(0.5, 2.0, len(y)))


def test_read_only_arrays(kind, table):
    X, y = (part.copy() for part in table)
    weight = np.ones(len(y))
    for part in (X, y, weight):
        part.flags.writeable = False
    assert np.isfinite(kind(random_state=0).fit(X, y, weight).predict(X)).all()


def test_in_a_pipeline(quick, table, new_rows, expected):
    pipeline = make_pipeline(StandardScaler(), quick()).fit(*table)
    np.testing.assert_allclose(pipeline.predict(new_rows[0]), expected[0], rtol=1e-3)
    _, std = pipeline.predict(new_rows[0], return_std=True)
    np.testing.assert_allclose(std, expected[1], rtol=1e-2)
    assert nll_scorer(pipeline, *new_rows) == pytest.approx(
        -nll(new_rows[1], pipeline[-1].predict_distribution(pipeline[:-1].transform(new_rows[0])))
    )


def test_encoded_categories_in_a_pipeline(quick):
    rng = np.random.default_rng(0)
    kinds = rng.choice(["a", "b", "c"], size=90)
    frame = pandas.DataFrame({"kind": kinds, "x": rng.normal(size=90)})
    y = frame["x"] + 5.0 * (kinds == "b") + 0.1 * rng.normal(size=90)
    encode = ColumnTransformer([("kind", OneHotEncoder(sparse_output=False), ["kind"])], remainder="passthrough")
    pipeline = make_pipeline(encode, quick(n_inducing=90)).fit(frame, y)
    assert pipeline.score(frame, y) > 0.9


@pytest.mark.parametrize(("scorer", "metric"), [(nll_scorer, nll), (crps_scorer, crps)])
def test_grid_search_with_scorers_of_distributions(scorer, metric, table, new_rows):
    search = GridSearchCV(
        ExactGPRegressor(max_epochs=5), {"kernel": ["matern52", "linear", kernels.RBF()]}, scoring=scorer, cv=3
    ).fit(*table)
    # The function is not linear.
    assert search.best_params_["kernel"] != "linear"
    assert search.best_score_ == max(search.cv_results_["mean_test_score"])
    assert search.score(*new_rows) == pytest.approx(
        -metric(new_rows[1], search.best_estimator_.predict_distribution(new_rows[0]))
    )


def test_cross_validation_of_nested_parameters(quick, table):
    pipeline = make_pipeline(StandardScaler(), quick())
    pipeline.set_params(sparsegpregressor__n_inducing=5)
    scores = cross_val_score(pipeline, *table, scoring=rmse_scorer, cv=3)
    assert (scores < 0).all()
    assert (scores > -table[1].std()).all()
