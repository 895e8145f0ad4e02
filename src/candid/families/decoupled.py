"""Decoupled inducing points: the mean has points Zμ of its own, variances come from Zσ; both with one kernel.

With a_i = Lσ⁻¹ k(Zσ, x_i), b_i = Lμ⁻¹ k(Zμ, x_i), a point estimate m and a covariance S:

    mean_i     = mu(x_i) + b_iᵀ m
    residual_i = k(x_i, x_i) − a_iᵀ a_i
    spread_i   = a_iᵀ S a_i

    penalty    = −log N(m; 0, I) + KL(N(0, S) ‖ N(0, I))

References
----------
M. Jankowiak, G. Pleiss, J. Gardner, Parametric Gaussian process regressors (2020), section 3.4.
"""

from __future__ import annotations

import copy
from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor, nn

from candid.families.axes import for_each_gp
from candid.families.basis import FixedBasis
from candid.families.blockwise import blocks_pay, blockwise_moments, pays
from candid.families.blockwise_mean import blockwise_mean
from candid.families.means import Mean
from candid.families.scaling import prior_variance
from candid.families.sparse import Sparse
from candid.kernels import Kernel, Stationary, networks_in, unfold
from candid.kernels.joint import joint_grams
from candid.linalg import kernel_coefficients, whiten
from candid.marginal import Batch, Evaluation
from candid.weights import Delta, Weights

__all__ = ["Decoupled"]


class Decoupled(Sparse):
    r"""Mean and variances from inducing points of their own, any number of each.

    Parameters
    ----------
    kernel, mean, points, weights, jitter
        As in :class:`~candid.families.sparse.Sparse`; ``points`` are Zσ. The mean of ``weights`` stays at zero.
    mean_points : Tensor
        Where Zμ starts: (\*chains, P, Mμ, D).

    Attributes
    ----------
    mean_weights : Delta
        m.
    jitter : Tensor
        Of the factorisations at Zσ and at Zμ, (\*chains, P, 2).
    """

    def __init__(
        self,
        kernel: Kernel,
        mean: Mean,
        mean_points: Float[Tensor, "*chains p c d"],
        points: Float[Tensor, "*chains p m d"],
        weights: Weights,
        jitter: float,
    ) -> None:
        super().__init__(kernel, mean, points, weights, jitter)
        self.mean_points = nn.Parameter(mean_points.clone())
        self.mean_weights = Delta(mean_points.shape[-2], tuple(mean_points.shape[:-2]))
        self.jitter = self.jitter.unsqueeze(-1).repeat_interleave(2, -1)
        weights.mean.requires_grad_(False).zero_()

    def shares_rows(self, n_rows: int) -> bool:
        unit, weights = self.kernel.unit, self.weights
        in_blocks = all(blocks_pay(unit, weights, n_rows, points) for points in self.point_parameters())
        return in_blocks and not list(networks_in(self))

    def evaluate(self, batch: Batch) -> Evaluation:
        unit, embed = unfold(self.kernel.unit)
        rows, *points = embed(for_each_gp(batch.x), self.points, self.mean_points, weight=batch.weight)
        latent, explained, spread = self._moments(unit, rows, *points)
        marginal = self._marginal(batch.x, latent, explained, spread, prior_variance(unit, rows))
        return Evaluation(marginal, {"kl": self.mean_weights.penalty() + self.weights.penalty()})

    def _moments(
        self, unit: Kernel, rows: Tensor, points: Tensor, mean_points: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Mean, explained variance and spread at unit amplitude, (P, n)."""
        jitter, own_jitter = self.jitter.unbind(-1)
        if isinstance(unit, Stationary) and all(pays(unit, self.weights, rows, z) for z in (points, mean_points)):
            latent, own_used = blockwise_mean(unit, self.mean_weights.mean, rows, mean_points, own_jitter)
            _, explained, spread, used = blockwise_moments(unit, self.weights, rows, points, jitter)
        else:
            (gram, cross), (own_gram, own_cross) = joint_grams(unit, rows, points, mean_points)
            whitened, factor = whiten(gram, cross, jitter)
            # c = Lμ⁻ᵀ m, so that b_iᵀ m = k(Zμ, x_i)ᵀ c
            coefficients, own = kernel_coefficients(own_gram, self.mean_weights.mean, own_jitter)
            latent = (coefficients.unsqueeze(-2) @ own_cross).squeeze(-2)
            _, explained, spread = self.weights.moments(whitened)
            used, own_used = factor.jitter, own.jitter
        # What one factorisation needed, the next one starts from.
        self.jitter.copy_(torch.stack([used, own_used], -1))
        return latent, explained, spread

    def weight_parameters(self) -> list[nn.Parameter]:
        return [*self.mean_weights.parameters(), *super().weight_parameters()]

    def point_parameters(self) -> list[nn.Parameter]:
        return [self.mean_points, *super().point_parameters()]

    @torch.no_grad()
    def independence(self) -> Float[Tensor, "*batch n"]:
        """Of all points, each among those of its own set."""
        return torch.cat([copy.deepcopy(self).double()._own_basis().independence(), super().independence()], -1)

    @torch.no_grad()
    def assign(self, coefficients: Float[Tensor, "*batch c"], precision: Float[Tensor, "*batch m m"]) -> None:
        self.mean_weights.mean.copy_(coefficients)
        self.weights.assign(torch.zeros_like(self.weights.mean), precision)

    def _basis(self) -> FixedBasis:
        return FixedBasis(self.kernel.unit, self.points, self.jitter[..., 0])

    def _own_basis(self) -> FixedBasis:
        """Of the mean."""
        return FixedBasis(self.kernel.unit, self.mean_points, self.jitter[..., 1])

    def _mean_features(self, basis: FixedBasis) -> Callable[[Tensor, Tensor], tuple[Tensor, Tensor | None]]:
        own = self._own_basis()
        # Φ = Lμ⁻¹ K_μx
        return lambda x, features: (own(x), features)

    def _mean_basis(self, basis: FixedBasis) -> tuple[Tensor, Tensor]:
        # Lμ⁻ᵀ m
        return torch.cat([self.mean_points, self.points], -2), self._own_basis().coefficients(self.mean_weights.mean)
