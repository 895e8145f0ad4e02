"""How long, and how fast, a deep GP is trained unless the user says otherwise."""

from __future__ import annotations

import math

from candid.engines import n_batches
from candid.estimators.pace import Pace, share_of_free, share_of_many

__all__ = ["cold_deep_pace", "warm_deep_pace"]

# From a warm start so many steps, but at most so many epochs. Above this many rows the steps grow with the square root
# of the rows; on short tables there are at least so many steps, or one for every four rows.
STEPS, MOST_EPOCHS, MANY_ROWS, LEAST_STEPS = 2400, 60, 40_000, (60, 300)
# From a cold start so many epochs, and at least so many steps.
COLD_EPOCHS, COLD_STEPS = 100, 1000
# Learning rates of hyper-parameters, inducing points and sites, of q(u), and of networks; from a cold start, of all.
RATE, Q_RATE, NETWORK_RATE, COLD_RATE = 0.05, 0.2, 0.002, 0.01
# A warm start on fewer rows is close to the optimum. There rates are in proportion to the rows, down to this share.
LEAST_SHARE = 0.2
# How many times their usual length gradients may have.
LIMIT = 3.0
# With a bound for an objective, mean functions between layers move at this share of the rate, and points of which the
# others leave open less than the second share by shorter steps, in proportion to its root, but by no less than the
# third.
HIDDEN_SHARE, OPEN_SHARE, LEAST_POINT_SHARE = 0.1, 0.01, 0.05


def warm_deep_pace(n_rows: int, batch_size: int, independence: float | None) -> Pace:
    """From a warm start.

    Whitened values change their meaning when points that are close together move, or when what a layer sees does, and
    q(u) cannot follow. Under a bound that drives up the noise, which takes long to come back. For one, ``independence``
    is what the other inducing values leave open of the variance of one, of a quarter of the points at most. Predictive
    objectives do not mind, and learn more from longer steps: for these, it is None.
    """
    per_epoch = n_batches(n_rows, batch_size)
    steps = STEPS * max(1.0, math.sqrt(n_rows / MANY_ROWS))
    least = min(max(n_rows // 4, LEAST_STEPS[0]), LEAST_STEPS[1])
    epochs = math.ceil(max(min(steps, MOST_EPOCHS * per_epoch), least) / per_epoch)
    share = max(share_of_many(n_rows), LEAST_SHARE)
    return Pace(
        epochs,
        rate=share * RATE,
        point_share=1.0 if independence is None else max(share_of_free(independence, OPEN_SHARE), LEAST_POINT_SHARE),
        q_rate=share * Q_RATE,
        network_rate=share * NETWORK_RATE,
        limit=LIMIT,
        hidden_share=1.0 if independence is None else HIDDEN_SHARE,
    )


def cold_deep_pace(n_rows: int, batch_size: int) -> Pace:
    """From anywhere."""
    epochs = max(COLD_EPOCHS, math.ceil(COLD_STEPS / n_batches(n_rows, batch_size)))
    return Pace(epochs, COLD_RATE, 1.0, COLD_RATE, COLD_RATE)
