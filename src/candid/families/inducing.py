"""Inducing points: a_i = L⁻¹ k(Z, x_i), u = mu(Z) + L v, q(v) = N(m, S).

    mean_i     = mu(x_i) + a_iᵀ m
    residual_i = k(x_i, x_i) − a_iᵀ a_i
    spread_i   = a_iᵀ S a_i

The kernel's outermost amplitude s stays out of the Gram matrices: with unit-amplitude features, the mean's second term
is multiplied by √s and both variances by s, and the jitter is relative by itself.
"""

from __future__ import annotations

import copy

import torch
from jaxtyping import Float
from torch import Tensor, nn

from candid.families.axes import for_each_gp
from candid.families.base import Family
from candid.families.means import Mean
from candid.families.predictor import BasisPredictor
from candid.kernels import Kernel
from candid.linalg import cholesky, whiten
from candid.marginal import Batch, Evaluation, Marginal
from candid.weights import Weights

__all__ = ["Inducing"]


class Inducing(Family):
    r"""P independent sparse GPs, each with its own kernel hyper-parameters, inducing points and q(v).

    All parts may have leading dimensions (chains) before P; they are models side by side, which share the rows unless
    the inputs have the same leading dimensions.

    Parameters
    ----------
    kernel : Kernel
        Built with batch shape (P,), or (\*chains, P).
    mean : Mean
        With batch shape (\*chains,).
    points : Tensor
        Where Z starts: (\*chains, P, M, D).
    weights : Weights
        With the kernel's batch shape.
    jitter : float
        Share of the kernel's diagonal that is added to K_zz before it is factorised; grows when it has to.
    """

    def __init__(
        self, kernel: Kernel, mean: Mean, points: Float[Tensor, "*chains p m d"], weights: Weights, jitter: float
    ) -> None:
        super().__init__()
        self.kernel, self.mean, self.weights = kernel, mean, weights
        self.points = nn.Parameter(points.clone())
        self.register_buffer("jitter", torch.full(points.shape[:-2], jitter))

    def features(
        self, x: Float[Tensor, "*#chains n d"]
    ) -> tuple[Float[Tensor, "*#chains p m n"], Float[Tensor, "*#chains p n"]]:
        """Unit-amplitude whitened features A = L⁻¹ K_zx (P×M×n) and prior variances k(x, x)."""
        _, unit = self.kernel.split()
        x = for_each_gp(x)
        whitened, factor = whiten(unit(self.points), unit(self.points, x), self.jitter)
        # What one factorisation needed, the next one starts from.
        self.jitter.copy_(factor.jitter)
        return whitened, unit.diagonal(x)

    def evaluate(self, batch: Batch) -> Evaluation:
        amplitude, _ = self.kernel.split()
        whitened, variance = self.features(batch.x)
        latent, spread = self.weights.project(whitened)
        residual = (variance - whitened.square().sum(-2)).clamp_min(0.0)
        if amplitude is not None:
            scale = amplitude.unsqueeze(-1)
            latent, residual, spread = scale.sqrt() * latent, scale * residual, scale * spread
        marginal = Marginal(self.mean(batch.x) + latent.mT, residual.mT, spread.mT)
        return Evaluation(marginal, {"kl": self.weights.penalty()})

    def weight_parameters(self) -> list[nn.Parameter]:
        return [parameter for parameter in self.weights.parameters() if parameter.requires_grad]

    @torch.no_grad()
    def predictor(self) -> BasisPredictor:
        frozen = copy.deepcopy(self).double()
        amplitude, unit = frozen.kernel.split()
        factor = cholesky(unit(frozen.points), frozen.jitter)
        # c = √s L⁻ᵀ m
        coefficients = torch.linalg.solve_triangular(factor.lower.mT, frozen.weights.mean.unsqueeze(-1), upper=True)
        if amplitude is not None:
            coefficients = coefficients * amplitude.sqrt()[..., None, None]
        identity = torch.eye(frozen.points.shape[-2], dtype=torch.float64, device=frozen.points.device)
        whitener = torch.linalg.solve_triangular(factor.lower, identity.expand_as(factor.lower), upper=False)
        return BasisPredictor(
            frozen.kernel,
            frozen.mean,
            frozen.points.detach(),
            coefficients.squeeze(-1),
            whitener,
            frozen.weights.root(),
        )
