"""Steppers: how groups of parameters move once the loss and its gradient can be evaluated."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from torch import nn

from candid.engines.steppers.adam import Adam, DampedAdam
from candid.engines.steppers.base import Evaluate, Stepper
from candid.engines.steppers.critic import CriticAdam
from candid.engines.steppers.hmc import HMC
from candid.engines.steppers.lbfgs import LBFGS
from candid.engines.steppers.natural import NaturalGradient
from candid.engines.steppers.rows import RowAdam
from candid.engines.steppers.sghmc import SGHMC
from candid.engines.steppers.window import WindowAdam

__all__ = [
    "HMC",
    "LBFGS",
    "SGHMC",
    "STEPPERS",
    "Adam",
    "CriticAdam",
    "DampedAdam",
    "NaturalGradient",
    "RowAdam",
    "Stepper",
    "WindowAdam",
    "make_steppers",
    "take_step",
]

#: Steppers by the name under which a method speaks of them.
STEPPERS: dict[str, type[Adam] | type[LBFGS] | type[NaturalGradient] | type[SGHMC] | type[HMC] | type[RowAdam]] = {
    "adam": Adam,
    "critic": CriticAdam,
    "damped": DampedAdam,
    "lbfgs": LBFGS,
    "natural": NaturalGradient,
    "rows": RowAdam,
    "sghmc": SGHMC,
    "hmc": HMC,
    "window": WindowAdam,
}


def make_steppers(
    recipe: Mapping[str, str],
    groups: Mapping[str, Sequence[nn.Parameter]],
    rates: Mapping[str, float],
    decay: Mapping[str, float] = MappingProxyType({}),
    limit: float = math.inf,
) -> dict[str, Stepper]:
    """One stepper for each parameter group that a method names and that has something to learn.

    Groups in ``decay`` have a weight decay, and all a ``limit`` of their gradients' length, which only Adam knows.
    Groups with the same stepper of a kind that moves everything together have one, under the name (and with the rate)
    of the first of them.
    """
    options = {group: {"weight_decay": decay[group]} if group in decay else {} for group in recipe}
    for group, kind in recipe.items():
        if issubclass(STEPPERS[kind], Adam):
            options[group]["limit"] = limit
    named = {group: kind for group, kind in recipe.items() if groups[group]}
    firsts = {kind: group for group, kind in reversed(named.items()) if STEPPERS[kind].joint}
    together = {kind: [p for group in named if named[group] == kind for p in groups[group]] for kind in firsts}
    return {
        group: STEPPERS[kind](together.get(kind, groups[group]), rates[group], **options[group])
        for group, kind in named.items()
        if firsts.get(kind, group) == group
    }


def take_step(steppers: Sequence[Stepper], evaluate: Evaluate) -> float:
    """Let every stepper advance; those that need one gradient share one. Returns the loss before the step."""
    loss = float("nan")
    sharing = [stepper for stepper in steppers if stepper.needs_one_gradient]
    if sharing:
        loss = evaluate()
    for stepper in sharing:
        stepper.advance(evaluate)
    for stepper in steppers:
        if not stepper.needs_one_gradient:
            loss = stepper.advance(evaluate)
    return loss
