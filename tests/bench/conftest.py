"""A benchmark that takes a moment."""

from __future__ import annotations

import numpy as np
import pytest

from candid.bench import Budget, Choice, Grid, Spec
from candid.datasets import Dataset

N_ROWS = 60


def small_table(name="waves", n=N_ROWS):
    rng = np.random.default_rng(0)
    x = rng.normal(3.0, 2.0, size=(n, 2))
    y = 100 + 7 * np.sin(x[:, 0]) + 0.5 * rng.normal(size=n)
    return Dataset(name, x, y, ("a", "b"), ("y",), "regression")


@pytest.fixture
def table():
    return small_table()


@pytest.fixture
def spec():
    """One data set, two methods, two splits; β of one of them is chosen."""
    return Spec(
        name="tiny/table",
        title="A tiny table",
        reference="Nobody (2024), Nothing",
        protocol="M = 10",
        published="ppgpr_table3",
        grids={"ppgpr-mf": Grid("beta", (0.05, 1.0))},
        budgets={
            "quick": Budget(("waves",), ("map", "ppgpr-mf"), (0,), 10, max_epochs=2),
            "standard": Budget(("waves",), ("map", "ppgpr-mf"), (0, 1), 10, Choice(5, 1), max_epochs=2),
        },
    )
