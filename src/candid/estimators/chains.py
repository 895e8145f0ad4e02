"""How long chains of samples are unless the user says otherwise."""

from __future__ import annotations

import math
from dataclasses import dataclass

from candid.engines import n_batches

__all__ = ["Chains", "chains_for"]

# A table of fewer rows is short, and one of more is long; in between, everything grows with the logarithm of the rows.
SHORT, LONG = 200, 5000
# On short and on long tables: chains, steps of burn-in, samples of all chains together, steps between these, ε. There
# are several chains on short tables because a step of four takes little longer than that of one.
CHAINS, BURN_IN, SAMPLES, THIN, STEP_SIZES = (4, 1), (60, 2000), (64, 256), (6, 32), (0.05, 0.03)
# Steps of burn-in of models with hidden layers: a warm start knows these only by what they pass on.
DEEP_BURN_IN = (200, 2000)
# A trajectory of HMC takes a dozen steps, so there are fewer by this factor between samples. Burn-in, in which the rest
# is optimised after each, is as long.
HMC_THIN = 12
# The noise of gradients of mini-batches widens posteriors in proportion to ε²N. So beyond the length of a long table ε
# falls, down to what the paper takes.
LEAST_STEP = 0.01
# Steps of the optimiser from a cold start. From a warm one there are none: hyper-parameters are where they are most
# likely and inducing values are drawn already, and the joint optimum of both would be far from typical samples.
COLD_STEPS = 1000


@dataclass(frozen=True)
class Chains:
    """Chains, epochs of the optimiser, steps of burn-in, samples of a chain, steps from one to the next, their size."""

    n_chains: int
    epochs: int
    burn_in: int
    n_samples: int
    thin: int
    step_size: float


def chains_for(
    n_rows: int, batch_size: int, warm: bool, deep: bool = False, n_chains: int | None = None, hmc: bool = False
) -> Chains:
    """Lengths that are a matter of a second on short tables, and those of the paper on BSGP on long ones.

    Models with hidden layers have one chain unless ``n_chains`` says otherwise: more of them would take their time.
    """
    share = min(max(math.log(n_rows / SHORT) / math.log(LONG / SHORT), 0.0), 1.0)

    def between(ends: tuple[float, float]) -> float:
        # Geometrically: short · (long/short)^share
        return ends[0] * (ends[1] / ends[0]) ** share

    if n_chains is None:
        n_chains = 1 if deep else round(between(CHAINS))
    burn_in, thin = (round(between(ends)) for ends in (DEEP_BURN_IN if deep else BURN_IN, THIN))
    if hmc:
        thin = math.ceil(thin / HMC_THIN)
    epochs = 0 if warm else math.ceil(COLD_STEPS / n_batches(n_rows, batch_size))
    step_size = max(between(STEP_SIZES) * min(1.0, math.sqrt(LONG / n_rows)), LEAST_STEP)
    return Chains(n_chains, epochs, burn_in, math.ceil(round(between(SAMPLES)) / n_chains), thin, step_size)
