"""Orthogonally decoupled bases: q(v) at Zσ, and more functions for the mean, orthogonal to those at Zσ, from Zμ.

With a_i = L⁻¹ k(Zσ, x_i), q(v) = N(m, S) and coefficients h at Zμ:

    mean_i     = mu(x_i) + a_iᵀ m + (k(Zμ, x_i) − K_μσ K_σσ⁻¹ k(Zσ, x_i))ᵀ h
    residual_i = k(x_i, x_i) − a_iᵀ a_i
    spread_i   = a_iᵀ S a_i

    penalty    = KL(N(m, S) ‖ N(0, I)) + ½ hᵀ Q h,        Q = K_μμ − K_μσ K_σσ⁻¹ K_σμ

Only K_σσ is factorised: with b = L⁻¹ K_σμ h, one more column to whiten, mean_i = mu(x_i) + a_iᵀ(m − b) + k(Zμ, x_i)ᵀh
and hᵀQ h = hᵀK_μμ h − bᵀb.

Steps in h itself would move the mean by very different amounts along the eigenvectors of Q. What is learned is g with
√s h = T g, where s is the kernel's amplitude and T Tᵀ = (Q + δI)⁻¹ of unit amplitude is computed once, where training
starts: the same model in coordinates in which, there, the prior of g is close to N(0, I).

References
----------
H. Salimbeni, C.-A. Cheng, B. Boots, M. Deisenroth, Orthogonally decoupled variational Gaussian processes (2018).
"""

from __future__ import annotations

import copy
from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor, nn

from candid.families.axes import for_each_gp
from candid.families.basis import FixedBasis
from candid.families.means import Mean
from candid.families.scaling import prior_variance
from candid.families.sparse import Sparse
from candid.kernels import Kernel, unfold
from candid.linalg import cholesky, project, whiten
from candid.linalg.triangular import inverse_of, solve_lower
from candid.marginal import Batch, Evaluation
from candid.weights import Weights
from candid.weights.base import over_gps

__all__ = ["Orthogonal"]

# δ, in units of the amplitude: T leaves directions alone in which the new functions are smaller than this.
LEAST_VARIANCE = 1e-4
# What closed forms add to Q, which is zero where points of the mean are points of the variance. Coefficients of
# functions that are smaller than that would be large, and cancel only as far as the precision of training goes.
ROUNDING = {torch.float32: 1e-4, torch.float64: 1e-10}


class Orthogonal(Sparse):
    r"""q(v) at inducing points for the variance, and orthogonal to them a larger basis for the mean.

    Parameters
    ----------
    kernel, mean, points, weights, jitter
        As in :class:`~candid.families.sparse.Sparse`; ``points`` are Zσ.
    mean_points : Tensor
        Where Zμ starts: (\*chains, P, Mμ, D).

    Attributes
    ----------
    directions : Parameter
        g, (\*chains, P, Mμ).
    """

    transform: Tensor

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
        self.directions = nn.Parameter(torch.zeros(mean_points.shape[:-1]))
        self.rounding = ROUNDING[points.dtype]
        with torch.no_grad():
            frozen = copy.deepcopy(self).double()
            _, lower = frozen._orthogonal_basis(frozen._basis(), LEAST_VARIANCE)
            self.register_buffer("transform", inverse_of(lower).mT.contiguous().to(mean_points))

    def evaluate(self, batch: Batch) -> Evaluation:
        unit, embed = unfold(self.kernel.unit)
        rows, points, mean_points = embed(for_each_gp(batch.x), self.points, self.mean_points, weight=batch.weight)
        # √s h
        coefficients = self.transform @ self.directions.unsqueeze(-1)
        # L⁻¹ [K_σx, K_σμ √s h]
        cross = torch.cat([unit(points, rows), unit(points, mean_points) @ coefficients], -1)
        whitened, factor = whiten(unit(points), cross, self.jitter)
        # What one factorisation needed, the next one starts from.
        self.jitter.copy_(factor.jitter)
        features, b = whitened.split([rows.shape[-2], 1], -1)
        # Aᵀ(m − b) + K_xμ √s h
        latent, explained, spread = project(features, self.weights.mean - b.squeeze(-1), self.weights.root())
        latent = latent + (unit(rows, mean_points) @ coefficients).squeeze(-1)
        # ½ s (hᵀK_μμ h − bᵀb)
        square = (coefficients.mT @ unit(mean_points) @ coefficients).squeeze((-2, -1)) - b.square().sum((-2, -1))
        penalty = self.weights.penalty() + over_gps(0.5 * square)
        marginal = self._marginal(batch.x, latent, explained, spread, prior_variance(unit, rows))
        return Evaluation(marginal, {"kl": penalty})

    def weight_parameters(self) -> list[nn.Parameter]:
        return [self.directions, *super().weight_parameters()]

    def point_parameters(self) -> list[nn.Parameter]:
        return [self.mean_points, *super().point_parameters()]

    @torch.no_grad()
    def assign(self, coefficients: Float[Tensor, "*batch j"], precision: Float[Tensor, "*batch j j"]) -> None:
        n_points = self.points.shape[-2]
        self.weights.assign(coefficients[..., :n_points], precision[..., :n_points, :n_points])
        frozen = copy.deepcopy(self).double()
        _, lower = frozen._orthogonal_basis(frozen._basis(), self.rounding)
        # T g = √s h = L_Q⁻ᵀ γ
        own = torch.linalg.solve_triangular(lower.mT, coefficients[..., n_points:, None], upper=True)
        self.directions.copy_(torch.linalg.solve_triangular(frozen.transform, own, upper=True).squeeze(-1))

    def _orthogonal_basis(self, basis: FixedBasis, least: float) -> tuple[Tensor, Tensor]:
        """L⁻¹ K_σμ, and the factor of Q + ``least`` · I."""
        unit = basis.kernel
        shared = basis.whiten(unit(self.points, self.mean_points))
        # Q = K_μμ − K_μσ K_σσ⁻¹ K_σμ
        gram = unit(self.mean_points) - shared.mT @ shared
        gram.diagonal(dim1=-2, dim2=-1).add_(least * unit.diagonal(self.mean_points).mean(-1, keepdim=True))
        return shared, cholesky(gram).lower

    def _mean_features(self, basis: FixedBasis) -> Callable[[Tensor, Tensor], tuple[Tensor, Tensor | None]]:
        shared, lower = self._orthogonal_basis(basis, self.rounding)

        def features_of(x: Tensor, features: Tensor) -> tuple[Tensor, None]:
            # Φ = [A; L_Q⁻¹(K_μx − K_μσ L⁻ᵀ A)]
            own = basis.kernel(self.mean_points, for_each_gp(x)) - shared.mT @ features
            return torch.cat([features, solve_lower(lower, own)], -2), None

        return features_of

    def _mean_basis(self, basis: FixedBasis) -> tuple[Tensor, Tensor]:
        own = self.transform @ self.directions.unsqueeze(-1)
        b = basis.whiten(basis.kernel(self.points, self.mean_points) @ own)
        # √s h at Zμ, L⁻ᵀ(m − b) at Zσ
        coefficients = torch.cat([own.squeeze(-1), basis.coefficients(self.weights.mean - b.squeeze(-1))], -1)
        return torch.cat([self.mean_points, self.points], -2), coefficients
