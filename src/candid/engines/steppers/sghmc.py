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
from candid.marginal import Batch

__all__ = ["SGHMC"]

# Steps that an average over steps goes back at most.
LONGEST_MEMORY = 100


class SGHMC(Sampler):
    """Draws parameters from exp(−U), where U is N times the loss, from gradients of mini-batches.

    With friction α, step size ε (the rate) and the gradient g of the loss, which is ∇U/N:

        p ← (1 − α)p − ε² M⁻¹ g + N(0, 2αε² M⁻¹/N),   Ψ ← Ψ + p

    A momentum beyond five deviations of its equilibrium N(0, ε² M⁻¹/N) comes from a step that is too long for its
    place, not from the target, and is cut there: so no chain flies off.

    Until it is frozen, M⁻¹ = v̄^(−½), where v̄ is a running average of g² over a time τ that is short while gradients
    still point in one direction. Chains, which share nothing but ε, move side by side.

    Where g is that of a mini-batch it has a variance V, so that every step adds ε⁴M⁻²V to the 2αε²M⁻¹/N that belong to
    it: samples of a stiff target, where V is large, would be far too wide. So ε becomes smaller until the one is no
    more than a share of the other, on average over entries. And the first batches are only looked at: steps with the
    preconditioner of the prior would undo what a good start is worth.
    """

    needs_one_gradient = True
    #: α, and the deviations of its equilibrium that a momentum may have.
    friction, widest = 0.05, 5.0
    #: With which mini-batch the first step is taken, and the noise that they may add, as a share of its own.
    looks, share = 30, 1.0

    @torch.no_grad()
    def advance(self, evaluate: Evaluate) -> float:
        assert isinstance(evaluate, Moment)
        gradient, total = self.vector.gradients(), evaluate.batch.total
        if not self.memory:
            self._begin(gradient, total)
        if not self.frozen:
            self._adapt(gradient, total)
            if _is_part(evaluate.batch):
                self._look(gradient)
                if int(self.memory["looks"]) < self.looks:
                    return float("nan")
        memory, friction = self.memory, self.friction
        # M⁻¹ = v̄^(−½)
        inverse_mass = memory["square"].rsqrt()
        rate = self._rate(inverse_mass, total)
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
            "looks": torch.zeros(()),
            "last": gradient.clone(),
            "variance": torch.zeros_like(gradient),
        }

    def _adapt(self, gradient: Tensor, total: float) -> None:
        average, square, horizon = (self.memory[name] for name in ("average", "square", "horizon"))
        weight = (horizon + 1).reciprocal_()
        # τ ← 1 + τ(1 − ḡ²/v̄)
        horizon.mul_(1 - average.square() / square).add_(1)
        average.lerp_(gradient, weight)
        # No posterior is wider than the prior: started at an optimum, where gradients vanish, steps stay within reason.
        square.lerp_(gradient.square(), weight).clamp_(min=total**-2)

    def _look(self, gradient: Tensor) -> None:
        """Take note of how much gradients differ from one mini-batch to the next."""
        seen = int(self.memory["looks"].add_(1))
        # V ← V + (½(g − g₋₁)² − V)/n; the first gradient has none before it
        novelty = 1 / min(max(seen - 1, 1), LONGEST_MEMORY)
        self.memory["variance"].lerp_(0.5 * (gradient - self.memory["last"]).square(), novelty)
        self.memory["last"].copy_(gradient)

    def _rate(self, inverse_mass: Tensor, total: float) -> float:
        """ε, or as much less as mini-batches demand."""
        # (ε⁴M⁻²V) / (2αε²M⁻¹/N) = ε²M⁻¹V N/(2α)
        ratio = self.rate**2 * total / (2 * self.friction) * float((inverse_mass * self.memory["variance"]).mean())
        return self.rate * min(1.0, (self.share / ratio) ** 0.5) if ratio > 0 else self.rate


def _is_part(batch: Batch) -> bool:
    """Whether there are other rows."""
    return float(batch.weight.sum()) < (1 - 1e-6) * batch.total
