"""How long, and how fast, a GP with inducing points is trained unless the user says otherwise."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from candid.engines import n_batches
from candid.families import Sparse

__all__ = ["Pace", "cold_pace", "least_independence", "share_of_free", "share_of_many", "warm_pace"]

# From a warm start so many steps of Adam, or of natural gradients, but at most so many epochs. Above this many rows the
# steps grow with the square root of the rows; on short tables there is at least a step for every four rows, within
# these bounds.
ADAM_STEPS, NATURAL_STEPS, MOST_EPOCHS, MANY_ROWS = 1400, 500, 40, 40_000
LEAST_STEPS = (100, 400)
# From a cold start so many epochs, and at least so many steps.
COLD_EPOCHS, COLD_STEPS = 30, 1000
# Learning rates of hyper-parameters and inducing points, of q(u) by Adam, and along natural gradients; from a cold
# start, of everything.
RATE, Q_RATE, NATURAL_RATE, COLD_RATE = 0.05, 0.5, 0.2, 0.01
# The same behind a network, where steps are shorter, and learning rates of the network itself: with Adam for q(u), and
# with natural gradients.
DEEP_RATE, DEEP_Q_RATE, DEEP_NATURAL_RATE = 0.02, 0.1, 0.05
NETWORK_RATE, NATURAL_NETWORK_RATE = 0.002, 0.001
# A warm start on fewer rows than this is close to the optimum. There rates are in proportion to the rows (that of q(u),
# which would shake the most, to their square), down to this share.
FEW_ROWS, LEAST_SHARE = 10_000, 0.05
# Points of which the others leave open less than this share move by shorter steps, in proportion to its root.
OPEN_SHARE = 0.1
# A latent function of smaller standard deviation than this does not make steps of q(u) longer.
LEAST_DEVIATION = 0.3


@dataclass(frozen=True)
class Pace:
    """Epochs, and learning rates of hyper-parameters, of inducing points (as a share of that), of q(u), of networks.

    ``limit`` is how many times their usual length gradients may have, ``hidden_share`` the share of the rate at which
    mean functions between layers move.
    """

    epochs: int
    rate: float
    point_share: float
    q_rate: float
    network_rate: float
    limit: float = math.inf
    hidden_share: float = 1.0

    def rates(self, lr: float | None, q_lr: float | None) -> dict[str, Any]:
        """Learning rates and limit as a plan has them; ``lr`` and ``q_lr`` are rates that the user wants instead."""
        rate = self.rate if lr is None else lr
        of_groups = {
            "weights": self.q_rate if q_lr is None else q_lr,
            "points": self.point_share * rate,
            "hidden_means": self.hidden_share * rate,
            "network": self.network_rate if lr is None else lr,
        }
        return {"lr": rate, "rates": of_groups, "limit": self.limit}


def warm_pace(
    n_rows: int,
    batch_size: int,
    natural: bool,
    deviation: float,
    independence: float,
    kept: bool,
    deep: bool = False,
    parting: bool = False,
) -> Pace:
    """From a warm start, or from an earlier fit that is ``kept``.

    Parameters
    ----------
    n_rows, batch_size : int
    natural : bool
        Whether q(u) follows natural gradients.
    deviation : float
        Prior standard deviation of the latent function: what one unit of whitened inducing values is in units of the
        (standardised) target. Adam's steps of q(u) are so long in these.
    independence : float
        What the other inducing values leave open of the variance of one, of a quarter of the points at most. Whitened
        values change their meaning when points that are close together move, and q(u) cannot follow.
    kept : bool
        Whether training goes on where an earlier fit has ended, with more rows.
    deep : bool, default=False
        Whether a network is part of the model.
    parting : bool, default=False
        Whether mean and covariance start with one kernel and have to part, which takes time however q(u) moves.
    """
    per_epoch = n_batches(n_rows, batch_size)
    quick = natural and not parting
    steps = (NATURAL_STEPS if quick else ADAM_STEPS) * max(1.0, math.sqrt(n_rows / MANY_ROWS))
    least = min(max(n_rows // 4, LEAST_STEPS[0]), LEAST_STEPS[1])
    epochs = math.ceil(max(min(steps, MOST_EPOCHS * per_epoch), least) / per_epoch)
    share = 1.0 if kept else max(share_of_many(n_rows), LEAST_SHARE)
    rate, q_rate, natural_rate = (DEEP_RATE, DEEP_Q_RATE, DEEP_NATURAL_RATE) if deep else (RATE, Q_RATE, NATURAL_RATE)
    return Pace(
        epochs,
        rate=share * rate,
        point_share=share_of_free(independence, OPEN_SHARE),
        q_rate=natural_rate if natural else share**2 * q_rate / max(deviation, LEAST_DEVIATION),
        network_rate=share * (NATURAL_NETWORK_RATE if natural else NETWORK_RATE),
    )


def least_independence(family: Sparse) -> float:
    """Of the quarter of the inducing points that depend on the others the most, that of the freest one."""
    return float(family.independence().flatten().quantile(0.25))


def share_of_free(independence: float, open_share: float) -> float:
    """One for points that are at least so independent, less in proportion to its root for others."""
    return min(1.0, math.sqrt(independence / open_share))


def share_of_many(n_rows: int) -> float:
    """One for a table of many rows, less in proportion for one of few."""
    return min(n_rows / FEW_ROWS, 1.0)


def cold_pace(n_rows: int, batch_size: int) -> Pace:
    """From anywhere."""
    epochs = max(COLD_EPOCHS, math.ceil(COLD_STEPS / n_batches(n_rows, batch_size)))
    return Pace(epochs, COLD_RATE, 1.0, COLD_RATE, COLD_RATE)
