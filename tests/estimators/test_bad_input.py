"""Input that cannot be right gets an error that says so; input that is only odd gets a sensible model."""

from __future__ import annotations

import warnings

import numpy as np
import pandas
import pytest
import torch
from scipy import sparse

from candid import ExactGPRegressor, SparseGPRegressor, make_gp
from candid.methods import METHODS


def sensible(gp, X) -> bool:
    p = gp.predict_distribution(X)
    return bool(np.isfinite(p.mean).all() and np.isfinite(p.std).all() and (p.std > 0).all())


@pytest.mark.parametrize(
    ("value", "message"), [(np.nan, "contains NaN"), (np.inf, "contains infinity"), (-np.inf, "contains infinity")]
)
def test_missing_and_infinite_numbers(value, message, make, table):
    X, y = (part.copy() for part in table)
    fitted = make().fit(X, y)
    X[3, 1] = value
    with pytest.raises(ValueError, match=f"Input X {message}"):
        make().fit(X, y)
    with pytest.raises(ValueError, match=f"Input X {message}"):
        fitted.predict(X)
    y[5] = value
    with pytest.raises(ValueError, match=f"Input y {message}"):
        make().fit(table[0], y)
    with pytest.raises(ValueError, match=f"sample_weight {message}"):
        make().fit(*table, sample_weight=np.where(np.arange(120) == 2, value, 1.0))


def test_empty_tables(make, table):
    with pytest.raises(ValueError, match=r"0 sample\(s\)"):
        make().fit(np.empty((0, 3)), np.empty(0))
    with pytest.raises(ValueError, match=r"0 feature\(s\)"):
        make().fit(np.empty((5, 0)), np.zeros(5))
    with pytest.raises(ValueError, match=r"0 sample\(s\)"):
        make().fit(*table).predict(np.empty((0, 3)))


def test_shapes_that_do_not_fit(make, table):
    X, y = table
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        make().fit(X, y[:-1])
    with pytest.raises(ValueError, match="Reshape your data"):
        make().fit(X[:, 0], y)
    with pytest.raises(ValueError, match="dim 3"):
        make().fit(X[None], y)
    with pytest.raises(ValueError, match="requires y to be passed"):
        make().fit(X, None)
    with pytest.raises(ValueError, match="sample_weight"):
        make().fit(X, y, sample_weight=np.ones(7))
    with pytest.raises(ValueError, match="expecting 3 features"):
        make().fit(X, y).predict(X[:, :2])


def test_columns_that_are_not_numbers(make, table):
    X, y = table
    frame = pandas.DataFrame(X, columns=["a", "b", "c"]).assign(colour="red")
    with pytest.raises(ValueError, match=r"'red'.*not numbers.*OneHotEncoder"):
        make().fit(frame, y)
    with pytest.raises(ValueError, match=r"could not convert string.*not numbers"):
        make().fit(X, np.where(y > 200, "a", "b"))
    with pytest.raises(ValueError, match="not numbers"):
        make().fit(X, np.where(y > 200, "a", "b").astype(object))
    numbers = X.astype(object)
    assert sensible(make().fit(numbers, y), numbers)


def test_complex_and_sparse_tables(make, table):
    X, y = table
    with pytest.raises(ValueError, match="Complex data not supported"):
        make().fit(X + 0j, y)
    with pytest.raises(TypeError, match=r"[Ss]parse"):
        make().fit(sparse.csr_matrix(X), y)


def test_one_row(make):
    gp = make().fit([[1.0, 2.0]], [5.0])
    mean, std = gp.predict([[1.0, 2.0], [3.0, 4.0]], return_std=True)
    np.testing.assert_allclose(mean, 5.0, rtol=0.2)
    assert (std > 0).all()


def test_two_rows(make):
    gp = make().fit([[0.0], [1.0]], [0.0, 1.0])
    assert sensible(gp, [[0.5]])


def test_a_constant_target(make, table):
    X, _ = table
    for constant in (0.0, 7.0, -1e12):
        gp = make().fit(X, np.full(len(X), constant))
        np.testing.assert_allclose(gp.predict(X), constant, atol=0.1, rtol=1e-9)
        assert sensible(gp, X)


def test_constant_columns_change_nothing_where_they_are_constant(make, table, new_rows):
    (X, y), (X_new, _) = table, new_rows
    gp = make().fit(np.column_stack([X, np.full(len(X), 3.0)]), y)
    p = gp.predict_distribution(np.column_stack([X_new, np.full(len(X_new), 3.0)]))
    np.testing.assert_allclose(p.mean, make().fit(X, y).predict(X_new), atol=0.15 * y.std())
    assert sensible(make().fit(np.full((30, 2), 5.0), np.arange(30.0)), [[5.0, 5.0]])


def test_duplicate_columns_and_rows(make, table):
    X, y = table
    assert sensible(make().fit(np.column_stack([X, X, X]), y), np.column_stack([X, X, X]))
    gp = make().fit(np.tile(X[:40], (3, 1)), y)
    assert sensible(gp, X)
    # Equal inputs with different targets: what differs is noise.
    assert gp.noise_ > 5.0


def test_all_rows_equal(make):
    X, y = np.ones((25, 2)), np.full(25, 4.0)
    gp = make().fit(X, y)
    np.testing.assert_allclose(gp.predict(X), 4.0, rtol=0.1)
    assert sensible(gp, X)


def test_nearly_equal_rows(make):
    rng = np.random.default_rng(0)
    X = 1.0 + 1e-9 * rng.normal(size=(50, 2))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert sensible(make().fit(X, rng.normal(size=50)), X)


def test_more_inducing_points_than_rows(table):
    X, y = table
    gp = SparseGPRegressor(n_inducing=500, random_state=0, max_epochs=2).fit(X[:30], y[:30])
    assert gp.predictor_.inner.n_points == 30
    assert gp.n_inducing == 500
    repeated = SparseGPRegressor(n_inducing=500, random_state=0, max_epochs=2).fit(np.tile(X[:10], (3, 1)), y[:30])
    assert repeated.predictor_.inner.n_points == 10


def test_more_features_than_rows(make):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(10, 40))
    assert sensible(make().fit(X, X[:, 0]), X)


@pytest.mark.parametrize("size", [1e-300, 1e-30, 1e30, 1e300])
def test_inputs_of_any_size_are_standardised(size, make, table, new_rows):
    (X, y), (X_new, _) = table, new_rows
    X, X_new = X / [1.0, 1000.0, 5.0], X_new / [1.0, 1000.0, 5.0]
    gp, usual = make().fit(X * size, y), make().fit(X, y)
    np.testing.assert_allclose(gp.predict(X_new * size), usual.predict(X_new), rtol=1e-2)
    first, expected = (float(model.kernel_.base.lengthscale.value.detach()[0, 0, 0]) for model in (gp, usual))
    assert first / size == pytest.approx(expected, rel=0.05)


@pytest.mark.parametrize("size", [1e-100, 1e-30, 1e30, 1e100])
def test_targets_of_any_reasonable_size_are_standardised(size, make, table):
    X, y = table
    gp = make().fit(X, y * size)
    np.testing.assert_allclose(gp.predict(X) / size, make().fit(X, y).predict(X), rtol=1e-2)
    assert sensible(gp, X)


@pytest.mark.parametrize("size", [1e-300, 1e-200, 1e200, 1e300])
def test_targets_whose_variance_is_no_number(size, make, table):
    X, y = table
    with pytest.raises(ValueError, match="give y in another unit"):
        make().fit(X, y * size)


@pytest.mark.parametrize("size", [1e200, 1e300])
def test_without_standardising_huge_numbers_are_refused(size, make, table):
    X, y = table
    with pytest.raises(ValueError, match=r"X has values as large as .*standardize=True"):
        make(standardize=False).fit(X * size, y)
    with pytest.raises(ValueError, match=r"y has values as large as .*another unit"):
        make(standardize=False).fit(X, y * size)


def test_single_precision_has_its_own_limit(quick, table):
    X, y = table
    with pytest.raises(ValueError, match="float32 cannot square"):
        quick(standardize=False).fit(X * 1e20, y)


def test_huge_inputs_of_a_prediction(make, table):
    gp = make(predict_dtype="float32").fit(*table)
    assert sensible(gp, np.full((1, 3), 1e300))
    assert sensible(gp, np.array([[1e300, -1e300, 0.0]]))


def test_too_many_rows_for_the_exact_model():
    rows = METHODS["exact"].most_rows + 1
    X = np.arange(rows, dtype=float)[:, None]
    with pytest.raises(ValueError, match=r'make_gp\("svgp"\)'):
        ExactGPRegressor().fit(X, X[:, 0])


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"kernel": "matern"}, "did you mean 'matern"),
        ({"kernel": "rbf +"}, "lacks a name"),
        ({"kernel": 3}, "'kernel' parameter"),
        ({"mean": "quadratic"}, "'mean' parameter .*'linear'"),
        ({"likelihood": "poisson"}, "use likelihood='gaussian'"),
        ({"alpha": -0.5}, "'alpha' parameter"),
        ({"validation_fraction": 1.0}, "'validation_fraction' parameter"),
        ({"patience": 0}, "'patience' parameter"),
        ({"n_restarts": 0}, "'n_restarts' parameter"),
        ({"device": "abacus"}, "device 'abacus' cannot be used here"),
        ({"time_budget": 0.0}, "'time_budget' parameter"),
        ({"max_epochs": -1}, "'max_epochs' parameter"),
        ({"random_state": "lucky"}, "'random_state' parameter"),
    ],
)
def test_parameters_that_make_no_sense(parameters, message, kind, table):
    with pytest.raises(ValueError, match=message):
        kind(**parameters).fit(*table)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"objective": "evidence"}, "use objective='elbo' or 'predictive' or 'vfitc'"),
        ({"covariance": "banded"}, "'covariance' parameter .*'diagonal'"),
        ({"n_inducing": 0}, "'n_inducing' parameter"),
        ({"batch_size": 0}, "'batch_size' parameter"),
        ({"lr": -0.1}, "'lr' parameter"),
        ({"schedule": "linear"}, "'schedule' parameter .*'cosine'"),
        ({"beta": -1.0}, "'beta' parameter"),
        ({"dtype": "float16"}, "'dtype' parameter .*'float64'"),
        ({"init": "grid"}, "'init' parameter"),
        ({"init": np.zeros((5, 2))}, r"init must have shape \(M, 3\)"),
        ({"init": np.zeros(3)}, r"init must have shape \(M, 3\)"),
        ({"init": np.zeros((0, 3))}, r"init must have shape \(M, 3\)"),
        ({"init": np.full((4, 3), np.nan)}, "inducing points at NaN"),
    ],
)
def test_parameters_of_inducing_points_that_make_no_sense(parameters, message, table):
    with pytest.raises(ValueError, match=message):
        SparseGPRegressor(**parameters).fit(*table)


def test_unknown_parameters():
    with pytest.raises(TypeError, match="n_induced"):
        SparseGPRegressor(n_induced=3)
    with pytest.raises(ValueError, match="no parameter 'n_induced'"):
        make_gp("svgp", n_induced=3)


def test_negative_and_zero_weights(make, table):
    X, y = table
    with pytest.raises(ValueError, match=r"[Nn]egative"):
        make().fit(X, y, sample_weight=np.where(np.arange(120) == 4, -1.0, 1.0))
    with pytest.raises(ValueError, match="zero"):
        make().fit(X, y, sample_weight=np.zeros(120))


def test_weights_of_very_different_size(make, table):
    X, y = table
    weight = np.where(np.arange(120) < 60, 1e-6, 1e3)
    assert sensible(make().fit(X, y, sample_weight=weight), X)


def test_an_outlier_does_not_break_the_fit(make, table):
    X, y = table
    y = y.copy()
    y[0] = 1e9
    assert sensible(make().fit(X, y), X)


def test_torch_state_is_left_alone(kind, table):
    torch.manual_seed(5)
    wanted = torch.rand(3)
    torch.manual_seed(5)
    kind(random_state=0).fit(*table)
    assert torch.equal(torch.rand(3), wanted)
    assert torch.get_default_dtype() == torch.float32
    assert torch.is_grad_enabled()
