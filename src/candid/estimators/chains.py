"""How long chains of samples are unless the user says otherwise."""

from __future__ import annotations

import math
from dataclasses import dataclass

from candid.engines import n_batches

__all__ = ["Chains", "chains_for"]

# A table of fewer rows is short, and one of more is long; in between, everything grows with the logarithm of the rows.
SHORT, LONG = 200, 5000
# On short and on long tables: steps of burn-in, samples of a chain, steps between these, ε.
BURN_IN, SAMPLES, THIN, STEP_SIZES = (200, 2000), (64, 256), (8, 32), (0.05, 0.03)
# The noise of gradients of mini-batches widens posteriors in proportion to ε²N. So beyond the length of a long table ε
# falls, down to what the paper takes.
LEAST_STEP = 0.01
# Steps of the optimiser from a cold start. From a warm one there are none: hyper-parameters are where they are most
# likely and inducing values are drawn already, and the joint optimum of both would be far from typical samples.
COLD_STEPS = 1000


@dataclass(frozen=True)
class Chains:
    """Epochs of the optimiser, steps of burn-in, samples of a chain and steps from one to the next, and their size."""

    epochs: int
    burn_in: int
    n_samples: int
    thin: int
    step_size: float


def chains_for(n_rows: int, batch_size: int, warm: bool) -> Chains:
    """Lengths that are a matter of a second on short tables, and those of the paper on BSGP on long ones."""
    share = min(max(math.log(n_rows / SHORT) / math.log(LONG / SHORT), 0.0), 1.0)

    def between(ends: tuple[float, float]) -> float:
        # Geometrically: short · (long/short)^share
        return ends[0] * (ends[1] / ends[0]) ** share

    burn_in, n_samples, thin = (round(between(ends)) for ends in (BURN_IN, SAMPLES, THIN))
    epochs = 0 if warm else math.ceil(COLD_STEPS / n_batches(n_rows, batch_size))
    step_size = max(between(STEP_SIZES) * min(1.0, math.sqrt(LONG / n_rows)), LEAST_STEP)
    return Chains(epochs, burn_in, n_samples, thin, step_size)
