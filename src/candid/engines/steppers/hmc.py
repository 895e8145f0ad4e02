"""Hamiltonian Monte Carlo with a Metropolis correction, for losses of all rows.

References
----------
R. M. Neal, MCMC using Hamiltonian dynamics (2011).
"""

from __future__ import annotations

import torch
from torch import Tensor

from candid.engines.moment import Moment
from candid.engines.steppers.base import Evaluate
from candid.engines.steppers.random_numbers import random_at
from candid.engines.steppers.sampler import Sampler
from candid.linalg import NotPositiveDefinite

__all__ = ["HMC"]

# Step lengths vary by this share, lest a trajectory comes back to where it began.
VARIATION = 0.2
# Until it is frozen, log ε moves by at most so much in a step, later by less, in proportion to (n + 1)^(−this power).
ADAPTATION, DECAY = 0.5, 0.6


class HMC(Sampler):
    """Draws parameters from exp(−U), where U is N times the loss: a step is a trajectory, accepted or not.

    Each chain decides for itself. Until it is frozen, every chain moves its step size ε, which starts at the rate,
    towards the acceptance that serves best, and the mass M is the running average of (∇U)²: where the target is normal,
    that is the diagonal of its precision.
    """

    needs_one_gradient = False
    #: Leapfrog steps of a trajectory, and how many trajectories are to be accepted.
    n_leaps, acceptance = 12, 0.8

    @torch.no_grad()
    def advance(self, evaluate: Evaluate) -> float:
        assert isinstance(evaluate, Moment)
        energy, gradient = self._energy(evaluate)
        if not self.memory:
            self._begin(gradient)
        memory, numbers = self.memory, random_at(evaluate.seed, evaluate.step)
        start, start_gradient, mass = self.vector.values(len(energy)), gradient, memory["mass"]
        draw = torch.randn(start.shape, dtype=start.dtype, generator=numbers).to(start)
        chance, variation = torch.rand(2, len(start), dtype=start.dtype, generator=numbers).to(start)
        momentum = mass.sqrt() * draw
        before = energy + _kinetic(momentum, mass)
        rate = memory["log_rate"].exp() * (1 + VARIATION * (2 * variation - 1))
        place, end, n_leaps = start, energy, self.n_leaps
        # p ← p − ½ε∇U;  Ψ ← Ψ + εM⁻¹p;  p ← p − ½ε∇U
        for _ in range(n_leaps):
            momentum = momentum - 0.5 * rate.unsqueeze(-1) * gradient
            place = place + rate.unsqueeze(-1) * momentum / mass
            self.vector.assign(place)
            end, gradient = self._energy(evaluate)
            momentum = momentum - 0.5 * rate.unsqueeze(-1) * gradient
        # Where the energy is not a number, nothing is accepted.
        odds = (before - end - _kinetic(momentum, mass)).clamp(max=0.0).exp().nan_to_num(0.0)
        accepted = chance < odds
        self.vector.assign(torch.where(accepted.unsqueeze(-1), place, start))
        if not self.frozen:
            self._adapt(torch.where(accepted.unsqueeze(-1), gradient, start_gradient), odds)
        return float(torch.where(accepted, end, energy).sum()) / evaluate.batch.total

    def _energy(self, evaluate: Moment) -> tuple[Tensor, Tensor]:
        """U of each chain and its gradient; infinite, for all chains, at a point where it cannot be computed."""
        total = evaluate.batch.total
        try:
            losses = evaluate.of_chains()
        except NotPositiveDefinite:
            here = self.vector.values(evaluate.problem.n_chains)
            return torch.full_like(here[:, 0], torch.inf), torch.zeros_like(here)
        return total * losses, (total * self.vector.gradients(len(losses))).nan_to_num(0.0, 0.0, 0.0)

    def _begin(self, gradient: Tensor) -> None:
        """With the mass that suits the prior alone, whose curvature is one."""
        log_rate = torch.full_like(gradient[:, 0], self.rate).log_()
        self.memory = {"mass": torch.ones_like(gradient), "log_rate": log_rate, "count": torch.zeros(())}

    def _adapt(self, gradient: Tensor, odds: Tensor) -> None:
        memory = self.memory
        memory["count"] += 1
        count = float(memory["count"])
        # An average in which the n-th gradient counts n²: where a chain comes from is soon forgotten.
        memory["mass"].lerp_(gradient.square(), 3 / (count + 2)).clamp_(min=1.0)
        memory["log_rate"].add_(ADAPTATION * (odds - self.acceptance) / (count + 1) ** DECAY)


def _kinetic(momentum: Tensor, mass: Tensor) -> Tensor:
    # ½ pᵀM⁻¹p
    return 0.5 * (momentum.square() / mass).sum(-1)
