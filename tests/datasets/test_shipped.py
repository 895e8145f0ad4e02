from __future__ import annotations

import numpy as np
import pytest
import sklearn.datasets

from candid.datasets import load


@pytest.mark.parametrize(
    ("name", "loader", "n_classes"),
    [
        ("diabetes", sklearn.datasets.load_diabetes, None),
        ("breast_cancer", sklearn.datasets.load_breast_cancer, 2),
        ("iris", sklearn.datasets.load_iris, 3),
        ("wine_recognition", sklearn.datasets.load_wine, 3),
        ("digits", sklearn.datasets.load_digits, 10),
    ],
)
def test_shipped_data_set(name, loader, n_classes):
    X, y = loader(return_X_y=True)
    data = load(name)
    np.testing.assert_array_equal(data.X, X)
    np.testing.assert_array_equal(data.y, y)
    assert data.X.dtype == np.float64
    assert len(data.feature_names) == X.shape[1]
    assert all(isinstance(feature, str) for feature in data.feature_names)
    assert data.target_names == ("y",)
    assert data.description
    assert data.licence
    if n_classes is None:
        assert (data.task, data.classes, data.y.dtype) == ("regression", None, np.float64)
    else:
        assert data.task == "classification"
        assert data.y.dtype == np.int64
        assert data.classes is not None
        assert len(data.classes) == n_classes


def test_target_of_a_shipped_data_set():
    assert load("iris", target="y").y.shape == (150,)
    with pytest.raises(ValueError, match="has no target 'y_petal'"):
        load("iris", target="y_petal")
