"""Predictive distributions: consistency, shapes, extremes and errors."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from candid import metrics
from candid.predictive import (
    JointNormal,
    PredictiveBernoulli,
    PredictiveCategorical,
    PredictiveMixture,
    PredictiveNormal,
)


def normal(shape=(6,), seed=0) -> PredictiveNormal:
    rng = np.random.default_rng(seed)
    return PredictiveNormal(rng.normal(size=shape), 0.1 + rng.random(shape), 0.3)


def mixture(shape=(6,), sites=4, seed=0) -> PredictiveMixture:
    rng = np.random.default_rng(seed)
    full = (*shape, sites)
    return PredictiveMixture(3 * rng.normal(size=full), 0.1 + rng.random(full), 0.3, rng.dirichlet(np.ones(sites)))


EXAMPLES = [normal(), normal((6, 2)), mixture(), mixture((6, 2))]
IDS = ["normal", "normal-2", "mixture", "mixture-2"]


@pytest.mark.parametrize("p", EXAMPLES, ids=IDS)
def test_quantile_inverts_cdf(p):
    levels = np.array([1e-9, 0.025, 0.5, 0.8, 1 - 1e-9])
    values = p.quantile(levels)
    assert values.shape == (5, *p.shape)
    for level, value in zip(levels, values, strict=True):
        np.testing.assert_allclose(p.cdf(value), level, rtol=1e-12)
        np.testing.assert_array_equal(p.quantile(level), value)


@pytest.mark.parametrize("p", EXAMPLES, ids=IDS)
def test_interval_is_central(p):
    lower, upper = p.interval(0.9)
    np.testing.assert_allclose(p.cdf(lower), 0.05, rtol=1e-12)
    np.testing.assert_allclose(p.cdf(upper), 0.95, rtol=1e-12)


@pytest.mark.parametrize("p", EXAMPLES, ids=IDS)
def test_variance_is_latent_plus_noise(p):
    np.testing.assert_allclose(p.std**2, p.latent_std**2 + p.noise_std**2, rtol=1e-14)
    np.testing.assert_allclose(p.noise_std, 0.3, rtol=1e-14)


@pytest.mark.parametrize("p", EXAMPLES, ids=IDS)
def test_samples_follow_the_distribution(p):
    draws = p.sample(20_000, random_state=1)
    assert draws.shape == (20_000, *p.shape)
    np.testing.assert_allclose(draws.mean(axis=0), p.mean, atol=0.1)
    np.testing.assert_allclose(draws.std(axis=0), p.std, rtol=0.03)
    np.testing.assert_allclose((draws <= p.quantile(0.2)).mean(axis=0), 0.2, atol=0.015)
    np.testing.assert_array_equal(draws[:5], p.sample(20_000, random_state=np.random.default_rng(1))[:5])


def test_sampling_accepts_a_random_state_and_advances_it():
    p, state = mixture(), np.random.RandomState(3)
    first = p.sample(2, state)
    assert not np.array_equal(first, p.sample(2, state))
    np.testing.assert_array_equal(first, p.sample(2, np.random.RandomState(3)))


def test_outputs_of_a_row_share_their_site():
    p = PredictiveMixture(np.array([[[-10.0, 10.0], [-10.0, 10.0]]]), 0.1, 0.1)
    draws = p.sample(500, random_state=0)
    np.testing.assert_array_equal(np.sign(draws[:, 0, 0]), np.sign(draws[:, 0, 1]))
    assert 0.4 < np.mean(draws[:, 0, 0] > 0) < 0.6


@pytest.mark.parametrize("p", EXAMPLES, ids=IDS)
@pytest.mark.parametrize("rows", [slice(1, 4), [0, 5], np.array([True, False, False, True, True, False]), 2, -1])
def test_rows_can_be_selected(p, rows):
    part = p[rows]
    y = np.linspace(-1, 1, p.mean.size).reshape(p.shape)
    keep = np.atleast_1d(np.arange(6)[rows])
    assert type(part) is type(p)
    assert len(part) == len(keep)
    for name in ("mean", "std", "latent_std", "noise_std"):
        np.testing.assert_array_equal(getattr(part, name), getattr(p, name)[keep])
    np.testing.assert_allclose(part.crps(y[keep]), p.crps(y)[keep], rtol=1e-13)


def test_rows_end_and_only_rows_are_indexed():
    assert len(list(normal())) == 6
    with pytest.raises(IndexError, match="rows only"):
        mixture((6, 2))[:, 0]


def test_blocks_do_not_change_results(monkeypatch):
    p, y = mixture((50, 2)), np.random.default_rng(5).normal(size=(50, 2))
    whole = [p.log_prob(y), p.cdf(y), p.crps(y), p.z_score(y), p.quantile(0.3)]
    monkeypatch.setattr("candid.predictive.mixture._BLOCK", 24)
    for before, after in zip(whole, [p.log_prob(y), p.cdf(y), p.crps(y), p.z_score(y), p.quantile(0.3)], strict=True):
        np.testing.assert_allclose(after, before, rtol=1e-13)


def test_one_site_is_a_normal():
    n = normal((6, 2))
    m = PredictiveMixture(n.mean[..., None], n.latent_std[..., None], n.noise_std)
    y = np.random.default_rng(1).normal(size=(6, 2)) * 5
    for name in ("mean", "std", "latent_std", "noise_std"):
        np.testing.assert_allclose(getattr(m, name), getattr(n, name), rtol=1e-14)
    for name in ("log_prob", "cdf", "crps", "z_score"):
        np.testing.assert_allclose(getattr(m, name)(y), getattr(n, name)(y), rtol=1e-12, err_msg=name)
    np.testing.assert_allclose(m.quantile(0.01), n.quantile(0.01), rtol=1e-14)


def test_noise_may_differ_between_sites():
    p = PredictiveMixture(np.zeros((3, 2)), 0.0, [[1.0, 2.0]], [0.25, 0.75])
    np.testing.assert_allclose(p.noise_std, np.sqrt(0.25 * 1 + 0.75 * 4))
    shared = PredictiveMixture(np.zeros((3, 2)), 0.0, [1.0, 2.0, 3.0], [0.25, 0.75])
    np.testing.assert_allclose(shared.noise_std, [1.0, 2.0, 3.0])


def test_mixture_variance_survives_a_large_offset():
    p = PredictiveMixture(1e8 + np.array([[-1.0, 1.0]]), 0.0, 0.5)
    np.testing.assert_allclose(p.std, np.sqrt(1.25), rtol=1e-7)


def test_sites_of_weight_zero_do_not_exist():
    p = PredictiveMixture([[0.0, 1000.0]], 1.0, 0.0, [1.0, 0.0])
    single = PredictiveNormal([0.0], 1.0)
    for name in ("log_prob", "cdf", "crps"):
        np.testing.assert_allclose(getattr(p, name)(1000.0), getattr(single, name)(1000.0), rtol=1e-13, err_msg=name)
    np.testing.assert_allclose(p.z_score(30.0), 30.0, rtol=1e-12)
    np.testing.assert_allclose(p.quantile(0.9), single.quantile(0.9), rtol=1e-14)
    assert p.sample(1000, 0).max() < 10


@pytest.mark.parametrize("offset", [-200.0, -30.0, 30.0, 200.0])
def test_mixture_scores_are_finite_far_in_both_tails(offset):
    p = PredictiveMixture([[-1.0, 1.0]], 1.0)
    # The nearer component, with half the weight, decides: Φ(−z) ≈ ½ Φ(−(|y| − 1)).
    expected = np.sign(offset) * (abs(offset) - 1 + np.log(2) / (abs(offset) - 1))
    np.testing.assert_allclose(p.z_score(offset), expected, rtol=1e-4)


def test_quantiles_across_a_gap_and_on_narrow_sites():
    p = PredictiveMixture([[-50.0, 0.0, 50.0]], [[1e-9, 1.0, 1e-3]], 0.0, [0.2, 0.6, 0.2])
    np.testing.assert_allclose(p.quantile(0.1), -50.0, rtol=1e-10)
    np.testing.assert_allclose(p.quantile(0.5), 0.0, atol=1e-10)
    np.testing.assert_allclose(p.quantile(0.9), 50.0, rtol=1e-10)
    assert -50 < p.quantile(0.2)[0] < 0


def test_point_masses():
    certain = PredictiveNormal([1.0, 2.0], 0.0)
    np.testing.assert_array_equal(certain.log_prob([1.0, 3.0]), [np.inf, -np.inf])
    np.testing.assert_array_equal(certain.cdf([1.0, 3.0]), [0.5, 1.0])
    np.testing.assert_array_equal(certain.crps([1.5, 0.0]), [0.5, 2.0])
    np.testing.assert_array_equal(certain.quantile(0.9), [1.0, 2.0])
    pair = PredictiveMixture([[0.0, 1.0]], 0.0)
    np.testing.assert_array_equal(pair.log_prob(0.5), -np.inf)
    np.testing.assert_allclose(pair.cdf(0.5), 0.5)
    np.testing.assert_allclose(pair.quantile(0.25), 0.0, atol=1e-15)
    np.testing.assert_allclose(pair.quantile(0.75), 1.0, rtol=1e-15)
    # ∫ (F − 1[t ≥ 0.5])² = ½ · ¼ + ½ · ¼
    np.testing.assert_allclose(pair.crps(0.5), 0.25)


def test_float32_and_lists_become_float64():
    p = PredictiveNormal(np.zeros(2, np.float32), [1, 2], np.float32(0.5))
    assert p.mean.dtype == p.std.dtype == p.sample(1, 0).dtype == np.float64
    weights = np.full(3, 1 / 3, np.float32)
    assert PredictiveMixture(np.zeros((2, 3)), 1.0, 0.0, weights).weights.sum() == pytest.approx(2.0, abs=1e-15)


def test_distributions_cannot_be_changed():
    given = np.zeros(3)
    p = PredictiveNormal(given, 1.0)
    given[0] = 5.0
    assert p.mean[0] == 0.0
    with pytest.raises(AttributeError, match="immutable"):
        p.mean = given
    with pytest.raises(ValueError, match="read-only"):
        p.std[0] = 2.0


def test_pickling_and_repr():
    p = mixture((6, 2))
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(p)).log_prob(0.0), p.log_prob(0.0))
    assert repr(p) == "PredictiveMixture(6 rows, 2 outputs, 4 sites)"
    assert repr(normal()) == "PredictiveNormal(6 rows)"
    assert repr(JointNormal([0.0], [[1.0]])) == "JointNormal(1 rows)"


def test_a_column_of_targets_serves_one_output():
    p = normal()
    y = np.arange(6.0)
    np.testing.assert_array_equal(p.log_prob(y[:, None]), p.log_prob(y))
    np.testing.assert_array_equal(p.cdf(0.5), p.cdf(np.full(6, 0.5)))


@pytest.mark.parametrize("p", EXAMPLES, ids=IDS)
def test_bad_arguments_are_named(p):
    for method in (p.log_prob, p.cdf, p.crps, p.z_score):
        with pytest.raises(ValueError, match="y has shape"):
            method(np.zeros(7))
        with pytest.raises(ValueError, match="NaN"):
            method(np.full(p.shape, np.nan))
    for q in (0.0, 1.0, -0.1, np.nan, [0.5, 2.0]):
        with pytest.raises(ValueError, match="strictly between 0 and 1"):
            p.quantile(q)
    with pytest.raises(ValueError, match="one-dimensional"):
        p.quantile([[0.5]])
    with pytest.raises(ValueError, match="level"):
        p.interval(1.0)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: PredictiveNormal(0.0, 1.0), r"shape \(N,\) or \(N, P\)"),
        (lambda: PredictiveNormal([0.0, np.nan], 1.0), "mean contains NaN"),
        (lambda: PredictiveNormal([0.0, 1.0], -1.0), "negative"),
        (lambda: PredictiveNormal([0.0, 1.0], [1.0, 1.0, 1.0]), "latent_std has shape"),
        (lambda: PredictiveMixture([0.0, 1.0], 1.0), r"shape \(N, J\)"),
        (lambda: PredictiveMixture([[0.0, 1.0]], 1.0, 0.0, [0.5, 0.6]), "sum to one"),
        (lambda: PredictiveMixture([[0.0, 1.0]], 1.0, 0.0, [1.5, -0.5]), "non-negative"),
        (lambda: PredictiveMixture([[0.0, 1.0]], 1.0, 0.0, [0.2, 0.3, 0.5]), "2 sites"),
        (lambda: PredictiveMixture([[0.0, 1.0]], 1.0, [0.1, 0.2]), "noise_std has shape"),
        (lambda: JointNormal([0.0, 1.0], np.eye(3)), r"\(N, N\)"),
        (lambda: JointNormal([0.0, 1.0], [[1.0, 0.5], [0.0, 1.0]]), "symmetric"),
        (lambda: JointNormal([0.0, 1.0], np.diag([1.0, -1.0])).sample(), "semi-definite"),
        (lambda: JointNormal([0.0, 1.0], np.eye(2)).log_prob([0.0]), "last axis"),
        (lambda: JointNormal([0.0, 1.0], np.eye(2)).log_prob([0.0, np.nan]), "NaN"),
    ],
)
def test_bad_distributions_are_refused(build, message):
    with pytest.raises(ValueError, match=message):
        build()


def test_joint_samples_have_the_covariance():
    root = np.random.default_rng(0).normal(size=(4, 4))
    p = JointNormal([1.0, -1.0, 0.0, 5.0], root @ root.T)
    draws = p.sample(40_000, random_state=0)
    np.testing.assert_allclose(draws.mean(axis=0), p.mean, atol=0.05)
    np.testing.assert_allclose(np.cov(draws.T), p.covariance, atol=0.15)
    np.testing.assert_allclose(p.std, np.sqrt(np.diag(root @ root.T)))
    part = p[[3, 1]]
    np.testing.assert_array_equal(part.covariance, p.covariance[np.ix_([3, 1], [3, 1])])


def test_joint_normal_with_duplicate_rows():
    p = JointNormal([0.0, 0.0, 1.0], [[1.0, 1.0, 0.2], [1.0, 1.0, 0.2], [0.2, 0.2, 1.0]])
    draws = p.sample(100, random_state=0)
    np.testing.assert_allclose(draws[:, 0], draws[:, 1], atol=1e-7)
    assert np.isfinite(p.log_prob(draws)).all()
    assert p.log_prob([0.0, 1.0, 1.0]) == -np.inf


def test_joint_normal_without_any_variance():
    p = JointNormal([2.0, 3.0], np.zeros((2, 2)))
    np.testing.assert_array_equal(p.sample(3, 0), np.tile([2.0, 3.0], (3, 1)))


def test_joint_normal_forgives_rounding():
    x = np.linspace(0, 1, 40)[:, None]
    smooth = np.exp(-0.5 * (x - x.T) ** 2)
    assert np.linalg.eigvalsh(smooth)[0] < 0
    draws = JointNormal(np.zeros(40), smooth).sample(2000, random_state=0)
    np.testing.assert_allclose(draws.std(axis=0), 1.0, rtol=0.1)


def categorical(rows=6, classes=("a", "b", "c"), seed=0) -> PredictiveCategorical:
    return PredictiveCategorical(np.random.default_rng(seed).dirichlet(np.ones(len(classes)), size=rows), classes)


def test_class_probabilities_of_labels():
    p, y = categorical(), np.array(["a", "c", "b", "b", "a", "c"])
    columns = [0, 2, 1, 1, 0, 2]
    np.testing.assert_allclose(p.log_prob(y), np.log(p.probabilities[np.arange(6), columns]), rtol=1e-13)
    np.testing.assert_allclose(p.log_prob(y[:, None]), p.log_prob(y))
    np.testing.assert_allclose(p.log_prob("b"), p.log_probabilities[:, 1])
    np.testing.assert_array_equal(p.mode, np.array(["a", "b", "c"])[p.probabilities.argmax(axis=1)])


def test_classes_may_come_in_any_order():
    p = PredictiveCategorical([[0.2, 0.3, 0.5]], [7, -1, 3])
    np.testing.assert_allclose([p.log_prob(label)[0] for label in (7, -1, 3)], np.log([0.2, 0.3, 0.5]))


def test_entropy_of_classes():
    p = PredictiveCategorical([[1.0, 0.0, 0.0], [1 / 3, 1 / 3, 1 / 3], [0.5, 0.25, 0.25]])
    np.testing.assert_allclose(p.entropy(), [0.0, np.log(3), 1.5 * np.log(2)], atol=1e-15)


def test_classes_are_drawn_with_their_probabilities():
    p = categorical()
    draws = p.sample(20_000, random_state=1)
    assert draws.shape == (20_000, 6)
    for k, label in enumerate(p.classes):
        np.testing.assert_allclose((draws == label).mean(axis=0), p.probabilities[:, k], atol=0.015)
    np.testing.assert_array_equal(draws, p.sample(20_000, random_state=np.random.default_rng(1)))


def test_two_classes():
    p = PredictiveBernoulli([0.0, 0.2, 1.0])
    np.testing.assert_allclose(p.probabilities, [[1.0, 0.0], [0.8, 0.2], [0.0, 1.0]], rtol=1e-15)
    np.testing.assert_allclose(p.probability, [0.0, 0.2, 1.0])
    np.testing.assert_array_equal(p.mode, [0, 0, 1])
    np.testing.assert_allclose(p.log_prob([1, 1, 1]), [-np.inf, np.log(0.2), 0.0])
    np.testing.assert_array_equal(p.sample(50, 0)[:, [0, 2]], np.tile([0, 1], (50, 1)))


def test_logarithms_keep_the_digits_of_nearly_certain_classes():
    p = PredictiveBernoulli.from_log([[-1e-30, -69.0], [-400.0, 0.0]], ["no", "yes"])
    np.testing.assert_allclose(p.log_prob(["yes", "no"]), [-69.0, -400.0])
    np.testing.assert_allclose(PredictiveBernoulli([1e-20]).log_prob(0), -1e-20, rtol=1e-12)
    # Nothing has to be normalised beforehand.
    np.testing.assert_allclose(PredictiveCategorical.from_log(np.log([[2.0, 6.0]])).probabilities, [[0.25, 0.75]])


@pytest.mark.parametrize("p", [categorical(), PredictiveBernoulli(np.linspace(0, 1, 6), ["a", "b"])], ids=["K", "2"])
@pytest.mark.parametrize("rows", [slice(1, 4), [0, 5], np.array([True, False, False, True, True, False]), 2, -1])
def test_rows_of_classes_can_be_selected(p, rows):
    part, keep = p[rows], np.atleast_1d(np.arange(6)[rows])
    assert type(part) is type(p)
    np.testing.assert_allclose(part.probabilities, p.probabilities[keep], rtol=1e-14)
    np.testing.assert_array_equal(part.classes, p.classes)


def test_metrics_take_class_probabilities():
    rng = np.random.default_rng(2)
    p, two = categorical(60), PredictiveBernoulli(rng.random(60), ["n", "y"])
    y, answer = p.sample(1, 3)[0], two.sample(1, 4)[0]
    assert metrics.log_loss(y, p.probabilities, p.classes) == pytest.approx(-p.log_prob(y).mean())
    assert metrics.error_rate(y, p.probabilities, p.classes) == pytest.approx(np.mean(p.mode != y))
    assert metrics.log_loss(answer, two.probability, two.classes) == pytest.approx(-two.log_prob(answer).mean())
    assert metrics.auc(answer, two.probability) == metrics.auc(answer, two.probabilities)


def test_classes_cannot_be_changed_but_pickled():
    p = categorical()
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(p)).log_prob("a"), p.log_prob("a"))
    assert repr(p) == "PredictiveCategorical(6 rows, 3 classes)"
    with pytest.raises(AttributeError, match="immutable"):
        p.classes = np.arange(3)
    with pytest.raises(ValueError, match="read-only"):
        p.probabilities[0, 0] = 1.0
    with pytest.raises(IndexError, match="rows only"):
        p[:, 0]


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: PredictiveCategorical([0.5, 0.5]), r"\(N, K\)"),
        (lambda: PredictiveCategorical([[0.5, 0.6]]), "sum to one"),
        (lambda: PredictiveCategorical([[1.5, -0.5]]), "non-negative"),
        (lambda: PredictiveCategorical([[0.5, np.nan]]), "NaN"),
        (lambda: PredictiveCategorical([[0.5, 0.5]], ["a", "a"]), "different labels"),
        (lambda: PredictiveCategorical([[0.5, 0.5]], ["a", "b", "c"]), "different labels"),
        (lambda: PredictiveCategorical.from_log([[0.0, np.inf]]), "diverged"),
        (lambda: PredictiveCategorical.from_log([[0.0, np.nan]]), "diverged"),
        (lambda: PredictiveBernoulli([[0.5]]), r"shape \(N,\)"),
        (lambda: PredictiveBernoulli([1.2]), "between 0 and 1"),
        (lambda: PredictiveBernoulli.from_log([[0.0, 0.0, 0.0]]), "two classes"),
        (lambda: categorical().log_prob(["a", "b"]), "y has shape"),
        (lambda: categorical().log_prob("d"), "not among the classes"),
        (lambda: categorical().log_prob(1), "not among the classes"),
    ],
)
def test_bad_class_probabilities_are_refused(build, message):
    with pytest.raises(ValueError, match=message):
        build()
