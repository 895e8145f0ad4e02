"""More rows for models of neighbours that come from a file."""

from __future__ import annotations

import numpy as np
import pytest

from candid import NeighborGPClassifier, NeighborGPRegressor, load

SHORT = {"n_neighbors": 12, "max_epochs": 3, "random_state": 0}


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(120, 2)) * [1.0, 50.0]
    return X, np.sin(2 * X[:, 0]) + 0.02 * X[:, 1] + 0.1 * rng.normal(size=120)


def targets(likelihood: str, y: np.ndarray) -> np.ndarray:
    return {"binomial": np.clip(np.round(4 + 2 * y), 0, 8), "negative-binomial": np.round(np.exp(y + 1))}.get(
        likelihood, 100 + 7 * y
    )


def grown_both_ways(gp, path, X, y):
    """A model that more rows were added to, and the same from a file."""
    gp.save(path)
    return gp.partial_fit(X, y), load(path).partial_fit(X, y)


@pytest.mark.parametrize("likelihood", ["gaussian", "student-t", "binomial", "negative-binomial"])
def test_regression(likelihood, rows, tmp_path):
    X, y = rows[0], targets(likelihood, rows[1])
    trials = {"n_trials": 8} if likelihood == "binomial" else {}
    gp = NeighborGPRegressor(likelihood=likelihood, **trials, **SHORT).fit(X[:60], y[:60])
    before = gp.predict(X[100:])
    here, loaded = grown_both_ways(gp, tmp_path / "model.candid", X[60:100], y[60:100])
    np.testing.assert_allclose(loaded.predict(X[100:]), here.predict(X[100:]), rtol=1e-6)
    assert len(loaded._inner.rows.x) == 100
    assert np.abs(loaded.predict(X[100:]) - before).max() > 1e-3


@pytest.mark.parametrize("n_classes", [2, 3])
def test_classification(n_classes, rows, tmp_path):
    X, y = rows[0], np.array(["a", "b", "c"])[np.digitize(rows[1], [-0.3, 0.3] if n_classes == 3 else [0.0])]
    gp = NeighborGPClassifier(**SHORT).fit(X[:60], y[:60])
    here, loaded = grown_both_ways(gp, tmp_path / "model.candid", X[60:100], y[60:100])
    np.testing.assert_allclose(loaded.predict_proba(X[100:]), here.predict_proba(X[100:]), rtol=1e-6)
    with pytest.raises(ValueError, match="not among the classes"):
        loaded.partial_fit(X[:2], ["a", "z"])


def test_several_targets_known_noise_and_features(rows, tmp_path):
    X, Y = rows[0], np.column_stack([rows[1], 1000 - 30 * rows[1]])
    gp = NeighborGPRegressor(alpha=0.01, features=(4, 2), **SHORT).fit(X[:60], Y[:60])
    here, loaded = grown_both_ways(gp, tmp_path / "model.candid", X[60:100], Y[60:100])
    np.testing.assert_allclose(loaded.predict(X[100:]), here.predict(X[100:]), rtol=1e-6)


@pytest.mark.parametrize("n_latents", [1, 2])
def test_outputs_that_share_latent_functions(n_latents, rows, tmp_path):
    X, Y = rows[0], np.column_stack([rows[1], 1000 - 30 * rows[1]])
    Y[::3, 0] = np.nan
    gp = NeighborGPRegressor(outputs="coregionalised", n_latents=n_latents, **SHORT).fit(X[:60], Y[:60])
    before = gp.predict(X[100:])
    here, loaded = grown_both_ways(gp, tmp_path / "model.candid", X[60:100], Y[60:100])
    np.testing.assert_allclose(loaded.predict(X[100:]), here.predict(X[100:]), rtol=1e-6)
    assert np.abs(loaded.predict(X[100:]) - before).max() > 1e-3
    with pytest.raises(ValueError, match=r"fitted on 2 target\(s\), these rows have 3"):
        loaded.partial_fit(X[:5], np.column_stack([Y, Y[:, 0]])[:5])


def test_other_tables_and_other_shapes_are_refused(rows, tmp_path):
    X, y = rows
    NeighborGPRegressor(**SHORT).fit(X[:40], y[:40]).save(tmp_path / "model.candid")
    loaded = load(tmp_path / "model.candid")
    with pytest.raises(ValueError, match=r"fitted on 1 target\(s\), these rows have 2"):
        loaded.partial_fit(X[:5], np.column_stack([y, y])[:5])
    with pytest.raises(ValueError, match="kernel has changed since the model was fitted"):
        loaded.set_params(kernel="rbf").partial_fit(X[:5], y[:5])
