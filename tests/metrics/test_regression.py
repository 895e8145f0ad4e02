from __future__ import annotations

import numpy as np
import pytest

from candid.metrics import coverage, crps, mrmse, nll, noise_share, rmse, summary
from candid.predictive import PredictiveBernoulli, PredictiveMixture, PredictiveNormal

RNG = np.random.default_rng(0)
Y = RNG.normal(size=(30, 2))
NORMAL = PredictiveNormal(RNG.normal(size=(30, 2)), 0.5 + RNG.random((30, 2)), 0.4)
MIXTURE = PredictiveMixture(RNG.normal(size=(30, 2, 3)), 0.5 + RNG.random((30, 2, 3)), 0.4)


@pytest.mark.parametrize("p", [NORMAL, MIXTURE], ids=["normal", "mixture"])
def test_scores_average_over_outputs_and_rows(p):
    assert nll(Y, p) == pytest.approx(-p.log_prob(Y).mean(), rel=1e-13)
    assert crps(Y, p) == pytest.approx(p.crps(Y).mean(), rel=1e-13)
    probability = p.cdf(Y)
    assert coverage(Y, p, 0.5) == pytest.approx(np.mean((probability > 0.25) & (probability < 0.75)), rel=1e-13)
    assert noise_share(p) == pytest.approx(np.mean(0.16 / p.std**2), rel=1e-13)


def test_classes_have_metrics_of_their_own():
    p = PredictiveBernoulli([0.8, 0.5], ["no", "yes"])
    with pytest.raises(ValueError, match="log_loss, error_rate and auc"):
        summary(["no", "yes"], p)


@pytest.mark.parametrize("metric", [nll, crps, rmse, mrmse, coverage, lambda y, p, **k: noise_share(p, **k)])
def test_integer_weights_repeat_rows(metric):
    count = np.arange(30) % 3
    repeated = np.repeat(np.arange(30), count)
    expected = metric(Y[repeated], NORMAL[repeated])
    assert metric(Y, NORMAL, sample_weight=count) == pytest.approx(expected, rel=1e-12)


def test_rmse_of_several_outputs():
    p = PredictiveNormal(np.zeros((2, 2)), 1.0)
    y = np.array([[3.0, 4.0], [3.0, 4.0]])
    assert rmse(y, p) == pytest.approx(np.sqrt(12.5))
    assert rmse(y, p, outputs="sum") == pytest.approx(5.0)
    assert mrmse(y, p) == pytest.approx(3.5)
    with pytest.raises(ValueError, match="outputs"):
        rmse(y, p, outputs="max")


@pytest.mark.parametrize("scale", [2.5, np.array([0.5, 4.0])], ids=["one", "per-output"])
def test_standardised_units_are_those_of_scaled_data(scale):
    scaled = PredictiveNormal(NORMAL.mean / scale, NORMAL.latent_std / scale, NORMAL.noise_std / scale)
    expected = summary(Y / scale, scaled)
    assert summary(Y, NORMAL, scale=scale) == pytest.approx(expected, rel=1e-12)
    assert mrmse(Y, NORMAL, scale=scale) == pytest.approx(mrmse(Y / scale, scaled), rel=1e-12)


def test_standardised_nll_of_one_output():
    p = NORMAL[:30]
    single = PredictiveNormal(p.mean[:, 0], p.latent_std[:, 0], 0.4)
    assert nll(Y[:, 0], single, scale=3.0) == pytest.approx(nll(Y[:, 0], single) - np.log(3.0), rel=1e-12)
    assert crps(Y[:, :1], single, scale=[3.0]) == pytest.approx(crps(Y[:, 0], single) / 3.0, rel=1e-12)


def test_summary_names():
    result = summary(Y, NORMAL)
    assert list(result) == ["nll", "crps", "rmse", "coverage", "noise_share"]
    assert all(type(value) is float for value in result.values())


def test_truth_beats_a_wrong_spread():
    y = np.random.default_rng(1).normal(size=4000)
    truth = PredictiveNormal(np.zeros(4000), 0.6, 0.8)
    assert coverage(y, truth, 0.9) == pytest.approx(0.9, abs=0.02)
    for noise in (0.1, 2.0):
        wrong = PredictiveNormal(np.zeros(4000), 0.6, noise)
        assert nll(y, truth) < nll(y, wrong)
        assert crps(y, truth) < crps(y, wrong)


def test_noise_share_of_certain_rows_is_zero():
    assert noise_share(PredictiveNormal([0.0, 0.0], [0.0, 3.0], [0.0, 4.0])) == pytest.approx(0.5 * 16 / 25)


def test_rows_of_weight_zero_do_not_count():
    p = PredictiveNormal([0.0, 0.0], [0.0, 1.0])
    assert nll([5.0, 0.0], p) == np.inf
    assert nll([5.0, 0.0], p, sample_weight=[0, 1]) == pytest.approx(0.5 * np.log(2 * np.pi))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: nll(0.0, NORMAL), "y has shape"),
        (lambda: crps(Y[:, 0], NORMAL), "y has shape"),
        (lambda: rmse(np.full((30, 2), np.nan), NORMAL), "NaN"),
        (lambda: nll(Y, NORMAL, sample_weight=np.ones(3)), "30 rows"),
        (lambda: nll(Y, NORMAL, sample_weight=np.zeros(30)), "positive"),
        (lambda: nll(Y, NORMAL, sample_weight=-np.ones(30)), "non-negative"),
        (lambda: nll(Y, NORMAL, scale=0.0), "positive"),
        (lambda: nll(Y, NORMAL, scale=np.ones(3)), "one per output"),
        (lambda: nll(Y[:0], NORMAL[:0]), "no rows"),
        (lambda: noise_share(NORMAL[:0]), "no rows"),
    ],
)
def test_bad_arguments_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize("metric", [nll, crps, rmse])
def test_numbers_are_no_distribution(metric):
    with pytest.raises(ValueError, match="ndarray is no distribution"):
        metric(np.zeros(3), np.zeros(3))
