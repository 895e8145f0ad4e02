"""Splits of N rows that depend on nothing but N and a seed."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

__all__ = ["k_folds", "train_test_validation_split"]


def train_test_validation_split(
    n: int, seed: int = 0, proportions: Sequence[float] = (15, 3, 2)
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Shuffle ``n`` row numbers and deal them out to three disjoint parts that together hold every row.

    Parameters
    ----------
    n
        Number of rows, at least one for each part whose proportion is not zero (three by default).
    seed
        Seed of the shuffle; the same ``n``, ``seed`` and ``proportions`` give the same parts on every machine.
    proportions
        Relative sizes of train, test and validation. They need not sum to anything in particular. Test or validation
        may be 0 and are then empty.

    Returns
    -------
    train, test, validation
        Row numbers in shuffled order. Test and validation have ``n · share`` rows rounded half up, but at least one
        row; train has the rest. Should that leave train with nothing, the larger of the other two gives up rows.
    """
    shares = [float(share) for share in proportions]
    if len(shares) != 3 or not all(math.isfinite(share) and share >= 0 for share in shares) or shares[0] == 0:
        raise ValueError(
            "proportions must be three numbers for train, test and validation, none negative and the first above 0; "
            f"got {tuple(proportions)}"
        )
    parts = sum(share > 0 for share in shares)
    if n < parts:
        raise ValueError(f"a split into {parts} parts needs at least {parts} rows, got {n}")

    total = math.fsum(shares)
    test, validation = (max(1, math.floor(n * share / total + 0.5)) if share > 0 else 0 for share in shares[1:])
    while test + validation >= n:
        if test >= validation:
            test -= 1
        else:
            validation -= 1
    order = np.random.default_rng(seed).permutation(n)
    train = n - test - validation
    return order[:train], order[train : train + test], order[train + test :]


def k_folds(n: int, k: int = 10, seed: int = 0) -> list[tuple[np.ndarray, np.ndarray]]:
    """Pairs ``(train, test)`` of row numbers for cross-validation: every row is tested exactly once.

    Parameters
    ----------
    n
        Number of rows.
    k
        Number of folds, from 2 to ``n``. Fold sizes differ by at most one row.
    seed
        Seed of the shuffle.
    """
    if not 2 <= k <= n:
        raise ValueError(f"the number of folds must be between 2 and the number of rows ({n}), got {k}")
    folds = np.array_split(np.random.default_rng(seed).permutation(n), k)
    return [(np.concatenate(folds[:i] + folds[i + 1 :]), folds[i]) for i in range(k)]
