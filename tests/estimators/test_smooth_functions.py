"""Functions that are observed without noise: the evidence would like kernels of which float32 has no digits."""

from __future__ import annotations

import numpy as np
import pytest

from candid import make_gp


def smooth(X):
    return X[:, 0] ** 2 + X[:, 1]


# A deep model ends a little elsewhere whenever sums are rounded in another way: 0.0003 to 0.012 in four fits.
@pytest.mark.parametrize(
    ("method", "error", "deviation"),
    [("svgp", 0.01, 0.03), ("ppgpr-chol", 0.01, 0.03), ("dcsvgp", 0.01, 0.03), ("dspp", 0.02, 0.04)],
)
def test_new_rows_are_predicted_closely_and_with_confidence(method, error, deviation):
    generator = np.random.default_rng(0)
    X, new = generator.normal(size=(200, 2)), generator.normal(size=(500, 2))
    model = make_gp(method, random_state=0, verbose=False).fit(X, smooth(X))
    predicted, scale = model.predict_distribution(new), smooth(new).std()
    assert np.median(np.abs(predicted.mean - smooth(new))) < error * scale
    # Near the least noise that can be learned, which is one per cent.
    assert np.median(predicted.std) < deviation * scale


@pytest.mark.parametrize("options", [{}, {"alpha": 0.0}], ids=["learned noise", "no noise"])
def test_an_exact_gp_knows_how_much_it_does_not_know(options):
    """With a kernel of any size, what is left of the prior variance would be rounding errors, or nothing."""
    generator = np.random.default_rng(0)
    X, new = generator.uniform(-2, 2, size=(80, 2)), generator.uniform(-1.9, 1.9, size=(300, 2))
    y, truth = (np.sin(2 * x[:, 0]) + 0.5 * x[:, 1] ** 2 for x in (X, new))
    predicted = make_gp("exact", random_state=0, **options).fit(X, y).predict_distribution(new)
    assert (predicted.latent_std > 0).all()
    assert np.abs(truth - predicted.mean).max() < 0.05 * truth.std()
    assert np.mean(np.abs(truth - predicted.mean) < 1.96 * predicted.std) > 0.9
