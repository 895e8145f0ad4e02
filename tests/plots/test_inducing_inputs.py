"""The picture of sampled inducing inputs."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from matplotlib.contour import ContourSet

from candid.plots import inducing_inputs

RNG = np.random.default_rng(0)
X = RNG.normal(size=(30, 3)) * [1.0, 10.0, 1.0] + [0.0, 50.0, 0.0]
Y = np.where(X[:, 0] > 0, "a", "b")


def model(z: np.ndarray, name: str = "z", **more) -> SimpleNamespace:
    """What the picture needs of a fitted estimator; the second feature was standardised."""
    scaling = {"x_shift": torch.tensor([0.0, 50.0, 0.0]), "x_scale": torch.tensor([1.0, 10.0, 1.0])}
    return SimpleNamespace(samples_={name: z}, predictor_=SimpleNamespace(**scaling), n_features_in_=3, **more)


def dots(ax):
    return {dots.get_label(): dots for dots in ax.collections if not isinstance(dots, ContourSet)}


def test_samples_are_drawn_in_the_units_of_the_table():
    z = RNG.normal(size=(2, 5, 1, 4, 3))
    ax = inducing_inputs(model(z, feature_names_in_=["p", "q", "r"]), X, features=(2, 1))
    drawn = dots(ax)
    places = z.reshape(-1, 3)
    expected = np.column_stack([places[:, 2], 50 + 10 * places[:, 1]])
    np.testing.assert_allclose(drawn["samples of Z"].get_offsets(), expected, rtol=1e-6)
    np.testing.assert_allclose(drawn["rows"].get_offsets(), X[:, [2, 1]])
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("r", "q")


def test_the_density_is_high_where_the_samples_are():
    z = np.concatenate([RNG.normal(-2, 0.2, size=(1, 200, 1, 1, 3)), RNG.normal(2, 0.2, size=(1, 200, 1, 1, 3))], 3)
    ax = inducing_inputs(model(z, "hidden.0.z"), X, Y)
    (contours,) = (part for part in ax.collections if isinstance(part, ContourSet))
    highest = contours.get_paths()[-1].vertices
    highest = (highest - [0.0, 50.0]) / [1.0, 10.0]
    assert (np.abs(np.abs(highest) - 2) < 0.5).all()
    assert {"a", "b"} <= dots(ax).keys()


def test_points_on_a_line_have_no_density():
    z = np.zeros((1, 5, 1, 2, 3))
    assert not any(isinstance(part, ContourSet) for part in inducing_inputs(model(z), X).collections)


def test_errors():
    z = RNG.normal(size=(1, 5, 1, 2, 3))
    with pytest.raises(ValueError, match="no samples of inducing inputs"):
        inducing_inputs(model(z, "u"), X)
    with pytest.raises(ValueError, match="rows of 3 features"):
        inducing_inputs(model(z), X[:, :2])
    with pytest.raises(ValueError, match="two columns of X"):
        inducing_inputs(model(z), X, features=(0, 3))
    with pytest.raises(ValueError, match="one label for each row"):
        inducing_inputs(model(z), X, Y[:-1])
