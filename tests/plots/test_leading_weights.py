"""The picture of quadrature weights counts models by their largest weights."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from matplotlib.figure import Figure

from candid.plots import leading_weights

WEIGHTS = np.array([[0.1, 0.62, 0.28], [0.33, 0.34, 0.33], [0.01, 0.02, 0.97]])


def heights(ax, rank):
    """Left edges of the bars of a histogram that are not empty, and their heights."""
    bars = [bar for bar in ax.containers[rank] if bar.get_height()]
    return {round(bar.get_x(), 2): bar.get_height() for bar in bars}


def test_models_are_counted_by_rank():
    ax = leading_weights([SimpleNamespace(quadrature_weights_=WEIGHTS[0]), *WEIGHTS[1:]], n_leading=2)
    assert heights(ax, 0) == {0.3: 1, 0.6: 1, 0.95: 1}
    assert heights(ax, 1) == {0.0: 1, 0.25: 1, 0.3: 1}
    assert ax.get_lines()[0].get_xdata() == pytest.approx([1 / 3, 1 / 3])
    labels = {text.get_text() for text in ax.get_legend().get_texts()}
    assert labels == {"largest  mean 0.64", "second largest  mean 0.21", "all sites alike"}
    assert ax.get_title(loc="left") == "Leading weights of 3 models with 3 sites"


def test_given_axes_are_used_and_saved(tmp_path):
    ax = Figure().add_subplot()
    assert leading_weights(WEIGHTS, 1, ax) is ax
    ax.figure.savefig(tmp_path / "picture.png")
    assert (tmp_path / "picture.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("models", "n_leading", "message"),
    [
        ([], 3, "there are no models"),
        ([WEIGHTS[0], WEIGHTS[0][:2]], 1, "as many sites each"),
        ([2 * WEIGHTS[0]], 1, "add up to one"),
        (WEIGHTS, 4, "n_leading must be from 1 to 3 for 3 sites, got 4"),
    ],
)
def test_errors(models, n_leading, message):
    with pytest.raises(ValueError, match=message):
        leading_weights(models, n_leading)
