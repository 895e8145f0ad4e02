"""The picture of z-scores shows their density, tails included, and says what it leaves out."""

from __future__ import annotations

import numpy as np
import pytest
from matplotlib.figure import Figure
from scipy.stats import norm

from candid.metrics import wasserstein_to_normal, z_scores
from candid.plots import zscores
from candid.predictive import PredictiveMixture, PredictiveNormal


def scored(z):
    """Targets and a model for which the z-scores are ``z``."""
    return np.asarray(z, dtype=float), PredictiveNormal(np.zeros(np.shape(z)), 0.6, 0.8)


def texts(ax):
    return [text.get_text() for text in ax.get_legend().get_texts()]


def area(ax, line=0):
    return np.trapezoid(*ax.get_lines()[line].get_data()[::-1])


def test_density_of_few_scores_is_a_mean_of_triangles():
    z = np.array([-2.0, -0.5, 0.0, 0.7, 1.5])
    grid, density = zscores(*scored(z)).get_lines()[0].get_data()
    step = grid[1] - grid[0]
    # Quartiles at −0.5 and 0.7
    half_width = round(1.8 * 1.2 / (2 * norm.ppf(0.75)) * 5**-0.2 / step) * step
    triangles = np.clip(1 - np.abs(grid[:, None] - z) / half_width, 0, None) / half_width
    # Scores are moved by half a step at most
    np.testing.assert_allclose(density, triangles.mean(1), atol=0.5 * step / half_width**2)


def test_density_of_many_scores_is_theirs():
    for scale in (0.3, 1.0, 2.0):
        z = scale * norm.ppf((np.arange(20_000) + 0.5) / 20_000)
        ax = zscores(*scored(z))
        grid, density = ax.get_lines()[0].get_data()
        np.testing.assert_allclose(density, norm.pdf(grid, scale=scale), atol=0.01 / scale)


def test_several_models_with_their_distances():
    y, honest = scored(np.random.default_rng(0).normal(size=200))
    models = {
        "honest": honest,
        "too sure": PredictiveNormal(honest.mean, 0.5),
        "mixture": PredictiveMixture(np.tile([-0.5, 0.5], (200, 1)), np.full((200, 2), 0.9)),
    }
    ax = zscores(y, models)
    distances = [f"{name}  W₁ = {wasserstein_to_normal(z_scores(y, p)):.3f}" for name, p in models.items()]
    assert texts(ax) == [*distances, "N(0, 1)"]
    assert len({line.get_color() for line in ax.get_lines()}) == 3
    for position in range(3):
        assert area(ax, position) == pytest.approx(1, abs=1e-3)
    corners = ax.collections[0].get_paths()[0].vertices
    x, height = corners[corners[:, 1] > 0].T
    np.testing.assert_allclose(height, norm.pdf(x), rtol=1e-12)


def test_scores_that_are_not_drawn_are_told():
    z = np.append(norm.ppf((np.arange(96) + 0.5) / 96), [-40, 7, 30, 1000])
    ax = zscores(*scored(z))
    assert ax.get_xlim() == (-6, 6)
    assert texts(ax)[0].splitlines()[1] == "4 % beyond ±6"
    assert area(ax) == pytest.approx(0.96, abs=1e-3)


def test_tails_stay_where_they_are():
    ax = zscores(*scored(np.append(np.linspace(-1, 1, 99), 4.5)))
    grid, density = ax.get_lines()[0].get_data()
    assert (density[(grid > 2) & (grid < 3.5)] == 0).all()
    # One of a hundred scores, all of it on the axis
    assert np.trapezoid(density[grid > 3.5], grid[grid > 3.5]) == pytest.approx(0.01, rel=1e-6)


def test_point_masses():
    y = np.array([0.0, 0.0, 0.0, 1.0])
    ax = zscores(y, PredictiveNormal(np.zeros(4), 0.0))
    assert texts(ax)[0] == "model  W₁ = inf\n25 % beyond ±6"
    assert area(ax) == pytest.approx(0.75)
    ax = zscores(y, PredictiveNormal(np.full(4, 7.0), 0.0))
    assert area(ax) == 0


def test_several_outputs_are_pooled():
    z = np.random.default_rng(1).normal(size=(50, 2))
    ax, flat = zscores(*scored(z)), zscores(*scored(z.ravel()))
    np.testing.assert_array_equal(ax.get_lines()[0].get_ydata(), flat.get_lines()[0].get_ydata())
    assert ax.get_title(loc="left") == "z-scores on 50 rows"


def test_given_axes_are_used_and_saved(tmp_path):
    ax = Figure().add_subplot()
    assert zscores(*scored([0.1, -0.2]), ax) is ax
    ax.figure.savefig(tmp_path / "picture.png")
    assert (tmp_path / "picture.png").read_bytes().startswith(b"\x89PNG")


def test_errors():
    y, p = scored([0.1, -0.2, 0.3])
    with pytest.raises(ValueError, match="shape"):
        zscores(y[:-1], p)
    with pytest.raises(ValueError, match="NaN"):
        zscores([0.1, np.nan, 0.3], p)
