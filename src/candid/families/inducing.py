"""Inducing points: a_i = L⁻¹ k(Z, x_i), u = mu(Z) + L v, q(v) = N(m, S).

    mean_i     = mu(x_i) + a_iᵀ m
    residual_i = k(x_i, x_i) − a_iᵀ a_i
    spread_i   = a_iᵀ S a_i

The kernel's outermost amplitude s stays out of the Gram matrices: with unit-amplitude features, the mean's second term
is multiplied by √s and both variances by s, and the jitter is relative by itself.
"""

from __future__ import annotations

from collections.abc import Callable

from jaxtyping import Float
from torch import Tensor

from candid.families.axes import for_each_gp
from candid.families.basis import FixedBasis
from candid.families.block_inputs import in_machine_code
from candid.families.blockwise import blocks_pay, blockwise_moments, pays
from candid.families.scaling import prior_variance
from candid.families.sparse import Sparse
from candid.kernels import Kernel, Stationary, networks_in, unfold
from candid.kernels.joint import joint_grams
from candid.linalg import whiten
from candid.marginal import Batch, Evaluation, LowRankPrior, Marginal

__all__ = ["Inducing"]


class Inducing(Sparse):
    """Mean and variances from the same inducing points; see :class:`Sparse` for the parameters."""

    def features(
        self, x: Float[Tensor, "*#chains n d"], weight: Float[Tensor, " n"] | None = None
    ) -> tuple[Float[Tensor, "*#chains p m n"], Float[Tensor, "*#chains p n"]]:
        """Unit-amplitude whitened features A = L⁻¹ K_zx (P×M×n) and prior variances k(x, x)."""
        unit, rows, points = self._embedded(x, weight)
        return self._features(unit, rows, points), unit.diagonal(rows)

    def _embedded(self, x: Tensor, weight: Tensor | None) -> tuple[Kernel, Tensor, Tensor]:
        """The unit kernel behind its networks, and what it sees of rows and inducing points."""
        unit, embed = unfold(self.kernel.unit)
        rows, points = embed(for_each_gp(x), self.points, weight=weight)
        return unit, rows, points

    def _features(self, unit: Kernel, rows: Tensor, points: Tensor) -> Tensor:
        ((gram, cross),) = joint_grams(unit, rows, points)
        whitened, factor = whiten(gram, cross, self.jitter)
        # What one factorisation needed, the next one starts from.
        self.jitter.copy_(factor.jitter)
        return whitened

    def shares_rows(self, n_rows: int) -> bool:
        # With one GP there is much to do beside its rows, of which torch's threads do more than one.
        several = self.points.shape[:-2].numel() > 1 or in_machine_code(self.kernel.unit, self.points)
        return several and self.in_blocks(n_rows)

    def in_blocks(self, n_rows: int) -> bool:
        """Whether moments of so many rows are computed block by block, and there is no network beside them."""
        return not list(networks_in(self)) and blocks_pay(self.kernel.unit, self.weights, n_rows, self.points)

    def evaluate(self, batch: Batch) -> Evaluation:
        return Evaluation(self.marginal(batch.x, weight=batch.weight), {"kl": self.weights.penalty()})

    def marginal(
        self,
        x: Float[Tensor, "*#chains n d"],
        mean_x: Float[Tensor, "*#chains n e"] | None = None,
        weight: Float[Tensor, " n"] | None = None,
    ) -> Marginal:
        """Marginals of rows whose mean function may see inputs of its own, ``mean_x``."""
        unit, rows, points = self._embedded(x, weight)
        if isinstance(unit, Stationary) and pays(unit, self.weights, rows, points):
            latent, explained, spread, jitter = blockwise_moments(unit, self.weights, rows, points, self.jitter)
            self.jitter.copy_(jitter)
        else:
            latent, explained, spread = self.weights.moments(self._features(unit, rows, points))
        prior = prior_variance(unit, rows)
        return self._marginal(x if mean_x is None else mean_x, latent, explained, spread, prior)

    def prior(self, batch: Batch) -> LowRankPrior:
        amplitude, _ = self.kernel.split()
        whitened, variance = self.features(batch.x, batch.weight)
        residual = (variance - whitened.square().sum(-2)).clamp_min(0.0)
        if amplitude is not None:
            whitened, residual = amplitude.sqrt()[..., None, None] * whitened, amplitude.unsqueeze(-1) * residual
        return LowRankPrior(self.mean(batch.x), whitened, residual.mT)

    def assign(self, coefficients: Float[Tensor, "*batch m"], precision: Float[Tensor, "*batch m m"]) -> None:
        self.weights.assign(coefficients, precision)

    def _mean_features(self, basis: FixedBasis) -> Callable[[Tensor, Tensor], tuple[Tensor, Tensor | None]]:
        # Φ = A
        return lambda x, features: (features, None)

    def _mean_basis(self, basis: FixedBasis) -> tuple[Tensor, Tensor]:
        # L⁻ᵀ m
        return self.points, basis.coefficients(self.weights.mean)
