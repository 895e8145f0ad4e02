"""How long and how fast training is by default."""

from __future__ import annotations

import math

import pytest

from candid.engines import n_batches
from candid.estimators.deep_pace import cold_deep_pace, warm_deep_pace
from candid.estimators.pace import cold_pace, warm_pace


def steps(n_rows: int, natural: bool = False, batch_size: int = 1000) -> int:
    return warm_pace(n_rows, batch_size, natural, 1.0, 1.0, False).epochs * n_batches(n_rows, batch_size)


@pytest.mark.parametrize("natural", [False, True])
def test_training_never_takes_more_than_forty_epochs_of_a_long_table(natural):
    for n_rows in (10_000, 30_000, 10**5, 10**6, 10**7):
        assert 1 <= warm_pace(n_rows, 1000, natural, 1.0, 1.0, False).epochs <= 40


def test_steps_grow_slower_than_rows():
    assert steps(30_000) == 1200
    assert steps(30_000, natural=True) == 510
    assert 1200 * 4 < steps(10**6) < 1200 * 6
    assert steps(10**7) <= 5 * steps(10**6)


def test_short_tables_get_more_epochs():
    assert steps(100) == 100
    assert steps(1000) == 250
    assert steps(5000) == 400


def test_rates_on_short_tables_are_lower_and_those_of_adam_on_weights_the_most():
    short, long = (warm_pace(n_rows, 1000, False, 1.0, 1.0, False) for n_rows in (1000, 10_000))
    assert short.rate == pytest.approx(long.rate / 10)
    assert short.q_rate == pytest.approx(long.q_rate / 100)
    assert warm_pace(1000, 1000, False, 1.0, 1.0, kept=True).rate == long.rate


def test_steps_of_weights_are_measured_in_units_of_the_target():
    """Whitened values count √amplitude each; natural gradients do not depend on units."""
    assert warm_pace(10_000, 1000, False, 20.0, 1.0, False).q_rate == pytest.approx(0.5 / 20)
    assert warm_pace(10_000, 1000, False, 1e-9, 1.0, False).q_rate < 2
    assert (
        warm_pace(10_000, 1000, True, 20.0, 1.0, False).q_rate == warm_pace(10_000, 1000, True, 1.0, 1.0, False).q_rate
    )


def test_points_that_depend_on_each_other_move_by_shorter_steps():
    free, close = (warm_pace(10_000, 1000, False, 1.0, independence, False) for independence in (0.5, 0.001))
    assert free.point_share == 1.0
    assert close.point_share == pytest.approx(0.1)
    assert free.rate == close.rate


def test_points_of_deep_models_keep_moving():
    free, close, closest = (warm_deep_pace(10_000, 1000, independence) for independence in (0.5, 0.0001, 0.0))
    assert free.point_share == warm_deep_pace(10_000, 1000, None).point_share == 1.0
    assert close.point_share == pytest.approx(0.1)
    assert 0 < closest.point_share < close.point_share


def test_mean_functions_between_layers_move_slowly_from_a_warm_start():
    bound, predictive = (warm_deep_pace(10_000, 1000, independence) for independence in (0.5, None))
    for pace in (bound, predictive, cold_deep_pace(10_000, 1000)):
        rates = pace.rates(None, None)
        assert rates["rates"]["hidden_means"] == pytest.approx((0.1 if pace is bound else 1.0) * rates["lr"])
    assert bound.rates(0.5, None)["rates"]["hidden_means"] == pytest.approx(0.05)


def test_a_cold_start_takes_longer():
    assert cold_pace(1000, 1000).epochs == 1000
    assert cold_pace(10**6, 1000).epochs == 30
    assert cold_pace(1000, 1000).rate == cold_pace(1000, 1000).q_rate == 0.01


def test_behind_a_network_steps_are_shorter():
    for natural in (False, True):
        plain, deep = (warm_pace(10_000, 1000, natural, 1.0, 1.0, False, deep) for deep in (False, True))
        assert deep.rate < plain.rate
        assert deep.q_rate < plain.q_rate
        assert deep.network_rate < deep.rate
        assert deep.epochs == plain.epochs
    assert warm_pace(1000, 1000, False, 1.0, 1.0, False, True).network_rate == pytest.approx(deep_rate() / 10)


def deep_rate() -> float:
    return warm_pace(10_000, 1000, False, 1.0, 1.0, False, True).network_rate


def test_kernels_that_have_to_part_take_as_long_as_with_adam():
    natural, parting, adam = (
        warm_pace(30_000, 1000, natural, 1.0, 1.0, False, parting=parting)
        for natural, parting in ((True, False), (True, True), (False, False))
    )
    assert natural.epochs < parting.epochs == adam.epochs
    assert parting.q_rate == natural.q_rate


def test_rates_that_the_user_gives_come_first():
    pace = warm_pace(10_000, 1000, False, 1.0, 0.001, False)
    by_default, given = pace.rates(None, None), pace.rates(0.3, 0.4)
    assert (by_default["lr"], given["lr"]) == (pace.rate, 0.3)
    assert by_default["limit"] == given["limit"] == math.inf
    assert by_default["rates"] == {
        "weights": pace.q_rate,
        "points": pace.point_share * pace.rate,
        "hidden_means": pace.rate,
        "network": pace.network_rate,
    }
    assert given["rates"] == {"weights": 0.4, "points": pace.point_share * 0.3, "hidden_means": 0.3, "network": 0.3}
