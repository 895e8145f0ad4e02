"""What families with inducing points share: amplitude, predictors, and the linear regression of their closed forms."""

from __future__ import annotations

import copy
import math
from abc import abstractmethod
from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor, nn

from candid.families.axes import for_each_gp
from candid.families.base import Family
from candid.families.basis import FixedBasis, Regressors
from candid.families.means import Mean
from candid.families.predictor import BasisPredictor, Predictor
from candid.families.scaling import scaled_moments
from candid.families.squares import SignedSquares
from candid.kernels import Kernel, networks_in
from candid.marginal import Marginal
from candid.weights import Weights

__all__ = ["Sparse"]


class Sparse(Family):
    r"""P independent sparse GPs, each with its own kernel hyper-parameters, inducing points and q(v).

    All parts may have leading dimensions (chains) before P; they are models side by side, which share the rows unless
    the inputs have the same leading dimensions.

    Variances come from ``points`` and ``weights``; where the mean comes from, the families say.

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

    def n_covariances(self, n_rows: int) -> float:
        if list(networks_in(self)):
            return math.inf
        # Of points with rows and among each other; the number of points has chains and GPs in it.
        sizes = [(points[..., 0].numel(), points.shape[-2]) for points in self.point_parameters()]
        return sum(number * (n_rows + size) for number, size in sizes)

    def weight_parameters(self) -> list[nn.Parameter]:
        return [parameter for parameter in self.weights.parameters() if parameter.requires_grad]

    def point_parameters(self) -> list[nn.Parameter]:
        return [self.points]

    def adopt(self, kernel: Kernel, mean: Mean) -> None:
        """Go on with this kernel and mean function, which have the form and the values of the present ones."""
        self.kernel, self.mean = kernel, mean

    @torch.no_grad()
    def independence(self) -> Float[Tensor, "*batch m"]:
        """What the other inducing values leave open of each one's prior variance: a share from 0 to 1.

        Where points are close together it is small, and whitened values change their meaning when the points move.
        """
        return copy.deepcopy(self).double()._basis().independence()

    @torch.no_grad()
    def predictor(self) -> Predictor:
        return self._predictor(compact=True)

    @torch.no_grad()
    def draft_predictor(self) -> Predictor:
        return self._predictor(compact=False)

    @torch.no_grad()
    def regression(self) -> Callable[[Tensor], Regressors]:
        """The model as a linear regression, as a function of rows in float64; it shares nothing with the family."""
        frozen = copy.deepcopy(self).double()
        amplitude, unit = frozen.kernel.split()
        scale = torch.ones((), dtype=torch.float64) if amplitude is None else amplitude[..., None, None]
        basis = frozen._basis()
        mean_features = frozen._mean_features(basis)

        @torch.no_grad()
        def regressors(x: Tensor) -> Regressors:
            features = basis(x)
            # c = s(k(x,x) − aᵀa)
            residual = (unit.diagonal(for_each_gp(x)) - features.square().sum(-2)).clamp_min(0.0)
            mean, spread = mean_features(x, features)
            return Regressors(
                scale.sqrt() * mean, None if spread is None else scale.sqrt() * spread, scale.squeeze(-1) * residual
            )

        return regressors

    @abstractmethod
    def assign(self, coefficients: Float[Tensor, "*batch j"], precision: Float[Tensor, "*batch m m"]) -> None:
        """Set the weights of the mean to the ``coefficients`` of its regressors, and S near to ``precision``⁻¹.

        Where the regressors of the spread are the first rows of Φ, the precision may be that of all coefficients.
        """

    def _marginal(
        self, x: Tensor, latent: Tensor, explained: Tensor, spread: Tensor, prior: Tensor | float
    ) -> Marginal:
        """From unit amplitude, (P, n), to marginals."""
        amplitude, _ = self.kernel.split()
        latent, residual, spread = scaled_moments(latent, explained, spread, prior, amplitude)
        return Marginal(self.mean.plus(x, latent.mT), residual.mT, spread.mT)

    def _basis(self) -> FixedBasis:
        """Of the variance, at the present parameters."""
        return FixedBasis(self.kernel.unit, self.points, self.jitter)

    @abstractmethod
    def _mean_features(self, basis: FixedBasis) -> Callable[[Tensor, Tensor], tuple[Tensor, Tensor | None]]:
        """A function from rows and their A to Φ, of unit amplitude, and A (None where these are Φ's first rows)."""

    @abstractmethod
    def _mean_basis(self, basis: FixedBasis) -> tuple[Tensor, Tensor]:
        """Points that end with those of the variance, and the coefficients of the first of them in the mean / √s."""

    def _predictor(self, compact: bool) -> Predictor:
        frozen = copy.deepcopy(self).double()
        frozen.weights = frozen.weights.settled()
        amplitude, _ = frozen.kernel.split()
        basis = frozen._basis()
        points, coefficients = frozen._mean_basis(basis)
        if amplitude is not None:
            coefficients = amplitude.sqrt().unsqueeze(-1) * coefficients
        explained = SignedSquares.explained(basis.lower, frozen.weights.root(), compact)
        return BasisPredictor(frozen.kernel, frozen.mean, points.detach(), coefficients, explained)
