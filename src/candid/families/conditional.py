"""Decoupled conditionals: two kernels of one type at the same inducing points, Q for the mean and K for the covariance.

Given u at Z, the latent function has the mean Q_xz Q_zz⁻¹ u, but the covariance K_xx − K_xz K_zz⁻¹ K_zx, and before the
data u ~ N(0, K_zz). With K_zz = L_k L_kᵀ, Q_zz = L_q L_qᵀ, a_i = L_k⁻¹ k(Z, x_i) and b_i = L_q⁻¹ q(Z, x_i):

    mean_i     = mu(x_i) + f_iᵀ m
    residual_i = k(x_i, x_i) − a_iᵀ a_i
    spread_i   = f_iᵀ S f_i

where q(v) = N(m, S) is whitened by one kernel or by the other:

    whiten          u        f_i                     KL(q(u) ‖ N(0, K_zz))
    "mean"          L_q v    b_i                     KL(N(T m, T S Tᵀ) ‖ N(0, I)),  T = L_k⁻¹ L_q
    "covariance"    L_k v    L_kᵀ Q_zz⁻¹ q(Z, x_i)   KL(N(m, S) ‖ N(0, I))

How far the mean departs from the one that would belong to the covariance, at the rows of a batch, is the penalty

    Ω = ½ E_q ‖K̃^(−½) (Q_xz Q_zz⁻¹ − K_xz K_zz⁻¹) u‖²,     K̃ = K_xx − K_xz K_zz⁻¹ K_zx + τ I.

The amplitude is shared, and stays out of all matrices; in Ω it cancels.

References
----------
X. Zhu, K. Wu, N. Maus, J. Gardner, D. Bindel, Variational Gaussian processes with decoupled conditionals (2023).
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from candid.families.axes import for_each_gp
from candid.families.basis import FixedBasis
from candid.families.conditional_predictor import ConditionalPredictor, spread_squares
from candid.families.means import Mean
from candid.families.sparse import Sparse
from candid.families.squares import SignedSquares
from candid.kernels import Kernel, unfold
from candid.linalg import (
    divergence_from_standard,
    lower_product,
    residual_squares,
    transposed_lower_product,
    whiten_pair,
)
from candid.linalg.triangular import solve_lower
from candid.marginal import Batch, Evaluation
from candid.parameters import hyperparameters
from candid.weights import Weights
from candid.weights.base import over_gps

__all__ = ["Conditional", "decoupled_kernel"]


def decoupled_kernel(kernel: Kernel, names: tuple[str, ...] = ("lengthscale",)) -> Kernel:
    """A kernel of unit amplitude for the mean, which starts as a copy of ``kernel``.

    Hyper-parameters whose own name is among ``names`` are free; all others *are* those of ``kernel``, and stay so when
    both are copied together. Parts whose code is not ours are copied with all that they learn.
    """
    unit = kernel.unit
    # What a deep copy believes to have copied already, it takes as it is.
    tied = {id(part): part for name, part in hyperparameters(unit) if name.rpartition(".")[-1] not in names}
    decoupled = copy.deepcopy(unit, tied)
    if {id(parameter) for parameter in decoupled.parameters()} <= {id(parameter) for parameter in unit.parameters()}:
        raise ValueError(
            f"{unit!r} has none of the hyper-parameters {', '.join(names)}, so there is nothing to decouple"
        )
    return decoupled


class Conditional(Sparse):
    r"""Mean from one kernel, variances from another, at the same inducing points.

    Parameters
    ----------
    kernel, mean, points, weights, jitter
        As in :class:`~candid.families.sparse.Sparse`; ``kernel`` is K, with the amplitude that both share.
    mean_kernel : Kernel
        Q, of the same type and batch shape, and of unit amplitude; :func:`decoupled_kernel` makes one.
    whiten : {"mean", "covariance"}, default="mean"
        Which kernel whitens q(v): the mean's, which keeps predictions simple, or the covariance's, which keeps the KL
        simple.
    with_omega : bool, default=True
        Whether Ω is computed at all; it needs a factorisation of the size of the batch, in float64.
    omega_floor : float, default=1e-4
        τ, in units of the amplitude.
    omega_scale : {"paper", "n_over_b"}, default="paper"
        Whether Ω is that of the batch, or that times N/B. Neither is an unbiased estimate of the Ω of all rows, which
        is never smaller than that of some of them.

    Attributes
    ----------
    jitter : Tensor
        Of the factorisations of K_zz and of Q_zz, (\*chains, P, 2).

    Notes
    -----
    Ω asks about the function at the places of the rows, so the weights of rows do not count in it.
    """

    def __init__(
        self,
        kernel: Kernel,
        mean_kernel: Kernel,
        mean: Mean,
        points: Float[Tensor, "*chains p m d"],
        weights: Weights,
        jitter: float,
        whiten: str = "mean",
        with_omega: bool = True,
        omega_floor: float = 1e-4,
        omega_scale: str = "paper",
    ) -> None:
        super().__init__(kernel, mean, points, weights, jitter)
        if mean_kernel.split()[0] is not None:
            raise ValueError(
                "the kernel of the mean has unit amplitude, because the amplitude is shared: give its unit"
            )
        self.mean_kernel = mean_kernel
        self.jitter = self.jitter.unsqueeze(-1).repeat_interleave(2, -1)
        self.whiten, self.with_omega = whiten, with_omega
        self.omega_floor, self.omega_scale = omega_floor, omega_scale

    def adopt(self, kernel: Kernel, mean: Mean) -> None:
        tied = {id(part) for _, part in hyperparameters(self.kernel)}
        free = {name.rpartition(".")[-1] for name, part in hyperparameters(self.mean_kernel) if id(part) not in tied}
        mean_kernel = decoupled_kernel(kernel, tuple(free))
        mean_kernel.load_state_dict(self.mean_kernel.state_dict())
        super().adopt(kernel, mean)
        self.mean_kernel = mean_kernel

    def evaluate(self, batch: Batch) -> Evaluation:
        unit, rows = self.kernel.unit, for_each_gp(batch.x)
        features = self._features(rows, batch.weight)
        residual = (unit.diagonal(rows) - features.covariance.square().sum(-2)).clamp_min(0.0)
        latent, _, spread = self.weights.moments(features.mean)
        marginal = self._marginal(batch.x, latent, residual, spread)
        penalties = {"kl": self._divergence(features)}
        if self.with_omega:
            scale = batch.total / batch.weight.sum() if self.omega_scale == "n_over_b" else 1.0
            penalties["omega"] = scale * self._omega(unit(rows), features)
        return Evaluation(marginal, penalties)

    def _features(self, rows: Tensor, weight: Tensor) -> _Features:
        def gram_cross_jitter(kernel: Kernel, position: int) -> tuple[Tensor, Tensor, Tensor]:
            unit, embed = unfold(kernel)
            at_rows, points = embed(rows, self.points, weight=weight)
            return unit(points), unit(points, at_rows), self.jitter[..., position]

        of_covariance, of_mean = gram_cross_jitter(self.kernel.unit, 0), gram_cross_jitter(self.mean_kernel, 1)
        if self.whiten == "mean":
            pair = whiten_pair(*of_covariance, *of_mean)
            self._remember(pair.first_factor.jitter, pair.second_factor.jitter)
            return _Features(pair.first, pair.second, pair.root)
        pair = whiten_pair(*of_mean, *of_covariance)
        self._remember(pair.second_factor.jitter, pair.first_factor.jitter)
        # f = L_kᵀ Q_zz⁻¹ q = (L_q⁻¹ L_k)ᵀ b
        return _Features(pair.second, transposed_lower_product(pair.root, pair.first), None)

    def _remember(self, of_covariance: Tensor, of_mean: Tensor) -> None:
        """What one factorisation needed, the next one starts from."""
        self.jitter.copy_(torch.stack([of_covariance, of_mean], -1))

    def _divergence(self, features: _Features) -> Tensor:
        """KL(q(u) ‖ N(0, K_zz)), or −log p(v) for a point."""
        if features.root is None:
            return self.weights.penalty()
        turned = lower_product(features.root, self.weights.mean.unsqueeze(-1)).squeeze(-1)
        root = self.weights.root()
        if root is None:
            # −log N(m; 0, (TᵀT)⁻¹)
            log_det = features.root.diagonal(dim1=-2, dim2=-1).log().sum(-1)
            constant = 0.5 * turned.shape[-1] * math.log(2 * math.pi)
            return over_gps(0.5 * turned.square().sum(-1) + constant - log_det)
        # T R, a lower triangle again
        return over_gps(divergence_from_standard(turned, _times_root(features.root, root)))

    def _omega(self, gram: Tensor, features: _Features) -> Tensor:
        """Ω of rows with the covariance ``gram``."""
        # What the mean would be if it had the kernel of the covariance: f = L_qᵀ K_zz⁻¹ k = Tᵀa, or a
        coupled = features.covariance
        if features.root is not None:
            coupled = transposed_lower_product(features.root, coupled)
        apart = features.mean - coupled
        # Ω = ½ Σ_j v_jᵀ K̃⁻¹ v_j with the columns v_j of apartᵀ [m, R]
        vectors = [self.weights.mean.unsqueeze(-2) @ apart]
        root = self.weights.root()
        if root is not None:
            diagonal = root.dim() < apart.dim()
            vectors.append(root.unsqueeze(-1) * apart if diagonal else transposed_lower_product(root, apart))
        squares = residual_squares(gram, features.covariance, torch.cat(vectors, -2), self.omega_floor)
        return over_gps(0.5 * squares)

    @torch.no_grad()
    def predictor(self) -> ConditionalPredictor:
        return self._conditional_predictor(compact=True)

    @torch.no_grad()
    def draft_predictor(self) -> ConditionalPredictor:
        return self._conditional_predictor(compact=False)

    def _conditional_predictor(self, compact: bool) -> ConditionalPredictor:
        frozen = copy.deepcopy(self).double()
        amplitude, _ = frozen.kernel.split()
        basis, own = frozen._basis(), frozen._own_basis()
        points, coefficients = frozen._mean_basis(basis)
        if amplitude is not None:
            coefficients = amplitude.sqrt().unsqueeze(-1) * coefficients
        return ConditionalPredictor(
            frozen.kernel,
            # On its own: tensors of a model file are not shared.
            copy.deepcopy(frozen.mean_kernel),
            frozen.mean,
            points.detach(),
            coefficients,
            SignedSquares.explained(basis.lower, None),
            spread_squares(own.lower, frozen._weights_of_mean(basis, own)[1], compact),
        )

    @torch.no_grad()
    def assign(self, coefficients: Float[Tensor, "*batch m"], precision: Float[Tensor, "*batch m m"]) -> None:
        if self.whiten == "mean" and not self._is_coupled():
            frozen = copy.deepcopy(self).double()
            # T v = w, so v = T⁻¹w has the precision TᵀP T
            root = frozen._basis().whiten(frozen._own_basis().lower)
            coefficients = solve_lower(root, coefficients.unsqueeze(-1)).squeeze(-1)
            precision = root.mT @ precision @ root
        self.weights.assign(coefficients, precision)

    def _is_coupled(self) -> bool:
        """Whether Q = K still, as where training starts."""
        ours, theirs = self.kernel.unit.state_dict(), self.mean_kernel.state_dict()
        return ours.keys() == theirs.keys() and all(torch.equal(ours[name], theirs[name]) for name in ours)

    def _basis(self) -> FixedBasis:
        return FixedBasis(self.kernel.unit, self.points, self.jitter[..., 0])

    def _own_basis(self) -> FixedBasis:
        """Of the mean."""
        return FixedBasis(self.mean_kernel, self.points, self.jitter[..., 1])

    def _mean_features(self, basis: FixedBasis) -> Callable[[Tensor, Tensor], tuple[Tensor, Tensor | None]]:
        # Φ = L_kᵀ Q_zz⁻¹ Q_zx, which is A where Q = K; its coefficients w = L_k⁻¹ u have a unit prior
        if self._is_coupled():
            return lambda x, features: (features, None)
        own = self._own_basis()
        root = own.whiten(basis.lower)
        return lambda x, features: (root.mT @ own(x), None)

    def _mean_basis(self, basis: FixedBasis) -> tuple[Tensor, Tensor]:
        own = self._own_basis()
        # L_q⁻ᵀ m
        return self.points, own.coefficients(self._weights_of_mean(basis, own)[0])

    def _weights_of_mean(self, basis: FixedBasis, own: FixedBasis) -> tuple[Tensor, Tensor | None]:
        """Mean and root of q(v) with u = L_q v, whichever kernel whitens it."""
        mean, root = self.weights.mean, self.weights.root()
        if self.whiten == "mean":
            return mean, root
        # L_q v = L_k w
        turn = own.whiten(basis.lower)
        return (turn @ mean.unsqueeze(-1)).squeeze(-1), None if root is None else _times_root(turn, root)


@dataclass(frozen=True)
class _Features:
    """What the two kernels make of some rows."""

    covariance: Float[Tensor, "*batch m n"]  # A
    mean: Float[Tensor, "*batch m n"]  # F
    root: Float[Tensor, "*batch m m"] | None  # T, where v is not standard normal before the data


def _times_root(triangle: Float[Tensor, "*batch m m"], root: Tensor) -> Float[Tensor, "*batch m m"]:
    """T R, for R as :meth:`candid.weights.Weights.root` gives it."""
    return triangle * root.unsqueeze(-2) if root.dim() < triangle.dim() else lower_product(triangle, root)
