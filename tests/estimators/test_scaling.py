"""Standardisation of columns with gaps, and of constant ones."""

from __future__ import annotations

import numpy as np

from candid.estimators.scaling import Standardizer


def test_columns_that_are_missing_where_others_are_large():
    """Their mean and deviation are those of all rows, as far as other columns tell."""
    rng = np.random.default_rng(0)
    first = rng.normal(size=5000)
    whole = np.column_stack([first, 100 + 20 * first + rng.normal(size=5000)])
    values = whole.copy()
    values[first > 0.5, 1] = np.nan
    found = Standardizer.fit(values, np.ones(5000))
    np.testing.assert_allclose(found.shift, [first.mean(), 100], atol=0.6)
    np.testing.assert_allclose(found.scale, [1, 20], rtol=0.03)
    assert abs(np.nanmean(values[:, 1]) - 100) > 8


def test_constant_columns_keep_their_unit_however_long_they_are():
    """A mean of many equal numbers is not that number, and what is left of it is no deviation."""
    for n_rows in (3, 230, 1227, 20_000):
        for n_columns in (1, 2, 8):
            found = Standardizer.fit(np.full((n_rows, n_columns), 5.3), np.ones(n_rows))
            np.testing.assert_array_equal(found.scale, 1)
            np.testing.assert_array_equal(found.shift, 5.3)


def test_gaps_in_a_constant_column():
    values = np.array([[1.0, 3.0], [2.0, np.nan], [3.0, 3.0], [np.nan, 3.0]])
    found = Standardizer.fit(values, np.ones(4))
    np.testing.assert_allclose(found.shift, [2, 3])
    assert found.scale[1] == 1
    assert found.scale[0] > 0.5
