"""How to train, and where a run stands."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from candid.engines.sampling import Sampling

__all__ = ["Plan", "State"]


@dataclass(frozen=True)
class Plan:
    """How to train, independent of what.

    ``steppers`` maps parameter groups ("all", "weights", "points", "sites", "network", "likelihood",
    "hidden_means", "generator", "critic", "rest") to steppers, ``rates`` some of these groups to learning rates of
    their own instead of ``lr``, and ``decay`` some to a weight decay (L2); ``limit`` is how many times their usual
    length gradients may have, for Adam; networks and hidden means that no stepper is named for belong to the rest.
    ``patience`` counts epochs without a better held-out NLL; ``max_steps`` may end training within an epoch;
    ``time_budget`` is in seconds and covers this call and what it resumes; ``offset`` is added to the recorded
    losses, to give them in other units, and ``spent`` to the seconds; ``with_start`` begins the history with a
    record of the starting point, as epoch 0, and goes back there if training (without held-out rows, which would
    decide) ends with a worse loss. ``sampling`` follows training where parameters are sampled.
    """

    steppers: Mapping[str, str]
    max_epochs: int
    batch_size: int
    lr: float = 0.01
    rates: Mapping[str, float] = field(default_factory=dict)
    decay: Mapping[str, float] = field(default_factory=dict)
    limit: float = math.inf
    schedule: str = "constant"
    patience: int | None = None
    time_budget: float | None = None
    max_steps: int | None = None
    seed: int = 0
    offset: float = 0.0
    spent: float = 0.0
    with_start: bool = False
    sampling: Sampling | None = None


@dataclass
class State:
    """Where a run stands, apart from tensors; plain numbers, so that it can be written down.

    ``trained`` and ``burnt_in`` are the steps at which these phases were over.
    """

    step: int = 0
    loss_sum: float = 0.0
    seconds: float = 0.0
    finished: bool = False
    history: list[dict[str, Any]] = field(default_factory=list)
    trained: int | None = None
    burnt_in: int | None = None
