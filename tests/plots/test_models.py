"""What all pictures of several models check."""

from __future__ import annotations

import numpy as np
import pytest

from candid.plots import calibration, variance_share, zscores
from candid.plots.models import named_predictions
from candid.predictive import PredictiveNormal

Y = np.zeros(3)
P = PredictiveNormal(Y, 1.0)
PICTURES = [
    lambda predictions: calibration(Y, predictions),
    lambda predictions: zscores(Y, predictions),
    variance_share,
]


def test_one_model_has_a_name_and_several_keep_theirs():
    assert named_predictions(P) == ({"model": P}, 3)
    assert list(named_predictions({"b": P, "a": P})[0]) == ["b", "a"]


@pytest.mark.parametrize("picture", PICTURES)
def test_errors(picture):
    with pytest.raises(ValueError, match="no predictions"):
        picture({})
    with pytest.raises(TypeError, match=r"'svgp' are ndarray.*predict_distribution"):
        picture({"svgp": Y})
    with pytest.raises(ValueError, match=r"same rows.*'a': 3, 'b': 2"):
        picture({"a": P, "b": P[:2]})
    with pytest.raises(ValueError, match="no rows"):
        picture(P[:0])
