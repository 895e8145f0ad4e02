"""More rows for a model that is there already."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from candid import ExactGPRegressor, NeighborGPRegressor, load


def nll(gp, X, y) -> float:
    return -gp.predict_distribution(X).log_prob(y).mean()


def same(first, second) -> bool:
    ours, theirs = first.predictor_.state_dict(), second.predictor_.state_dict()
    return all(torch.equal(ours[name], theirs[name]) for name in ours | theirs)


def test_the_first_call_is_a_fit(make, table):
    assert same(make().partial_fit(*table), make().fit(*table))


def test_more_rows_improve_predictions(make, table, new_rows):
    X, y = table
    gp = make().partial_fit(X[:15], y[:15])
    before = nll(gp, *new_rows)
    assert gp.partial_fit(X[15:], y[15:]) is gp
    assert nll(gp, *new_rows) < before - 0.2


@pytest.mark.parametrize("first", [1, 2, 15])
def test_a_fit_on_a_few_rows_is_nothing_to_go_on_from(first, make, table):
    X, y = table
    gp = make().partial_fit(X[:first], y[:first]).partial_fit(X[first:], y[first:])
    assert same(gp, make().fit(X, y))


@pytest.mark.parametrize("held_out", [0.0, 0.2])
def test_rows_in_a_given_order_are_added_without_training(held_out, table):
    X, y = table
    gp = NeighborGPRegressor(objective="vecchia", ordering=np.arange(15), validation_fraction=held_out, random_state=0)
    lengthscales = gp.fit(X[:15], y[:15]).kernel_.base.lengthscale.value
    before = nll(gp, X[15:], y[15:])
    gp.partial_fit(X[15:], y[15:])
    assert torch.equal(gp.kernel_.base.lengthscale.value, lengthscales)
    assert nll(gp, X[15:], y[15:]) < before


def test_no_row_is_forgotten(table):
    X, y = table
    gp = ExactGPRegressor().partial_fit(X[:40], y[:40]).partial_fit(X[40:70], y[40:70]).partial_fit(X[70:], y[70:])
    whole = ExactGPRegressor().fit(X, y)
    assert gp.predictor_.inner.n_points == 120
    np.testing.assert_allclose(gp.predict(X), whole.predict(X), atol=0.05 * y.std())


def test_it_goes_on_from_where_it_was(make, kind, table):
    if kind is NeighborGPRegressor:
        pytest.skip("adds rows without training")
    gp = make().fit(*table)
    fitted = gp.history_[-1]["loss"]
    gp.partial_fit(*(part[:1] for part in table))
    assert gp.history_[0]["loss"] == pytest.approx(fitted, abs=0.1)


@pytest.mark.parametrize("points", ["few", "given"])
def test_a_trained_model_is_kept(points, quick, table):
    """Neither the inducing points nor q(u) of a trained model are thrown away when a row arrives."""
    choice = {"n_inducing": 15} if points == "few" else {"init": table[0][:15]}
    gp = quick(max_epochs=60, lr=0.02, **choice).fit(*table)
    before = gp.predict(table[0], return_std=True)
    gp.set_params(max_epochs=0).partial_fit(*(part[:1] for part in table))
    np.testing.assert_array_equal(np.stack(gp.predict(table[0], return_std=True)), np.stack(before))


@pytest.mark.parametrize("change", [{"kernel": "rbf"}, {"mean": "zero"}, {"covariance": "diagonal"}])
def test_parameters_that_shape_the_model_must_stay(change, quick, table):
    gp = quick().fit(*table).set_params(**change)
    with pytest.raises(ValueError, match="has changed since the model was fitted; call fit"):
        gp.partial_fit(*table)


def test_held_out_rows_stay_held_out(quick, table):
    X, y = table
    gp = quick(validation_fraction=0.2).fit(X[:80], y[:80])
    apart = {tuple(row) for row in gp._fitted.held_out.x}
    gp.partial_fit(X[80:], y[80:])
    assert apart < {tuple(row) for row in gp._fitted.held_out.x}
    assert not apart & {tuple(row) for row in gp._fitted.training.x}


def test_a_buffer_may_be_used_again(make, table):
    X, y = table
    buffers = X[:60].copy(), y[:60].copy()
    gp = make().partial_fit(*buffers)
    buffers[0][:], buffers[1][:] = X[60:], y[60:]
    gp.partial_fit(*buffers)
    assert same(gp, make().partial_fit(X[:60], y[:60]).partial_fit(X[60:], y[60:]))


def test_weights_and_known_noise_are_kept(table):
    X, y = table
    weight, alpha = np.linspace(1.0, 3.0, 120), np.linspace(4.0, 9.0, 120)
    gp = ExactGPRegressor(alpha=alpha[:60]).partial_fit(X[:60], y[:60], weight[:60])
    gp.set_params(alpha=alpha[60:]).partial_fit(X[60:], y[60:], weight[60:])
    assert gp.noise_**2 == pytest.approx(np.average(alpha, weights=weight))
    assert gp._fitted.training.weight.sum() == pytest.approx(weight.sum())


def test_other_tables_are_refused(make, table):
    X, y = table
    gp = make().fit(X, y)
    with pytest.raises(ValueError, match="expecting 3 features"):
        gp.partial_fit(X[:, :2], y)
    with pytest.raises(ValueError, match=r"fitted on 1 target\(s\), these rows have 2"):
        gp.partial_fit(X, np.column_stack([y, y]))
    with pytest.raises(ValueError, match="alpha must be set for all rows"):
        gp.set_params(alpha=1.0).partial_fit(X, y)


def test_a_run_that_is_broken_off_leaves_the_model_as_it_was(quick, table, new_rows):
    def interrupt(record):
        raise KeyboardInterrupt

    gp = quick().fit(*table)
    before = gp.predict(new_rows[0])
    again = quick().fit(*table).partial_fit(*new_rows)
    with pytest.raises(KeyboardInterrupt):
        gp.set_params(callbacks=(interrupt,)).partial_fit(*new_rows)
    np.testing.assert_array_equal(gp.predict(new_rows[0]), before)
    assert same(gp.set_params(callbacks=()).partial_fit(*new_rows), again)


def test_a_loaded_model_is_fitted_anew(make, kind, table, new_rows, tmp_path):
    if kind is NeighborGPRegressor:
        pytest.skip("has the training rows in its file")
    make().fit(*table).save(tmp_path / "model.candid")
    loaded = load(tmp_path / "model.candid")
    assert same(loaded.partial_fit(*new_rows), make().fit(*new_rows))
