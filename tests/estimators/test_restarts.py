"""Restarts, held-out rows and the noise that is known of them."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

from candid import ExactGPRegressor, SparseGPRegressor, make_gp
from candid.estimators import fitting
from candid.metrics import nll
from candid.priors import LogNormal


@pytest.mark.parametrize("patience", [None, 3])
def test_the_run_with_the_best_held_out_nll_is_kept(patience, quick, table, monkeypatch):
    reached = []
    original = fitting.reached

    def remember(history, patience):
        reached.append(original(history, patience))
        return reached[-1]

    monkeypatch.setattr(fitting, "reached", remember)
    gp = quick(n_restarts=3, validation_fraction=0.3, patience=patience, lr=0.1).fit(*table)
    kept = [record["validation_nll"] for record in gp.history_]
    assert len(reached) == 3
    assert min(reached) == (min(kept) if patience else kept[-1])
    # The kept model is the one that was scored: its NLL on the held-out rows is the score.
    held_out = gp._fitted.held_out
    assert nll(held_out.y[:, 0], gp.predict_distribution(held_out.x)) == pytest.approx(min(reached), abs=1e-3)


def test_restarts_begin_at_hyperparameters_elsewhere_with_their_own_closed_form(table):
    gp = SparseGPRegressor(n_inducing=20, max_epochs=0, n_restarts=3, random_state=0)
    losses = []
    gp.set_params(callbacks=(lambda record: losses.append(record["loss"]),)).fit(*table)
    assert len(losses) == 3
    # Every start is a good one, because hyper-parameters and q(u) are fitted after the move.
    assert max(losses) - min(losses) < 0.3


def test_held_out_rows_have_their_own_known_noise(table):
    X, y = table
    alpha = np.where(np.arange(len(y)) % 2, 1e-2, 4.0) * y.var()
    gp = ExactGPRegressor(alpha=alpha, validation_fraction=0.3, random_state=0).fit(X, y)
    held_out = gp._fitted.held_out
    expected = nll(held_out.y[:, 0], gp.predict_distribution(held_out.x, alpha=held_out.noise[:, 0]))
    assert gp.history_[-1]["validation_nll"] == pytest.approx(expected, abs=1e-6)


def test_average_known_noise_counts_every_row(table):
    X, y = table
    alpha = np.where(np.arange(len(y)) < 100, 1.0, 10.0)
    again = np.concatenate([np.arange(len(y)), np.zeros(60, dtype=int)])
    gp = ExactGPRegressor(alpha=alpha[again], max_epochs=1).fit(X[again], y[again])
    assert gp.noise_**2 == pytest.approx(alpha[again].mean())


def test_patience_needs_held_out_rows(quick, table):
    with pytest.raises(ValueError, match="set validation_fraction as well"):
        quick(patience=3).fit(*table)


@pytest.mark.parametrize("name", ["exact", "svgp", "ppgpr-chol"])
def test_a_prior_on_the_noise_holds_for_every_method(name, table):
    X, y = table
    gp = make_gp(name, priors={"noise": LogNormal(0.05, 1e-3)}, random_state=0).fit(X, y)
    assert (gp.noise_ / y.std()) ** 2 == pytest.approx(0.05, rel=0.05)


@pytest.mark.parametrize("init", ["kmeans", "random"])
def test_a_cold_start_learns(init, table):
    X, y = table
    assert SparseGPRegressor(init=init, n_inducing=20, max_epochs=100, random_state=0).fit(X, y).score(X, y) > 0.8


def test_points_of_ones_own_are_a_warm_start(table):
    X, y = table
    gp = SparseGPRegressor(init=X[:20], max_epochs=0, random_state=0).fit(X, y)
    assert gp.score(X, y) > 0.8
    np.testing.assert_allclose(
        gp.predictor_.inner.points[0].numpy() * X.std(0) + X.mean(0), X[:20], rtol=1e-4, atol=1e-4
    )


def test_the_same_seed_places_the_same_points_with_many_threads():
    """k-means of scikit-learn adds up in a random order where it has three threads or more."""
    script = (
        "import numpy as np\n"
        "from candid.engines import place_points\n"
        "x = np.random.default_rng(0).normal(size=(6000, 4))\n"
        "print(len({place_points(x, 40, 'kmeans', 0).tobytes() for _ in range(8)}))"
    )
    many = {**os.environ, "OMP_NUM_THREADS": "4"}
    found = subprocess.run([sys.executable, "-c", script], env=many, capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "1"
