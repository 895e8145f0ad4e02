"""Layers whose inducing values are draws of networks."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from candid.families import Inducing
from candid.weights import Full, Implicit

__all__ = ["draw_values", "implicit_rates"]

# Learning rate of critics, and of generators: a share of that of q(u), but not more than so much, as critics have to
# keep up with them.
CRITIC_RATE, GENERATOR_SHARE, MOST_GENERATOR_RATE = 0.005, 0.01, 5e-4


def draw_values(layers: Sequence[Inducing], n_draws: int, n_settled: int, learned: bool, seed: int) -> None:
    """Let networks make draws of the inducing values, in place, of layers that have a normal q(u) so far.

    Parameters
    ----------
    layers : sequence of Inducing
        From the inputs to the targets.
    n_draws, n_settled : int
        In a step of training, and in predictions.
    learned : bool
        Whether q(u) is still learned as the normal part of the draws; otherwise it has to be the prior, and stays so.
    seed : int
    """
    seeds = np.random.SeedSequence(seed).generate_state(len(layers)).tolist()
    for number, (layer, own) in enumerate(zip(layers, seeds, strict=True)):
        assert isinstance(layer.weights, Full)
        layer.weights = Implicit(layer.weights, layer.points, n_draws, n_settled, number > 0, learned, own)


def implicit_rates(q_rate: float) -> dict[str, float]:
    """Learning rates of the networks, from that of q(u)."""
    return {"generator": min(GENERATOR_SHARE * q_rate, MOST_GENERATOR_RATE), "critic": CRITIC_RATE}
