"""Where training starts if a model has a network: from a small model, which is trained from nothing.

A network that is fitted with a linear head, and gets its GP afterwards, has features for a linear function, and the GP
finds less in them than it could. In front of a GP with a few inducing points it costs as little, and learns features
for the kernel; the kernel and the noise that belong to them are learned on the way.
"""

from __future__ import annotations

import math

import torch

from candid.engines.loop import Plan, train
from candid.engines.problem import Problem
from candid.engines.rows import Rows, n_batches
from candid.families import Family
from candid.likelihoods import Likelihood
from candid.priors import HyperPrior

__all__ = ["SMALL_POINTS", "fit_small"]

#: Inducing points of the small model.
SMALL_POINTS = 32
# Rows in a batch: so many, but fewer where there would be less than so many batches in an epoch.
MOST_ROWS, LEAST_ROWS, BATCHES = 256, 16, 40
# At most so many epochs, and steps; on more than this many rows, steps in proportion to the root of the rows.
EPOCHS, STEPS, MANY_ROWS = 40, 1500, 20_000
# One in so many rows is held out, up to so many, and training ends after so many epochs that have not served them.
HELD_OUT, MOST_HELD_OUT, PATIENCE = 5, 2000, 10
# Learning rates of the network, of inducing points and q(u), and of kernel, mean and noise.
NETWORK_RATE, POINT_RATE, RATE = 0.01, 0.01, 0.05


def fit_small(
    family: Family,
    likelihood: Likelihood,
    prior: HyperPrior | None,
    rows: Rows,
    seed: int,
    weight_decay: float,
    time_budget: float | None = None,
) -> None:
    """Move all parts of a family with a network, and the noise, in place, by the evidence lower bound.

    A network can learn a short table by heart. So some of the rows are held out, and the epoch that predicts them best
    is the one that is kept.
    """
    order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(seed)).to(rows.x.device)
    n_held_out = min(len(rows) // HELD_OUT, MOST_HELD_OUT)
    held_out = rows.subset(order[:n_held_out].sort().values) if n_held_out else None
    index = order[n_held_out:].sort().values
    # What is known belongs to rows; what is learned is the same for all, and moves in place.
    likelihood = likelihood if next(likelihood.buffers(), None) is None else likelihood.subset(index)
    rows = rows.subset(index)
    batch_size = min(MOST_ROWS, max(LEAST_ROWS, len(rows) // BATCHES))
    n_steps = math.ceil(STEPS * max(1.0, math.sqrt(len(rows) / MANY_ROWS)))
    plan = Plan(
        dict.fromkeys(("weights", "points", "network", "rest"), "adam"),
        max_epochs=min(EPOCHS, math.ceil(n_steps / n_batches(len(rows), batch_size))),
        batch_size=batch_size,
        lr=RATE,
        rates={"weights": POINT_RATE, "points": POINT_RATE, "network": NETWORK_RATE},
        decay={"network": weight_decay},
        schedule="cosine",
        patience=PATIENCE if held_out is not None else None,
        max_steps=n_steps,
        time_budget=time_budget,
        seed=seed,
    )
    train(Problem(family, likelihood, "elbo", prior=prior), rows, plan, held_out)
