from __future__ import annotations

import numpy as np
import pytest

from candid.metrics import auc, error_rate, expected_calibration_error, log_loss

PROBA = np.array([0.9, 0.8, 0.3, 0.6])
LABELS = np.array([1, 0, 0, 1])


def test_values_by_hand():
    assert error_rate(LABELS, PROBA) == pytest.approx(0.25)
    assert log_loss(LABELS, PROBA) == pytest.approx(-np.log([0.9, 0.2, 0.7, 0.6]).mean())
    assert auc(LABELS, PROBA) == pytest.approx(0.75)
    # Two bins, all confidences in (½, 1]: accuracy ¾ against mean confidence ¾
    assert expected_calibration_error(LABELS, PROBA, n_bins=2) == pytest.approx(0.0, abs=1e-15)


@pytest.mark.parametrize("metric", [error_rate, log_loss, auc, expected_calibration_error])
def test_one_column_equals_two(metric):
    both = np.column_stack([1 - PROBA, PROBA])
    assert metric(LABELS, PROBA) == pytest.approx(metric(LABELS, both), rel=1e-14)


@pytest.mark.parametrize("metric", [error_rate, log_loss, auc, expected_calibration_error])
def test_classes_give_the_order_of_columns(metric):
    rng = np.random.default_rng(0)
    y, proba = rng.integers(3, size=60), rng.dirichlet(np.ones(3), size=60)
    names = np.array(["b", "c", "a"])
    assert metric(names[y], proba, classes=names) == pytest.approx(metric(y, proba), rel=1e-14)
    assert metric(names[y], proba) != pytest.approx(metric(y, proba), rel=1e-6)


@pytest.mark.parametrize("metric", [error_rate, log_loss, auc, expected_calibration_error])
def test_integer_weights_repeat_rows(metric):
    rng = np.random.default_rng(1)
    y, proba, count = rng.integers(3, size=60), rng.dirichlet(np.ones(3), size=60), np.arange(60) % 3
    expected = metric(np.repeat(y, count), np.repeat(proba, count, axis=0))
    assert metric(y, proba, sample_weight=count) == pytest.approx(expected, rel=1e-12)


def test_expected_calibration_error_bin_by_bin():
    rng = np.random.default_rng(2)
    y, proba = rng.integers(4, size=500), rng.dirichlet(np.ones(4), size=500)
    confidence, correct = proba.max(axis=1), proba.argmax(axis=1) == y
    expected = 0.0
    for low, high in zip(np.arange(15) / 15, np.arange(1, 16) / 15, strict=True):
        rows = (confidence > low) & (confidence <= high)
        if rows.any():
            expected += rows.mean() * abs(correct[rows].mean() - confidence[rows].mean())
    assert expected_calibration_error(y, proba) == pytest.approx(expected, rel=1e-12)


def test_sure_and_right_is_perfect_and_sure_and_wrong_costs_epsilon():
    y = np.array([0, 1])
    assert log_loss(y, np.eye(2)) == 0.0
    assert expected_calibration_error(y, np.eye(2)) == 0.0
    assert log_loss(y, np.eye(2)[::-1]) == pytest.approx(-np.log(np.finfo(np.float64).eps))
    assert log_loss(y, np.eye(2, dtype=np.float32)[::-1]) == pytest.approx(-np.log(np.finfo(np.float32).eps))


def test_a_class_may_be_missing_when_classes_are_given():
    proba = np.array([[0.5, 0.25, 0.25], [0.1, 0.8, 0.1]])
    assert error_rate([5, 7], proba, classes=[5, 7, 9]) == 0.0
    with pytest.raises(ValueError, match="pass classes"):
        error_rate([5, 7], proba)
    with pytest.raises(ValueError, match="every class"):
        auc([5, 7], proba, classes=[5, 7, 9])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: error_rate(LABELS, PROBA[:3]), "3 rows"),
        (lambda: log_loss(LABELS, 2 * PROBA), "between 0 and 1"),
        (lambda: log_loss(LABELS, np.full((4, 2), 0.4)), "sum to one"),
        (lambda: log_loss(LABELS, np.full(4, np.nan)), "between 0 and 1"),
        (lambda: auc(LABELS, np.ones((4, 1))), "at least 2"),
        (lambda: error_rate(LABELS, PROBA, classes=[0, 2]), r"not among the classes: \[1\]"),
        (lambda: expected_calibration_error(LABELS, PROBA, n_bins=0), "n_bins"),
    ],
)
def test_bad_arguments_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()
