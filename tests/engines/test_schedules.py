from __future__ import annotations

import itertools
import math

import pytest

from candid.engines import SCHEDULES, Plan, train
from small_models import random_rows, sparse_problem


def test_constant():
    assert [SCHEDULES["constant"](done) for done in (0.0, 0.3, 0.99)] == [1.0, 1.0, 1.0]


def test_step():
    found = [SCHEDULES["step"](done) for done in (0.0, 0.499, 0.5, 0.749, 0.75, 0.99)]
    assert found == pytest.approx([1.0, 1.0, 0.1, 0.1, 0.01, 0.01])


def test_thirds():
    found = [SCHEDULES["thirds"](done) for done in (0.0, 0.33, 0.34, 0.66, 0.67, 0.99)]
    assert found == pytest.approx([1.0, 1.0, 0.2, 0.2, 0.04, 0.04])


def test_quarters():
    found = [SCHEDULES["quarters"](done) for done in (0.0, 0.24, 0.25, 0.49, 0.5, 0.74, 0.75, 0.99)]
    assert found == pytest.approx([1.0, 1.0, 0.2, 0.2, 0.04, 0.04, 0.008, 0.008])


def test_cosine():
    found = [SCHEDULES["cosine"](done) for done in (0.0, 0.05, 0.5, 1.0)]
    # 0.01 at the start, half way up after a twentieth, then half a wave down
    assert found == pytest.approx([0.01, 0.51 * (0.01 + 0.99 * 0.5 * (1 + math.cos(0.05 * math.pi))), 0.505, 0.01])


def test_gentle():
    """As cosine, but half way up only after a tenth."""
    found = [SCHEDULES["gentle"](done) for done in (0.0, 0.1, 0.5, 1.0)]
    assert found == pytest.approx([0.01, 0.51 * (0.01 + 0.99 * 0.5 * (1 + math.cos(0.1 * math.pi))), 0.505, 0.01])


@pytest.mark.parametrize("name", SCHEDULES)
def test_schedules_stay_between_zero_and_one_and_fall_in_the_end(name):
    values = [SCHEDULES[name](k / 100) for k in range(101)]
    assert all(0 < value <= 1 for value in values)
    last_rise = 20 if name == "gentle" else 10
    assert all(later <= earlier for earlier, later in itertools.pairwise(values[last_rise:]))


def test_training_follows_the_schedule():
    rows = random_rows(12)
    history = train(sparse_problem(rows), rows, Plan({"all": "adam"}, 8, 6, lr=0.04, schedule="step"))
    # Of 16 steps, the second of each epoch is recorded: steps 1, 3, …, 15.
    assert [record["lr"] for record in history] == pytest.approx([0.04] * 4 + [0.004] * 2 + [0.0004] * 2)
