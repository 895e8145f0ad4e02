"""The picture of a fit of one feature."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from candid import ExactGPRegressor
from candid.plots import fit_1d


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    x = np.sort(rng.uniform(-2, 2, 25))
    return x, np.sin(2 * x) + 0.2 * rng.normal(size=25)


@pytest.fixture(scope="module")
def gp(table):
    x, y = table
    return ExactGPRegressor(max_epochs=3, random_state=0).fit(x[:, None], y)


def heights(ax):
    """Lower and upper edges of the bands, on the grid of the mean line."""
    edges = []
    for band in ax.collections[:2]:
        corners = band.get_paths()[0].vertices
        grid = ax.get_lines()[0].get_xdata()
        edges.append([[f(corners[np.isclose(corners[:, 0], x), 1]) for x in grid] for f in (np.min, np.max)])
    return np.array(edges)


def test_mean_and_bands(gp, table):
    x, y = table
    ax = fit_1d(gp, x, y)
    grid, mean = ax.get_lines()[0].get_data()
    np.testing.assert_allclose(mean, gp.predict(grid[:, None]), rtol=1e-12)
    p = gp.predict_distribution(grid[:, None])
    outer, inner = heights(ax)
    np.testing.assert_allclose(outer, p.interval(0.95), rtol=1e-9)
    np.testing.assert_allclose(inner[1] - inner[0], 2 * 1.959964 * p.latent_std, rtol=1e-5)
    assert grid[0] < x.min()
    assert grid[-1] > x.max()
    np.testing.assert_allclose(ax.collections[2].get_offsets(), np.column_stack([x, y]))


def test_data_frames_give_their_name_and_no_warning(table):
    x, y = table
    frame = pd.DataFrame({"depth": x})
    gp = ExactGPRegressor(max_epochs=1, random_state=0).fit(frame, y)
    ax = fit_1d(gp, frame, y)
    assert ax.get_xlabel() == "depth"


def test_errors(gp, table):
    x, y = table
    with pytest.raises(ValueError, match="one feature"):
        fit_1d(gp, np.column_stack([x, x]), y)
    with pytest.raises(ValueError, match="one target"):
        fit_1d(gp, x, np.column_stack([y, y]))
