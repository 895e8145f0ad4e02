"""Data sets by name, and splits by seed."""

from __future__ import annotations

from candid.datasets.dataset import Dataset
from candid.datasets.loading import available, load
from candid.datasets.splits import k_folds, train_test_validation_split

__all__ = ["Dataset", "available", "k_folds", "load", "train_test_validation_split"]
