"""Both sides of a race get the same time, and only training counts."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from candid.bench import Course, Lap
from candid.bench import race as race_room
from candid.bench.gpytorch_training import PublishedTraining
from candid.bench.protocol import make_parts
from candid.bench.race import CANDID, GPYTORCH, curve
from candid.estimators import make_gp
from candid.methods import find_method


class Clock:
    """Time that only passes when somebody works."""

    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


class FakeTraining:
    """GPyTorch's side: three seconds for each epoch, and its test NLL is 2 minus the epoch."""

    finished = False

    def __init__(self, clock, fails_at=None):
        self.clock, self.epoch, self.fails_at = clock, 0, fails_at
        clock.now += 1.0

    def train_epoch(self):
        self.clock.now += 3.0
        self.epoch += 1
        if self.epoch == self.fails_at:
            raise ArithmeticError("the loss became nan")

    def predict(self, x):
        self.clock.now += 50.0
        return np.zeros(len(x)), np.ones(len(x))


class FakeEstimator:
    """Ours: four seconds to start, two for each of five epochs, and one to finish."""

    def __init__(self, clock, gp, callbacks):
        self.clock, self.gp, self.callbacks = clock, gp, callbacks

    def fit(self, x, y):
        self.clock.now += 4.0
        self.history_ = []
        for epoch in range(1, 6):
            self.clock.now += 2.0
            self.history_.append({"epoch": epoch, "model": self.model})
            if self.callbacks[0](self.history_[-1]):
                break
        self.clock.now += 1.0

    def model(self):
        self.clock.now += 50.0
        return self.gp.predictor_

    def predict_distribution(self, x):
        return self.gp.predict_distribution(x)


@pytest.fixture
def parts(table):
    return make_parts(table, 0, (15, 3, 2))


@pytest.fixture
def run(monkeypatch, parts):
    """``run(seconds)`` races against time that only passes when somebody works, and gives the laps."""

    def race(seconds, fails_at=None):
        clock = Clock()
        gp = make_gp("map", n_inducing=5, max_epochs=0, init="random", verbose=False).fit(parts.x, parts.y)
        monkeypatch.setattr("candid.bench.timing.time.perf_counter", clock)
        monkeypatch.setattr(race_room, "make_gp", lambda *_, callbacks, **__: FakeEstimator(clock, gp, callbacks))
        monkeypatch.setattr(
            "candid.bench.gpytorch_training.PublishedTraining", lambda *_: FakeTraining(clock, fails_at)
        )
        laps = []
        race_room.race(Course("map", 5, seconds), parts, laps.append)
        return laps, gp

    return race


def seconds(laps, who):
    return curve(laps, who)[0]


def test_they_take_turns_and_only_training_counts(run, parts):
    laps, gp = run(30.0)
    assert seconds(laps, CANDID) == [6, 8, 10, 12, 14, 15]
    assert seconds(laps, GPYTORCH) == [4, 7, 10, 13, 16, 19, 22, 25, 28, 31]
    # After six seconds of ours, GPyTorch has 1 + 3 + 3, and waits for our eight.
    assert [lap.who[0] for lap in laps[:6]] == ["c", "G", "G", "c", "G", "c"]
    p = gp.predict_distribution(parts.x_test)
    assert laps[0].nll == pytest.approx(-np.mean(p.log_prob(parts.y_test)), rel=1e-9)
    assert laps[0].rmse == pytest.approx(np.sqrt(np.mean((p.mean - parts.y_test) ** 2)), rel=1e-9)
    # GPyTorch's side says N(0, 1).
    assert laps[1].nll == pytest.approx(0.5 * np.mean(parts.y_test**2) + 0.5 * math.log(2 * math.pi), rel=1e-9)


def test_the_time_ends_both(run):
    laps, _ = run(8.0)
    assert seconds(laps, CANDID) == [6, 8, 9]
    assert seconds(laps, GPYTORCH) == [4, 7, 10]


def test_a_rival_that_fails_stays_out(run):
    laps, _ = run(30.0, fails_at=2)
    assert seconds(laps, GPYTORCH) == [4]
    (failure,) = [lap for lap in laps if lap.error is not None]
    assert failure == Lap(GPYTORCH, 2, 7.0, error="the loss became nan")
    assert len(seconds(laps, CANDID)) == 6


def test_a_real_race(parts):
    """Ours ends where a fit without a rival ends, and begins with the starting point."""
    laps = []
    race_room.race(Course("map", 5, seconds=20.0, max_epochs=3), parts, laps.append)
    gp = make_gp("map", n_inducing=5, random_state=0, verbose=False).fit(parts.x, parts.y)
    ours, theirs = ([lap for lap in laps if lap.who == who] for who in (CANDID, GPYTORCH))
    assert (ours[0].epoch, theirs[0].epoch, theirs[-1].epoch) == (0, 1, 3)
    expected = -np.mean(gp.predict_distribution(parts.x_test).log_prob(parts.y_test))
    assert ours[-1].nll == pytest.approx(expected, rel=1e-9)
    assert ours[-2].nll == pytest.approx(expected, rel=1e-9)
    for laps_of_one in (ours, theirs):
        assert sorted(lap.seconds for lap in laps_of_one) == [lap.seconds for lap in laps_of_one]


def test_a_race_needs_gpytorch(monkeypatch, parts):
    monkeypatch.setattr(race_room, "find_spec", lambda name: None)
    with pytest.raises(ImportError, match="pip install"):
        race_room.race(Course("map"), parts, print)


def test_the_published_recipe_in_gpytorch(parts):
    training = PublishedTraining("ppgpr-chol", parts.x, parts.y, 10, max_epochs=8, seed=0)
    recipe = find_method("ppgpr-chol").published
    kernel = training._model.covar_module.base_kernel
    assert kernel.nu == 2.5
    assert kernel.lengthscale.shape == (1, 2)
    assert training._model.variational_strategy.inducing_points.shape == (10, 2)
    assert training._step._stepper.rate == recipe["lr"] == 0.01
    rates = []
    before = -np.mean(log_density(parts.y, *training.predict(parts.x)))
    for _ in range(8):
        training.train_epoch()
        rates.append(training._step._stepper.rate)
    # A tenth after half of the epochs, a hundredth after three quarters.
    np.testing.assert_allclose(rates, 4 * [0.01] + 2 * [0.001] + 2 * [0.0001])
    assert training.finished
    assert -np.mean(log_density(parts.y, *training.predict(parts.x))) < before
    with pytest.raises(ValueError, match="GPyTorch has no 'exact'; it has map"):
        PublishedTraining("exact", parts.x, parts.y, 10, 8, 0)


def test_predictions_of_gpytorch_have_its_noise(parts):
    training = PublishedTraining("svgp", parts.x, parts.y, 10, max_epochs=8, seed=0)
    _, variance = training.predict(parts.x_test)
    with torch.no_grad():
        latent = training._model(torch.as_tensor(parts.x_test, dtype=torch.float32)).variance
        noise = training._likelihood.noise
    np.testing.assert_allclose(variance, (latent + noise).numpy(), rtol=1e-5)


def log_density(y, mean, variance):
    return -0.5 * (y - mean) ** 2 / variance - 0.5 * np.log(2 * np.pi * variance)
