from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from candid.datasets import k_folds, train_test_validation_split


@settings(max_examples=60, deadline=None)
@given(n=st.integers(3, 400), seed=st.integers(0, 10))
def test_parts_are_disjoint_complete_and_not_empty(n, seed):
    parts = train_test_validation_split(n, seed)
    assert all(len(part) for part in parts)
    assert sorted(np.concatenate(parts)) == list(range(n))


@pytest.mark.parametrize(
    ("n", "proportions", "sizes"),
    [
        (20, (15, 3, 2), (15, 3, 2)),
        (15000, (15, 3, 2), (11250, 2250, 1500)),
        (10, (15, 3, 2), (7, 2, 1)),  # 1.5 and 1 rows: half up
        (3, (15, 3, 2), (1, 1, 1)),
        (4, (15, 3, 2), (2, 1, 1)),
        (4, (1, 100, 100), (1, 1, 2)),
        (10, (9, 1, 0), (9, 1, 0)),
        (5, (1, 0, 0), (5, 0, 0)),
        (10, (0.8, 0.1, 0.1), (8, 1, 1)),
    ],
)
def test_sizes(n, proportions, sizes):
    assert tuple(map(len, train_test_validation_split(n, 0, proportions))) == sizes


def test_seed_decides_the_split():
    first, again, other = (train_test_validation_split(100, seed) for seed in (1, 1, 2))
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))
    assert not np.array_equal(first[0], other[0])
    assert not np.array_equal(first[0], np.sort(first[0]))


def test_split_is_the_same_on_every_machine():
    assert train_test_validation_split(8, seed=0)[0].tolist() == np.random.default_rng(0).permutation(8)[:6].tolist()


@pytest.mark.parametrize("n", [0, 2])
def test_too_few_rows(n):
    with pytest.raises(ValueError, match=f"at least 3 rows, got {n}"):
        train_test_validation_split(n, 0)


@pytest.mark.parametrize("proportions", [(1, 1), (0, 1, 1), (1, -1, 1), (1, float("nan"), 1)])
def test_bad_proportions(proportions):
    with pytest.raises(ValueError, match="proportions"):
        train_test_validation_split(10, 0, proportions)


@pytest.mark.parametrize(("n", "k"), [(10, 3), (7, 7), (100, 10), (2, 2)])
def test_folds_test_every_row_once(n, k):
    folds = k_folds(n, k, seed=3)
    assert len(folds) == k
    assert sorted(np.concatenate([test for _, test in folds])) == list(range(n))
    for train, test in folds:
        assert sorted(np.concatenate([train, test])) == list(range(n))
    sizes = [len(test) for _, test in folds]
    assert max(sizes) - min(sizes) <= 1


def test_folds_depend_on_the_seed():
    assert np.array_equal(k_folds(50, 5, 1)[0][1], k_folds(50, 5, 1)[0][1])
    assert not np.array_equal(k_folds(50, 5, 1)[0][1], k_folds(50, 5, 2)[0][1])


@pytest.mark.parametrize(("n", "k"), [(5, 1), (5, 6)])
def test_bad_number_of_folds(n, k):
    with pytest.raises(ValueError, match="number of folds"):
        k_folds(n, k)
