"""Stochastic-gradient Hamiltonian Monte Carlo, whose burn-in adapts a preconditioner.

References
----------
T. Chen, E. B. Fox, C. Guestrin, Stochastic gradient Hamiltonian Monte Carlo (2014).
J. T. Springenberg, A. Klein, S. Falkner, F. Hutter, Bayesian optimization with robust Bayesian neural networks (2016).
"""

from __future__ import annotations

import torch
from torch import Tensor

from candid.engines.moment import Moment
from candid.engines.steppers.base import Evaluate
from candid.engines.steppers.random_numbers import random_at
from candid.engines.steppers.sampler import Sampler

__all__ = ["SGHMC"]


class SGHMC(Sampler):
    """Draws parameters from exp(−U), where U is N times the loss, from gradients of mini-batches.

    With friction α, step size ε (the rate) and the gradient g of the loss, which is ∇U/N:

        p ← (1 − α)p − ε² M⁻¹ g + N(0, 2αε² M⁻¹/N),   Ψ ← Ψ + p

    A momentum beyond five deviations of its equilibrium N(0, ε² M⁻¹/N) comes from a step that is too long for its
    place, not from the target, and is cut there: so no chain flies off.

    Until it is frozen, M⁻¹ = v̄^(−½), where v̄ is a running average of g² over a time τ that is short while gradients
    still point in one direction. Chains, which share nothing, move side by side.
    """

    needs_one_gradient = True
    #: α, and the deviations of its equilibrium that a momentum may have.
    friction, widest = 0.05, 5.0

    @torch.no_grad()
    def advance(self, evaluate: Evaluate) -> float:
        assert isinstance(evaluate, Moment)
        gradient, total = self.vector.gradients(), evaluate.batch.total
        if not self.memory:
            self._begin(gradient, total)
        if not self.frozen:
            self._adapt(gradient, total)
        memory, friction, rate = self.memory, self.friction, self.rate
        # M⁻¹ = v̄^(−½)
        inverse_mass = memory["square"].rsqrt()
        numbers = torch.randn(gradient.shape, dtype=gradient.dtype, generator=random_at(evaluate.seed, evaluate.step))
        # Deviation of a momentum in equilibrium, √(ε² M⁻¹/N)
        deviation = (rate**2 / total * inverse_mass).sqrt_()
        noise = (2 * friction) ** 0.5 * deviation * numbers.to(gradient.device)
        # p ← (1 − α)p − ε² M⁻¹ g + noise
        momentum = memory["momentum"].mul_(1 - friction).addcmul_(inverse_mass, gradient, value=-(rate**2)).add_(noise)
        limit = self.widest * deviation
        self.vector.move(momentum.clamp_(-limit, limit))
        return float("nan")

    def _begin(self, gradient: Tensor, total: float) -> None:
        """With a preconditioner for the prior alone: of unit curvature, so that ∇U is of size one."""
        self.memory = {
            "momentum": torch.zeros_like(gradient),
            "average": torch.zeros_like(gradient),
            "square": torch.full_like(gradient, total**-2),
            "horizon": torch.ones_like(gradient),
        }

    def _adapt(self, gradient: Tensor, total: float) -> None:
        average, square, horizon = (self.memory[name] for name in ("average", "square", "horizon"))
        weight = (horizon + 1).reciprocal_()
        # τ ← 1 + τ(1 − ḡ²/v̄)
        horizon.mul_(1 - average.square() / square).add_(1)
        average.lerp_(gradient, weight)
        # No posterior is wider than the prior: started at an optimum, where gradients vanish, steps stay within reason.
        square.lerp_(gradient.square(), weight).clamp_(min=total**-2)
