"""Every public number is in the units of the table, whatever training standardises."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch

from candid import ExactGPRegressor, make_gp
from candid.kernels import RBF, Linear, Matern52, Periodic


def in_other_units(X, y):
    """A map of the table that standardisation undoes."""
    return X * [1000.0, 0.02, 3.0] + [5.0, -7.0, 0.0], 25.0 * y - 300.0


def test_a_change_of_units_changes_nothing_but_units(make, table, new_rows):
    gp, other = make().fit(*table), make().fit(*in_other_units(*table))
    X_other, y_other = in_other_units(*new_rows)
    ours, theirs = gp.predict_distribution(new_rows[0]), other.predict_distribution(X_other)
    # float32 training keeps about five digits of the difference in rounding.
    np.testing.assert_allclose(theirs.mean, 25.0 * ours.mean - 300.0, rtol=1e-3)
    np.testing.assert_allclose(theirs.std, 25.0 * ours.std, rtol=2e-3)
    assert other.noise_ == pytest.approx(25.0 * gp.noise_, rel=2e-3)
    lengths = [parameter.base.lengthscale.value.detach().squeeze() for parameter in (gp.kernel_, other.kernel_)]
    np.testing.assert_allclose(lengths[1][:2], lengths[0][:2] * torch.tensor([1000.0, 0.02]), rtol=1e-2)
    # Densities of y change by the factor 25.
    assert theirs.log_prob(y_other).mean() == pytest.approx(ours.log_prob(new_rows[1]).mean() - np.log(25.0), abs=1e-3)
    assert other.history_[-1]["loss"] == pytest.approx(gp.history_[-1]["loss"] + np.log(25.0), abs=1e-3)


@pytest.mark.parametrize(
    "kernel",
    [
        "matern52",
        "rbf + linear",
        "rq * periodic",
        "linear",
        Matern52(),
        RBF() * Linear(),
        RBF(lengthscale=2.0) + Periodic(),
    ],
    ids=str,
)
def test_the_fitted_kernel_is_in_the_units_of_the_table(kernel, table):
    """An exact GP that is rebuilt by hand from ``kernel_`` and ``noise_`` predicts what the model predicts."""
    X, y = table
    gp = ExactGPRegressor(kernel=kernel, mean="zero", max_epochs=3).fit(X, y)
    rows = torch.as_tensor(X - X.mean(0))
    with torch.no_grad():
        K = gp.kernel_(rows)[0].numpy()
        cross = gp.kernel_(rows[:5] + 0.1 * rows.std(0), rows)[0].numpy()
        prior = gp.kernel_.diagonal(rows[:5] + 0.1 * rows.std(0))[0].numpy()
    solved = np.linalg.solve(K + gp.noise_**2 * np.eye(len(y)), np.column_stack([y - y.mean(), cross.T]))
    p = gp.predict_distribution(X[:5] + 0.1 * rows.std(0).numpy())
    np.testing.assert_allclose(p.mean - y.mean(), cross @ solved[:, 0], rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(
        p.latent_std**2, prior - (cross * solved[:, 1:].T).sum(1), rtol=1e-4, atol=1e-6 * prior.max()
    )


def test_history_of_standardised_targets_is_in_the_units_of_y(table):
    """The last loss of an exact fit is the negative log marginal likelihood per row of the model as reported."""
    X, y = table
    gp = ExactGPRegressor(mean="zero").fit(X, y)
    with torch.no_grad():
        K = gp.kernel_(torch.as_tensor(X - X.mean(0)))[0].numpy() + gp.noise_**2 * np.eye(len(y))
    r = y - y.mean()
    evidence = -0.5 * (r @ np.linalg.solve(K, r) + np.linalg.slogdet(K)[1] + len(y) * np.log(2 * np.pi))
    assert gp.history_[-1]["loss"] == pytest.approx(-evidence / len(y), abs=1e-3)


def test_a_standardised_table_needs_no_standardising(quick, table, new_rows):
    X, y = table
    shift, scale = X.mean(0), X.std(0)
    by_hand = quick(standardize=False).fit((X - shift) / scale, (y - y.mean()) / y.std())
    ours = quick().fit(X, y)
    wanted = y.mean() + y.std() * by_hand.predict((new_rows[0] - shift) / scale)
    np.testing.assert_allclose(ours.predict(new_rows[0]), wanted, rtol=1e-3)
    assert ours.noise_ == pytest.approx(by_hand.noise_ * y.std(), rel=1e-3)
    difference = ours.history_[-1]["loss"] - by_hand.history_[-1]["loss"]
    assert difference == pytest.approx(np.log(y.std()), abs=1e-3)


def test_validation_nll_is_in_the_units_of_y(quick, table):
    X, y = table
    ours, scaled = (quick(validation_fraction=0.2).fit(X, target) for target in (y, 10.0 * y))
    difference = scaled.history_[-1]["validation_nll"] - ours.history_[-1]["validation_nll"]
    assert difference == pytest.approx(np.log(10.0), abs=1e-2)


def test_the_noise_is_found_in_the_units_of_y():
    rng = np.random.default_rng(0)
    X = rng.uniform(-3, 3, size=(300, 1))
    y = 1000.0 * np.sin(X[:, 0]) + 40.0 * rng.normal(size=300)
    assert ExactGPRegressor().fit(X, y).noise_ == pytest.approx(40.0, rel=0.15)


@pytest.mark.parametrize("method", ["svgp", "loo-k"])
@pytest.mark.parametrize(("scale", "offset"), [(1.0, 1000.0), (1e4, 1e7)])
def test_targets_that_are_not_standardised_may_be_far_from_zero(method, scale, offset):
    """On more rows than an exact likelihood is fitted to, where steps of a usual length lead to a start."""
    generator = np.random.default_rng(0)
    X = generator.uniform(-2, 2, size=(700, 1))
    y = np.sin(2 * X[:, 0]) + 0.05 * generator.normal(size=700)
    options = {"n_inducing": 20} if method == "svgp" else {}
    gp = make_gp(method, standardize=False, random_state=0, max_epochs=5, **options).fit(X, scale * y + offset)
    assert np.sqrt(np.mean((gp.predict(X) - scale * y - offset) ** 2)) < 0.07 * scale
    assert 0.03 * scale < gp.noise_ < 0.1 * scale


@pytest.mark.parametrize("method", ["svgp", "loo-k", "exact"])
def test_small_targets_want_to_be_standardised(method, table):
    """The least noise is an absolute one; who brings y as it is hears of it."""
    X, y = (part[:40] for part in table)
    X = (X - X.mean(0)) / X.std(0)
    small = 0.05 * (y - y.mean()) / y.std()
    fit = {"random_state": 0, "verbose": False, "standardize": False}
    with pytest.warns(UserWarning, match=r"standard deviation of 0\.05 only.*standardize=True"):
        make_gp(method, **fit).fit(X, small)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        make_gp(method, **fit).fit(X, 4 * small)
        make_gp(method, **fit | {"standardize": True}).fit(X, small)
        make_gp(method, **fit | {"alpha": 1e-4}).fit(X, small)
        # It varies by nothing at all, in a unit of its own.
        make_gp(method, **fit).fit(X, np.ones(40))
