"""The exact GP: every training row is kept, and predictions condition on all of them."""

from __future__ import annotations

import copy

import torch
from jaxtyping import Float
from torch import Tensor

from candid.families.base import Family
from candid.families.means import Mean
from candid.families.predictor import BasisPredictor
from candid.families.squares import SignedSquares
from candid.kernels import Kernel
from candid.likelihoods import GaussianSites
from candid.linalg import cholesky
from candid.marginal import Batch, JointPrior

__all__ = ["Exact"]


class Exact(Family):
    r"""P independent exact GPs on the same rows; all of them may have leading dimensions (chains) before P.

    Parameters
    ----------
    kernel : Kernel
        Built with batch shape (P,), or (\*chains, P).
    mean : Mean
        With batch shape (\*chains,).
    x : Tensor
        Training inputs, N×D.
    sites : GaussianSites
        Training targets and their noise.
    weight : Tensor
        Weight of each row: a row of weight w counts as w identical rows.
    """

    x: Tensor
    weight: Tensor

    def __init__(
        self, kernel: Kernel, mean: Mean, x: Float[Tensor, "n d"], sites: GaussianSites, weight: Float[Tensor, " n"]
    ) -> None:
        super().__init__()
        self.kernel, self.mean, self.sites = kernel, mean, sites
        # The rows are the caller's: checkpoints need not copy them.
        self.register_buffer("x", x, persistent=False)
        self.register_buffer("weight", weight, persistent=False)
        with torch.no_grad():
            self.register_buffer("jitter", torch.zeros(kernel.diagonal(x[:1]).shape[:-1]))

    def prior(self, batch: Batch) -> JointPrior:
        return JointPrior(self.mean(batch.x), self.kernel(batch.x))

    @torch.no_grad()
    def predictor(self) -> BasisPredictor:
        frozen = copy.deepcopy(self).double()
        amplitude, unit = frozen.kernel.split()
        index = torch.arange(frozen.x.shape[0], device=frozen.x.device)
        targets, noise = frozen.sites(index)
        scale = torch.ones((), dtype=torch.float64) if amplitude is None else amplitude[..., None, None]
        # C = s K + diag(σ²/w) = L Lᵀ,   c = s C⁻¹(y − mu),   W = (L/√s)⁻¹
        covariance = scale * unit(frozen.x) + torch.diag_embed((noise / frozen.weight.unsqueeze(-1)).mT)
        factor = cholesky(covariance, frozen.jitter)
        self.jitter.copy_(factor.jitter)
        residual = (targets - frozen.mean(frozen.x)).mT.unsqueeze(-1)
        coefficients = scale * torch.cholesky_solve(residual, factor.lower)
        explained = SignedSquares.explained(factor.lower / scale.sqrt(), None)
        points = frozen.x.expand(*factor.lower.shape[:-2], *frozen.x.shape).clone()
        return BasisPredictor(frozen.kernel, frozen.mean, points, coefficients.squeeze(-1), explained)
