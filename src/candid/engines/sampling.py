"""What follows training where parameters are sampled: when samples are drawn, and where they are kept."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from candid.engines.problem import Problem
from candid.engines.steppers import Stepper

__all__ = ["Draws", "Sampling"]


@dataclass(frozen=True)
class Sampling:
    """Two more phases of a plan: burn-in, in which samplers adapt, and the collection of samples.

    ``steppers`` maps parameter groups to steppers, as in a plan ("likelihood" is a group of its own here if it is
    named). Those that do not sample optimise what is not sampled, with rates that fall to nothing, until burn-in is
    over: then the target stays where it is. ``rates`` are step sizes of samplers and learning rates of the others. Of
    the steps that follow the ``burn_in`` steps, one in ``thin`` leaves a sample.
    """

    steppers: Mapping[str, str]
    burn_in: int
    n_samples: int
    thin: int = 1
    rates: Mapping[str, float] = field(default_factory=dict)

    @property
    def n_steps(self) -> int:
        return self.burn_in + self.n_samples * self.thin


class Draws:
    """Samples of the parameters that samplers move, by their names in the problem, in the order of drawing."""

    def __init__(self, problem: Problem, steppers: Iterable[Stepper]) -> None:
        moved = {id(parameter) for stepper in steppers for parameter in stepper.sampled()}
        named = problem.named_parameters()
        self._parameters = {name: parameter for name, parameter in named if id(parameter) in moved}
        self._collected: list[dict[str, Tensor]] = []

    def __len__(self) -> int:
        return len(self._collected)

    def collect(self) -> None:
        """Take note of the present values."""
        self._collected.append({name: parameter.detach().clone() for name, parameter in self._parameters.items()})

    def tensors(self) -> dict[str, Tensor]:
        """All of them, the first axis being that of draws."""
        if not self._collected:
            return {}
        return {name: torch.stack([draw[name] for draw in self._collected]) for name in self._parameters}

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        count = min((len(tensor) for tensor in tensors.values()), default=0)
        self._collected = [
            {name: tensors[name][draw].to(parameter) for name, parameter in self._parameters.items()}
            for draw in range(count)
        ]
