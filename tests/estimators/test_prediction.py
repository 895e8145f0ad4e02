"""Predictions: their parts agree with each other, however they are asked for."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from candid import SparseGPRegressor
from candid.estimators import table_predictor
from candid.families import BasisPredictor, NeighbourPredictor


def test_shapes_and_types(model, new_rows):
    X, _ = new_rows
    mean, std = model.predict(X, return_std=True)
    joint_mean, covariance = model.predict(X, return_cov=True)
    assert mean.shape == std.shape == joint_mean.shape == (40,)
    assert covariance.shape == (40, 40)
    assert {part.dtype for part in (mean, std, covariance)} == {np.dtype(np.float64)}


def test_the_three_ways_to_predict_agree(model, new_rows):
    X, _ = new_rows
    mean, std = model.predict(X, return_std=True)
    # What neighbours say of several rows together is not what they say of each.
    joint = X[:1] if isinstance(model.predictor_.inner, NeighbourPredictor) else X
    joint_mean, covariance = model.predict(joint, return_cov=True)
    p = model.predict_distribution(X)
    np.testing.assert_array_equal(mean, p.mean)
    np.testing.assert_array_equal(std, p.std)
    np.testing.assert_allclose(model.predict(X), mean, rtol=1e-12)
    np.testing.assert_allclose(joint_mean, mean[: len(joint)], rtol=1e-12)
    np.testing.assert_allclose(np.diag(covariance), std[: len(joint)] ** 2, rtol=1e-8)
    np.testing.assert_allclose(p.latent_std**2 + p.noise_std**2, std**2, rtol=1e-12)
    np.testing.assert_allclose(p.noise_std, model.noise_)


def test_one_row_few_rows_and_many_agree(model, new_rows):
    X, _ = new_rows
    mean, std = model.predict(np.repeat(X, 5, axis=0), return_std=True)
    for rows in (slice(0, 1), slice(3, 4), slice(0, 7)):
        some_mean, some_std = model.predict(X[rows], return_std=True)
        np.testing.assert_allclose(some_mean, mean[::5][rows], rtol=1e-9)
        np.testing.assert_allclose(some_std, std[::5][rows], rtol=1e-9)


@pytest.mark.parametrize(
    "same",
    [
        np.asfortranarray,
        lambda X: X.astype(">f8"),
        lambda X: np.ascontiguousarray(X[::-1])[::-1],
        lambda X: np.repeat(X, 2, axis=0)[::2],
        lambda X: np.broadcast_to(X, X.shape),
        lambda X: X.tolist(),
        torch.as_tensor,
    ],
    ids=["columns first", "other byte order", "backwards", "strided", "read-only", "lists", "tensor"],
)
def test_however_the_numbers_lie_in_memory(same, model, new_rows):
    X, _ = new_rows
    mean, std = model.predict(X, return_std=True)
    other_mean, other_std = model.predict(same(X), return_std=True)
    np.testing.assert_allclose(other_mean, mean, rtol=1e-12)
    np.testing.assert_allclose(other_std, std, rtol=1e-12)


@pytest.mark.filterwarnings("error")
def test_inputs_whose_sum_is_no_number(model, new_rows):
    """Each number is fine, and so is the prediction: that of the prior."""
    X = new_rows[0][:2].copy()
    X[:, 0] = 1.5e308
    assert np.isfinite(model.predict(X, return_std=True)).all()
    X[0, 0] = np.nan
    with pytest.raises(ValueError, match="Input X contains NaN"):
        model.predict(X)


def test_the_joint_covariance_is_one(model, new_rows):
    _, covariance = model.predict(new_rows[0], return_cov=True)
    np.testing.assert_allclose(covariance, covariance.T, rtol=1e-9)
    assert np.linalg.eigvalsh(covariance).min() > 0.5 * model.noise_**2


def test_std_and_covariance_at_once_is_an_error(model, new_rows):
    with pytest.raises(ValueError, match="not for both"):
        model.predict(new_rows[0], return_std=True, return_cov=True)


def test_known_noise_of_new_rows_replaces_the_learned_one(model, new_rows):
    X, _ = new_rows
    alpha = np.linspace(0.0, 5.0, 40)
    p, learned = model.predict_distribution(X, alpha=alpha), model.predict_distribution(X)
    np.testing.assert_allclose(p.noise_std**2, alpha)
    np.testing.assert_array_equal(p.latent_std, learned.latent_std)
    with pytest.raises(ValueError, match="one entry for each of the 40 rows"):
        model.predict_distribution(X, alpha=alpha[:7])


def test_samples_have_the_moments_of_the_joint_distribution(model, new_rows):
    X = new_rows[0][:4]
    mean, covariance = model.predict(X, return_cov=True)
    draws = model.sample_y(X, 20_000, random_state=0)
    assert draws.shape == (4, 20_000)
    scale = np.sqrt(np.diag(covariance))
    # Standard errors: 1/√n of the mean, about √2/√n of the (co)variance.
    assert np.abs((draws.mean(1) - mean) / scale).max() < 5 / np.sqrt(20_000)
    assert np.abs((np.cov(draws) - covariance) / np.outer(scale, scale)).max() < 8 / np.sqrt(20_000)


def test_samples_repeat_with_a_seed(model, new_rows):
    X = new_rows[0][:3]
    first, again, other = (model.sample_y(X, 5, random_state=seed) for seed in (3, 3, 4))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)


def test_nearby_rows_are_drawn_together(model, new_rows):
    X = np.repeat(new_rows[0][:1], 2, axis=0)
    latent_share = 1 - model.noise_**2 / model.predict(X, return_std=True)[1][0] ** 2
    correlation = np.corrcoef(model.sample_y(X, 20_000))[0, 1]
    assert correlation == pytest.approx(latent_share, abs=0.03)


def test_score_is_r2(model, new_rows):
    X, y = new_rows
    mean = model.predict(X)
    expected = 1 - ((y - mean) ** 2).sum() / ((y - y.mean()) ** 2).sum()
    assert model.score(X, y) == pytest.approx(expected)
    assert expected > 0.8


def test_most_new_targets_lie_inside_the_intervals(model, new_rows):
    X, y = new_rows
    lower, upper = model.predict_distribution(X).interval(0.95)
    assert 0.8 <= np.mean((lower < y) & (y < upper)) <= 1.0


def test_the_mean_alone_computes_no_variances(model, new_rows, monkeypatch):
    if isinstance(model.predictor_.inner, NeighbourPredictor):
        pytest.skip("the variance given neighbours costs nothing")
    seen = []
    original = BasisPredictor.marginal

    def spy(self, x, mean_only=False):
        seen.append(mean_only)
        return original(self, x, mean_only)

    def forbidden(*args):
        raise AssertionError("a variance was computed")

    monkeypatch.setattr(BasisPredictor, "marginal", spy)
    for kernel_class in {type(part) for part in model.predictor_.inner.kernel.modules() if hasattr(part, "diagonal")}:
        monkeypatch.setattr(kernel_class, "diagonal", forbidden)
    model.predict(new_rows[0])
    assert seen == [True]
    with pytest.raises(AssertionError, match="a variance was computed"):
        model.predict(new_rows[0], return_std=True)


def test_a_long_table_is_predicted_in_chunks(model, new_rows, monkeypatch):
    X, _ = new_rows
    whole = model.predict_distribution(X)
    lengths, kind = [], type(model.predictor_.inner)
    original = kind.marginal
    monkeypatch.setattr(
        kind,
        "marginal",
        lambda self, x, mean_only=False: (lengths.append(len(x)), original(self, x, mean_only))[1],
    )
    monkeypatch.setattr(table_predictor, "CHUNK_ENTRIES", 7 * model.predictor_.inner.n_points)
    chunked, mean = model.predict_distribution(X), model.predict(X)
    assert lengths == 2 * [7, 7, 7, 7, 7, 5]
    np.testing.assert_allclose(chunked.mean, whole.mean, rtol=1e-10)
    np.testing.assert_allclose(chunked.std, whole.std, rtol=1e-10)
    np.testing.assert_allclose(mean, whole.mean, rtol=1e-10)


@pytest.mark.parametrize("n_outputs", [1, 2, 5])
def test_several_outputs_make_the_chunks_shorter(n_outputs, table, new_rows, quick, monkeypatch):
    X, y = table
    gp = quick(max_epochs=1).fit(X, np.column_stack([y + shift for shift in range(n_outputs)]))
    whole = gp.predict(new_rows[0])
    predictor, rows = gp.predictor_, torch.as_tensor(new_rows[0])
    monkeypatch.setattr(table_predictor, "CHUNK_ENTRIES", 30 * predictor.inner.n_points)
    lengths = [len(part.mean) for part in predictor.stream(rows)]
    assert sum(lengths) == 40
    assert lengths[0] == 30 // n_outputs
    np.testing.assert_allclose(gp.predict(new_rows[0]), whole, rtol=1e-10)


def test_one_row_is_predicted_as_in_the_batch(model, new_rows):
    X, _ = new_rows
    mean, std = model.predict(X, return_std=True)
    for i in range(5):
        one_mean, one_std = model.predict(X[i : i + 1], return_std=True)
        np.testing.assert_allclose(one_mean[0], mean[i], rtol=1e-7)
        np.testing.assert_allclose(one_std[0], std[i], rtol=1e-7)


def test_gradients_of_the_predictor_match_finite_differences(model, new_rows):
    x = torch.tensor(new_rows[0][:4], requires_grad=True)
    marginal = model.predictor_.marginal(x)
    for output in ("mean", "variance"):
        (gradient,) = torch.autograd.grad(getattr(marginal, output).sum(), x, retain_graph=True)
        for column, unit in enumerate((1.0, 50.0, 0.01)):
            step = np.zeros(3)
            step[column] = 1e-3 * unit
            ahead, behind = (
                getattr(model.predictor_.marginal(x.detach() + sign * torch.as_tensor(step)), output)[:, 0]
                for sign in (1, -1)
            )
            slope = (ahead - behind) / (2e-3 * unit)
            scale = float(getattr(marginal, output).detach().abs().max()) / unit
            torch.testing.assert_close(gradient[:, column], slope, rtol=1e-3, atol=1e-4 * scale)


def test_single_precision_is_close_and_keeps_the_digits_of_the_inputs(table, new_rows, quick):
    X, y = table
    # Seconds since 1970 differ by less than float32 can tell at their own size.
    offset = np.array([1.7e9, 0.0, 0.0])
    double, single = (quick(predict_dtype=dtype).fit(X + offset, y) for dtype in ("float64", "float32"))
    assert single.predictor_.dtype == torch.float32
    assert double.predictor_.dtype == torch.float64
    wanted, got = (gp.predict_distribution(new_rows[0] + offset) for gp in (double, single))
    np.testing.assert_allclose(got.mean, wanted.mean, rtol=5e-4)
    # A variance is a difference of numbers of the size of the kernel's amplitude, which here is large.
    np.testing.assert_allclose(got.std, wanted.std, rtol=3e-2)
    assert single.noise_ == double.noise_
    assert not np.array_equal(got.mean, wanted.mean)


def test_far_from_the_data_the_prior_returns(model):
    for far in (1e6, 1e200, 1e307):
        p = model.predict_distribution(np.full((2, 3), far))
        assert np.isfinite(p.mean).all()
        amplitude = float(model.kernel_.diagonal(torch.zeros(1, 3, dtype=torch.float64)).detach().sqrt())
        np.testing.assert_allclose(p.latent_std, amplitude, rtol=1e-6)


def test_wrong_number_of_features(model, new_rows):
    with pytest.raises(ValueError, match="expecting 3 features"):
        model.predict(new_rows[0][:, :2])


def test_predicting_before_fitting():
    with pytest.raises(ValueError, match="not fitted"):
        SparseGPRegressor().predict([[1.0]])
