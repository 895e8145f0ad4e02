"""The picture of the noise share shows each row's, in order, and the mean."""

from __future__ import annotations

import numpy as np
import pytest
from matplotlib.figure import Figure

from candid.metrics import noise_share
from candid.plots import variance_share
from candid.predictive import PredictiveMixture, PredictiveNormal


def texts(ax):
    return [text.get_text() for text in ax.get_legend().get_texts()]


def test_shares_of_a_few_rows_in_order():
    p = PredictiveNormal(np.zeros(4), [2.0, 0.0, 1.0, 3.0], 1.0)
    ax = variance_share(p)
    line = ax.get_lines()[0]
    assert line.get_drawstyle() == "steps-pre"
    x, shares = line.get_data()
    np.testing.assert_allclose(x, [0, 0.25, 0.5, 0.75, 1])
    # 1 / (1 + latent²); the first step ends at a quarter of the rows
    np.testing.assert_allclose(shares, [0.1, 0.1, 0.2, 0.5, 1.0])
    assert texts(ax) == ["model  mean 0.45"]
    assert ax.get_title(loc="left") == "Noise share on 4 rows"


def test_several_models_with_their_means():
    rng = np.random.default_rng(0)
    latent = rng.gamma(2.0, size=(70, 2))
    models = {
        "normal": PredictiveNormal(np.zeros(70), latent[:, 0], 0.5),
        "outputs": PredictiveNormal(np.zeros((70, 2)), latent, 0.5),
        # The distance between the sites is the model's uncertainty, too.
        "mixture": PredictiveMixture(np.tile([-1.0, 1.0], (70, 1)), latent, rng.uniform(size=(70, 2))),
    }
    ax = variance_share(models)
    assert texts(ax) == [f"{name}  mean {noise_share(p):.2f}" for name, p in models.items()]
    for line, p in zip(ax.get_lines(), models.values(), strict=True):
        x, shares = line.get_data()
        np.testing.assert_allclose(shares[1:], np.sort((p.noise_std**2 / p.std**2).ravel()), rtol=1e-12)
        # The area below the steps
        assert np.diff(x) @ shares[1:] == pytest.approx(noise_share(p))
    assert len({line.get_color() for line in ax.get_lines()}) == 3


def test_many_rows_are_read_on_a_grid():
    latent = np.random.default_rng(1).gamma(2.0, size=30_001)
    p = PredictiveNormal(np.zeros(len(latent)), latent, 1.0)
    x, shares = variance_share(p).get_lines()[0].get_data()
    assert len(x) < 1100
    extremes = 1 / (1 + np.array([latent.max(), latent.min()]) ** 2)
    np.testing.assert_allclose(shares[[0, -1]], extremes, rtol=1e-12)
    assert np.diff(x) @ shares[1:] == pytest.approx(noise_share(p), abs=1e-3)


def test_rows_without_uncertainty_count_as_zero():
    p = PredictiveNormal(np.zeros(2), 0.0, [0.0, 1.0])
    np.testing.assert_array_equal(variance_share(p).get_lines()[0].get_ydata(), [0, 0, 1])


def test_given_axes_are_used_and_saved(tmp_path):
    ax = Figure().add_subplot()
    assert variance_share(PredictiveNormal(np.zeros(3), 1.0, 1.0), ax) is ax
    ax.figure.savefig(tmp_path / "picture.png")
    assert (tmp_path / "picture.png").read_bytes().startswith(b"\x89PNG")
