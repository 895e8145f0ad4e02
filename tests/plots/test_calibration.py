"""The calibration picture shows what the metrics say."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure

from candid.metrics import calibration_curve, wasserstein_to_normal, z_scores
from candid.plots import calibration
from candid.predictive import PredictiveNormal


def rows(n=60, seed=0):
    rng = np.random.default_rng(seed)
    mean = rng.normal(size=n)
    return mean + rng.normal(size=n), mean


def lines(ax):
    return {line.get_label(): line for line in ax.get_lines()}


def test_several_models_with_their_distances():
    y, mean = rows()
    models = {"honest": PredictiveNormal(mean, 1.0), "too sure": PredictiveNormal(mean, 0.4)}
    ax = calibration(y, models)
    texts = [text.get_text() for text in ax.get_legend().get_texts()]
    for name, p in models.items():
        label = f"{name}  W₁ = {wasserstein_to_normal(z_scores(y, p)):.3f}"
        assert label in texts
        x, observed = lines(ax)[label].get_data()
        levels, shares = calibration_curve(y, p)
        np.testing.assert_array_equal(x[1:-1], levels)
        np.testing.assert_array_equal(observed[1:-1], shares)
        assert (x[0], observed[0], x[-1], observed[-1]) == (0, 0, 1, 1)
    x, identity = lines(ax)["perfectly calibrated"].get_data()
    np.testing.assert_array_equal(x, identity)
    colours = [lines(ax)[text].get_color() for text in texts[:2]]
    assert colours[0] != colours[1]


def test_band_holds_a_calibrated_model_and_not_an_overconfident_one():
    y, mean = rows(400)
    ax = calibration(y, PredictiveNormal(mean, 1.0))
    (band,) = [c for c in ax.collections if isinstance(c, PolyCollection)]
    corners = band.get_paths()[0].vertices
    reach = (corners[:, 1] - corners[:, 0]).max()
    assert reach == pytest.approx(1.358 / 20, rel=0.02)  # asymptotic 95 % point of Kolmogorov's distribution, over √N
    for scale, inside in ((1.0, True), (0.4, False)):
        levels, shares = calibration_curve(y, PredictiveNormal(mean, scale))
        assert (np.abs(shares - levels).max() < reach) == inside


def test_many_rows_are_read_on_a_grid():
    y, mean = rows(5000)
    ax = calibration(y, PredictiveNormal(mean, 1.0))
    x, observed = ax.get_lines()[0].get_data()
    assert len(x) < 1100
    assert np.abs(x - observed).max() < 0.03


def test_given_axes_are_used():
    y, mean = rows()
    ax = Figure().add_subplot()
    assert calibration(y, PredictiveNormal(mean, 1.0), ax) is ax


def test_draws_without_pyplot(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    y, mean = rows()
    calibration(y, PredictiveNormal(mean, 1.0)).figure.savefig(tmp_path / "picture.png")
    assert (tmp_path / "picture.png").read_bytes().startswith(b"\x89PNG")


def test_without_matplotlib_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    y, mean = rows()
    with pytest.raises(ImportError, match=r"pip install candid-gp\[report\]"):
        calibration(y, PredictiveNormal(mean, 1.0))


def test_errors():
    y, mean = rows()
    with pytest.raises(ValueError, match="no predictions"):
        calibration(y, {})
    with pytest.raises(ValueError, match="shape"):
        calibration(y[:-1], PredictiveNormal(mean, 1.0))
