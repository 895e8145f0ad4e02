"""Regression from nearest neighbours with Student's t noise."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from candid import NeighborGPRegressor, SparseGPRegressor, load
from candid.estimators.start import Start
from candid.likelihoods import StudentTSites
from candid.predictive import PredictiveStudentT

quick = partial(NeighborGPRegressor, likelihood="student-t", n_neighbors=20, random_state=0)


@pytest.fixture(scope="module")
def table():
    """200 rows, each tenth of them an outlier, and the function without noise."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 2))
    f = 30 * np.sin(2 * X[:, 0]) + 15 * X[:, 1] + 100
    y = f + 3 * rng.normal(size=200)
    y[::10] += 120 * rng.choice([-1, 1], 20)
    return X, y, f


@pytest.fixture(scope="module")
def fitted(table):
    X, y, _ = table
    return quick().fit(X[:150], y[:150])


def error(gp, X, f) -> float:
    return float(np.sqrt(np.mean((gp.predict(X) - f) ** 2)))


def nll(gp, X, y) -> float:
    return float(-gp.predict_distribution(X).log_prob(y).mean())


def test_outliers_do_not_mislead(fitted, table):
    X, y, f = table
    normal = quick(likelihood="gaussian").fit(X[:150], y[:150])
    assert isinstance(fitted.predict_distribution(X), PredictiveStudentT)
    assert error(fitted, X[150:], f[150:]) < 0.8 * error(normal, X[150:], f[150:])
    assert nll(fitted, X[150:], y[150:]) < nll(normal, X[150:], y[150:]) - 0.3


def test_outliers_are_found(fitted, table):
    """Their precision is the least; rows of a table are sorted."""
    X, y, f = table
    order = np.lexsort((y[:150], X[:150, 1], X[:150, 0]))
    precision = 1 / fitted._inner.noise.numpy().squeeze(-1)
    outlying = (np.abs(y - f) > 60)[:150][order]
    assert np.median(precision[outlying]) < 0.8 * np.median(precision[~outlying])


def rows_with_gross_outliers(share):
    """A smooth function of 150 rows with noise of deviation 0.1, and outliers a hundred times farther away."""
    rng = np.random.default_rng(1)
    X = rng.uniform(-2, 2, size=(150, 2))
    f = np.sin(3 * X[:, 0]) + 0.5 * np.cos(2 * X[:, 1])
    outlying = rng.permutation(150) < share * 150
    y = f + 0.1 * rng.normal(size=150) + outlying * 10 * rng.choice([-1, 1], 150) * rng.uniform(0.5, 1.5, 150)
    return X, y, f


@pytest.mark.parametrize("make", [quick, partial(SparseGPRegressor, likelihood="student-t", random_state=0)])
def test_training_starts_without_gross_outliers(make):
    X, y, f = rows_with_gross_outliers(0.1)
    assert error(make(max_epochs=5).fit(X, y), X, f) < 0.2


def test_an_outlier_that_stands_alone_is_not_believed():
    """Nothing is near that would contradict it, and the other rows say only that it is too far away."""
    X, y, _ = rows_with_gross_outliers(0.05)
    X = np.vstack([X, [[4.0, 4.0]]])
    gp = quick(max_epochs=5).fit(X, np.append(y, 15.0))
    assert abs(gp.predict([[4.0, 4.0]])[0]) < 3


def test_without_outliers_nothing_changes(monkeypatch):
    """The fit is that of a start that looks for none."""
    X, y, _ = rows_with_gross_outliers(0.0)
    found = quick(max_epochs=5).fit(X, y).predict(X)
    monkeypatch.setattr(Start, "_without_outliers", lambda *_: None)
    monkeypatch.setattr(StudentTSites, "begin", lambda *_: None)
    np.testing.assert_array_equal(found, quick(max_epochs=5).fit(X, y).predict(X))


def test_given_degrees_of_freedom_stay(table):
    X, y, _ = table
    gp = quick(freedom=3.0, max_epochs=2).fit(X, y)
    assert float(gp._fitted.problem.likelihood.freedom.value) == pytest.approx(3.0, rel=1e-6)


def test_more_rows_and_files(tmp_path, table):
    X, y, f = table
    gp = quick(max_epochs=20).fit(X[:60], y[:60])
    before = error(gp, X[150:], f[150:])
    gp.partial_fit(X[60:150], y[60:150])
    assert error(gp, X[150:], f[150:]) < before
    gp.save(tmp_path / "model.candid")
    np.testing.assert_array_equal(load(tmp_path / "model.candid").predict(X), gp.predict(X))


def test_what_does_not_go_together_is_said(table):
    X, y, _ = table
    with pytest.raises(ValueError, match="alpha is a variance of normal noise"):
        quick(alpha=0.1).fit(X, y)
    with pytest.raises(ValueError, match="does not go with likelihood='student-t'; use objective='loo'"):
        quick(objective="vecchia").fit(X, y)
    with pytest.raises(ValueError, match=r"no 'probit' likelihood; use likelihood='gaussian' or .* a classifier"):
        quick(likelihood="probit").fit(X, y)
