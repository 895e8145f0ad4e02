"""Functions that are observed without noise: the evidence would like kernels of which float32 has no digits."""

from __future__ import annotations

import numpy as np
import pytest

from candid import make_gp


def smooth(X):
    return X[:, 0] ** 2 + X[:, 1]


@pytest.mark.parametrize("method", ["svgp", "ppgpr-chol", "dcsvgp", "dspp"])
def test_new_rows_are_predicted_closely_and_with_confidence(method):
    generator = np.random.default_rng(0)
    X, new = generator.normal(size=(200, 2)), generator.normal(size=(500, 2))
    model = make_gp(method, random_state=0, verbose=False).fit(X, smooth(X))
    predicted, scale = model.predict_distribution(new), smooth(new).std()
    assert np.median(np.abs(predicted.mean - smooth(new))) < 0.01 * scale
    # Near the least noise that can be learned, which is one per cent.
    assert np.median(predicted.std) < 0.03 * scale
