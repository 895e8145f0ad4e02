"""The small data sets that scikit-learn ships: they need neither a file nor a network."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import sklearn.datasets

from candid.datasets.dataset import Dataset
from candid.datasets.targets import choose_targets

__all__ = ["SHIPPED", "load_shipped"]

_CC_BY = "CC BY 4.0 (UCI repository terms)"


@dataclass(frozen=True)
class _Shipped:
    loader: Callable[..., Any]
    task: str
    description: str
    licence: str


SHIPPED = {
    "diabetes": _Shipped(
        sklearn.datasets.load_diabetes,
        "regression",
        "Progression of diabetes one year after ten baseline measurements, which are centred and scaled "
        "(Efron, Hastie, Johnstone and Tibshirani 2004)",
        "unknown (public research data)",
    ),
    "breast_cancer": _Shipped(
        sklearn.datasets.load_breast_cancer,
        "classification",
        "UCI Breast Cancer Wisconsin (Diagnostic): 30 measurements of cell nuclei, malignant or benign",
        _CC_BY,
    ),
    "iris": _Shipped(
        sklearn.datasets.load_iris,
        "classification",
        "Fisher's iris flowers: four lengths and widths, three species",
        _CC_BY,
    ),
    "wine_recognition": _Shipped(
        sklearn.datasets.load_wine,
        "classification",
        "UCI Wine: 13 chemical measurements of wines from three growers (not the wine quality data)",
        _CC_BY,
    ),
    "digits": _Shipped(
        sklearn.datasets.load_digits,
        "classification",
        "Test part of the UCI Optical Recognition of Handwritten Digits: images of 8×8 grey values from 0 to 16",
        _CC_BY,
    ),
}


def load_shipped(name: str, target: str | Sequence[str] | None = None) -> Dataset:
    """One of :data:`SHIPPED` in the same form as a data set from a file; the target is called ``y``."""
    entry = SHIPPED[name]
    bunch = entry.loader()
    is_class = entry.task == "classification"
    return Dataset(
        name=name,
        X=np.asarray(bunch.data, dtype=np.float64),
        y=np.asarray(bunch.target, dtype=np.int64 if is_class else np.float64),
        feature_names=tuple(map(str, bunch.feature_names)),
        target_names=choose_targets(name, ["y"], [is_class], target),
        task=entry.task,
        classes=tuple(map(str, bunch.target_names)) if is_class else None,
        description=entry.description,
        licence=entry.licence,
    )
