"""Decoupled conditionals: two kernels of one type at the same inducing points, Q for the mean and K for the covariance.

Given u at Z, the latent function has the mean Q_xz Q_zz⁻¹ u, but the covariance K_xx − K_xz K_zz⁻¹ K_zx, and before the
data u ~ N(0, K_zz). With K_zz = L_k L_kᵀ, Q_zz = L_q L_qᵀ, a_i = L_k⁻¹ k(Z, x_i) and b_i = L_q⁻¹ q(Z, x_i), and with
q(u) in the words of either kernel, L_q⁻¹u ~ N(m_q, R_q R_qᵀ) and L_k⁻¹u ~ N(m_k, R_k R_kᵀ):

    mean_i     = mu(x_i) + b_iᵀ m_q
    residual_i = k(x_i, x_i) − a_iᵀ a_i
    spread_i   = ‖R_qᵀ b_i‖²

    KL(q(u) ‖ N(0, K_zz)) = KL(N(m_k, R_k R_kᵀ) ‖ N(0, I))

One of the two is what is learned, as q(v); the other one follows from m_k = T m_q and R_k = T R_q, T = L_k⁻¹ L_q.

How far the mean departs from the one that would belong to the covariance, at the rows of a batch, is the penalty

    Ω = ½ E_q ‖K̃^(−½) (Q_xz Q_zz⁻¹ − K_xz K_zz⁻¹) u‖² = ½ ‖K̃^(−½) (Bᵀ[m_q, R_q] − Aᵀ[m_k, R_k])‖²,

with K̃ = K_xx − K_xz K_zz⁻¹ K_zx + τ I and the columns a_i of A and b_i of B. With R Γ/√n in place of both
R, for an M×n matrix Γ of standard normal numbers that are new in every step, it is the same on average and takes less
time.

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
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from candid.families.axes import for_each_gp
from candid.families.basis import FixedBasis
from candid.families.block_inputs import in_machine_code
from candid.families.blockwise import blocks_pay, pays, prepare
from candid.families.blockwise_omega import blockwise_omega
from candid.families.blockwise_pair import Seen, paired_moments
from candid.families.conditional_predictor import ConditionalPredictor, spread_squares
from candid.families.means import Mean
from candid.families.scaling import prior_variance
from candid.families.sparse import Sparse
from candid.families.squares import SignedSquares
from candid.families.whitened_normal import WhitenedNormal
from candid.kernels import Kernel, networks_in, unfold
from candid.kernels.joint import joint_grams
from candid.linalg import divergence_from_standard, whiten_pair
from candid.linalg.crew import crew_size
from candid.linalg.relative import column_squares, residual_squares
from candid.linalg.triangular import solve_lower
from candid.marginal import Batch, Evaluation
from candid.parameters import hyperparameters
from candid.weights import Weights
from candid.weights.base import over_gps

__all__ = ["Conditional", "decoupled_kernel"]


def decoupled_kernel(kernel: Kernel, names: tuple[str, ...] = ("lengthscale",)) -> Kernel:
    """A kernel of unit amplitude for the mean, which starts as a copy of ``kernel``.

    Hyper-parameters whose own name is among ``names`` are free, and so are networks if "network" is; all others *are*
    those of ``kernel``, and stay so when both are copied together. Kernels whose code is not ours are copied with all
    that they learn.
    """
    unit = kernel.unit
    # What a deep copy believes to have copied already, it takes as it is.
    tied = {id(part): part for name, part in hyperparameters(unit) if name.rpartition(".")[-1] not in names}
    if "network" not in names:
        tied |= {id(network): network for network in networks_in(unit)}
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
        Whether Ω is computed at all; it needs a factorisation of the size of the batch.
    omega_floor : float, default=1e-4
        τ, in units of the amplitude.
    omega_scale : {"paper", "n_over_b"}, default="paper"
        Whether Ω is that of the batch, or that times N/B. Neither is an unbiased estimate of the Ω of all rows, which
        is never smaller than that of some of them.
    omega_draws : int, optional
        n; by default, and where it is not smaller than the number of inducing points, Ω is computed without draws.
    seed : int, default=0
        Of the draws, which are a function of it and of the step.

    Attributes
    ----------
    jitter : Tensor
        Of the factorisations of K_zz and of Q_zz, (\*chains, P, 2).

    Notes
    -----
    Ω asks about the function at the places of the rows, so the weights of rows do not count in it.
    """

    mean_kernel: Kernel

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
        omega_draws: int | None = None,
        seed: int = 0,
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
        self.omega_draws, self.seed, self.step = omega_draws, seed, 0

    def adopt(self, kernel: Kernel, mean: Mean) -> None:
        # What Q has in common with the old K, it has in common with the new one.
        pairs = zip(self.kernel.modules(), kernel.modules(), strict=True)
        self.mean_kernel = copy.deepcopy(self.mean_kernel, {id(old): new for old, new in pairs})
        super().adopt(kernel, mean)

    @property
    def batchwise(self) -> bool:
        # Ω of more rows is larger.
        return self.with_omega

    def n_covariances(self, n_rows: int) -> float:
        # Of two kernels, and for Ω of rows among each other.
        return 2 * super().n_covariances(n_rows) + (n_rows**2 if self.with_omega else 0)

    def shares_rows(self, n_rows: int) -> bool:
        unit = self.kernel.unit
        in_blocks = in_machine_code(unit, self.points) and blocks_pay(unit, self.weights, n_rows, self.points)
        return self.whiten == "mean" and in_blocks and not list(networks_in(self))

    def refresh(self, step: int) -> None:
        self.step = step

    def evaluate(self, batch: Batch) -> Evaluation:
        seen, of_mean = (self._seen(kernel, batch) for kernel in (self.kernel.unit, self.mean_kernel))
        in_blocks = all(pays(own.unit, self.weights, own.rows, own.points) for own in (seen, of_mean))
        by_crew = crew_size() > 0 and all(in_machine_code(own.unit, own.points) for own in (seen, of_mean))
        evaluate = self._evaluate_whole
        if self.whiten == "mean" and in_blocks and by_crew:
            evaluate = self._evaluate_in_blocks
        return evaluate(batch, seen, of_mean)

    def _seen(self, kernel: Kernel, batch: Batch) -> _Seen:
        unit, embed = unfold(kernel)
        return _Seen(unit, *embed(for_each_gp(batch.x), self.points, weight=batch.weight))

    def _evaluate_in_blocks(self, batch: Batch, seen: _Seen, seen_by_mean: _Seen) -> Evaluation:
        """Block by block of rows, of which only the moments are kept."""
        jitter, own_jitter = self.jitter.unbind(-1)
        given = ((own.unit, own.rows, own.points, level) for own, level in ((seen, jitter), (seen_by_mean, own_jitter)))
        prepared, prepared_mean = prepare(*given)
        self._remember(prepared.jitter, prepared_mean.jitter)
        mean, root = self.weights.mean, self.weights.loose_root()
        whole = torch.diag_embed(root) if root is not None and root.dim() == mean.dim() else root
        pair = Seen(prepared, *seen[1:]), Seen(prepared_mean, *seen_by_mean[1:])
        moments = paired_moments(*pair, mean, whole, self.with_omega)
        penalties = {"kl": over_gps(moments.divergence)}
        if self.with_omega:
            columns = WhitenedNormal(mean, root).columns(self._draws(whole))
            traces = moments.of_covariance, moments.of_mean
            omega = blockwise_omega(prepared, seen.rows, *traces, columns, self.omega_floor)
            penalties["omega"] = self._scale_of_omega(batch) * over_gps(omega)
        prior = prior_variance(seen.unit, seen.rows)
        marginal = self._marginal(batch.x, moments.mean, moments.explained, moments.spread, prior)
        return Evaluation(marginal, penalties)

    def _evaluate_whole(self, batch: Batch, seen: _Seen, seen_by_mean: _Seen) -> Evaluation:
        features = self._features(seen, seen_by_mean)
        of_mean, of_covariance = self._normals(features.root)
        latent, deviations = of_mean.at(features.mean)
        explained, prior = column_squares(features.covariance), prior_variance(features.unit, features.rows)
        marginal = self._marginal(batch.x, latent.squeeze(-2), explained, column_squares(deviations), prior)
        penalties = {"kl": self._divergence(of_covariance, features.root)}
        if self.with_omega:
            omega = self._omega(features, of_covariance, latent, deviations)
            penalties["omega"] = self._scale_of_omega(batch) * omega
        return Evaluation(marginal, penalties)

    def _features(self, seen: _Seen, seen_by_mean: _Seen) -> _Features:
        of_covariance, of_mean = (self._grams(own, position) for position, own in enumerate((seen, seen_by_mean)))
        if self.whiten == "mean":
            pair = whiten_pair(*of_covariance, *of_mean)
            self._remember(pair.first_factor.jitter, pair.second_factor.jitter)
            return _Features(seen.unit, seen.rows, pair.first, pair.second, pair.root)
        pair = whiten_pair(*of_mean, *of_covariance)
        self._remember(pair.second_factor.jitter, pair.first_factor.jitter)
        return _Features(seen.unit, seen.rows, pair.second, pair.first, pair.root)

    def _grams(self, seen: _Seen, position: int) -> tuple[Tensor, Tensor, Tensor]:
        """Gram matrices and jitter."""
        ((gram, cross),) = joint_grams(*seen)
        return gram, cross, self.jitter[..., position]

    def _remember(self, of_covariance: Tensor, of_mean: Tensor) -> None:
        """What one factorisation needed, the next one starts from."""
        self.jitter.copy_(torch.stack([of_covariance, of_mean], -1))

    def _normals(self, root: Tensor) -> tuple[WhitenedNormal, WhitenedNormal]:
        """q(L_q⁻¹u) and q(L_k⁻¹u)."""
        own = WhitenedNormal(self.weights.mean, self.weights.root())
        turned = own.turned(root)
        return (own, turned) if self.whiten == "mean" else (turned, own)

    def _divergence(self, of_covariance: WhitenedNormal, root: Tensor) -> Tensor:
        """KL(q(u) ‖ N(0, K_zz)), or −log p(v) for a point."""
        if self.whiten == "covariance":
            return self.weights.penalty()
        mean = of_covariance.mean
        if of_covariance.root is None:
            # −log N(m; 0, (TᵀT)⁻¹)
            log_det = root.diagonal(dim1=-2, dim2=-1).log().sum(-1)
            return over_gps(0.5 * (mean.square().sum(-1) + mean.shape[-1] * math.log(2 * math.pi)) - log_det)
        return over_gps(divergence_from_standard(mean, of_covariance.root))

    def _scale_of_omega(self, batch: Batch) -> Tensor | float:
        return batch.total / batch.weight.sum() if self.omega_scale == "n_over_b" else 1.0

    def _omega(self, features: _Features, of_covariance: WhitenedNormal, latent: Tensor, deviations: Tensor) -> Tensor:
        """Ω, or an estimate of it, where ``latent`` and ``deviations`` are m_qᵀB and R_qᵀB."""
        draws = self._draws(deviations)
        gram, columns = features.unit(features.rows), of_covariance.columns(draws)
        vectors = torch.cat([latent, deviations if draws is None else draws.mT @ deviations], -2)
        return over_gps(0.5 * residual_squares(gram, features.covariance, columns, vectors, self.omega_floor))

    def _draws(self, root: Float[Tensor, "*batch m _"] | None) -> Float[Tensor, "m n"] | None:
        """Γ/√n, a pure function of the seed and the step; None where there are as many draws as points, or no R."""
        number = 0 if root is None else root.shape[-2]
        if self.omega_draws is None or self.omega_draws >= number:
            return None
        (seed,) = np.random.SeedSequence((self.seed, self.step)).generate_state(1)
        draws = torch.randn(number, self.omega_draws, generator=torch.Generator().manual_seed(int(seed)))
        return (draws / math.sqrt(self.omega_draws)).to(root)

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

    def _mean_basis(self, basis: FixedBasis, own: FixedBasis | None = None) -> tuple[Tensor, Tensor]:
        own = own or self._own_basis()
        # L_q⁻ᵀ m
        return self.points, own.coefficients(self._of_mean(basis, own).mean)

    def _of_mean(self, basis: FixedBasis, own: FixedBasis) -> WhitenedNormal:
        """q(L_q⁻¹u), whichever kernel whitens u."""
        normal = WhitenedNormal(self.weights.mean, self.weights.root())
        return normal if self.whiten == "mean" else normal.turned(own.whiten(basis.lower))

    def _predictor(self, compact: bool) -> ConditionalPredictor:
        frozen = copy.deepcopy(self).double()
        amplitude, _ = frozen.kernel.split()
        basis, own = frozen._basis(), frozen._own_basis()
        points, coefficients = frozen._mean_basis(basis, own)
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
            spread_squares(own.lower, frozen._of_mean(basis, own).root, compact),
        )


class _Seen(NamedTuple):
    """A kernel without its networks, and what it sees of rows and inducing points."""

    unit: Kernel
    rows: Tensor
    points: Tensor


@dataclass(frozen=True)
class _Features:
    """What the two kernels make of some rows."""

    unit: Kernel  # of the covariance, without its networks
    rows: Tensor  # as that kernel sees them
    covariance: Float[Tensor, "*batch m n"]  # A
    mean: Float[Tensor, "*batch m n"]  # B
    root: Float[Tensor, "*batch m m"]  # T = L_k⁻¹ L_q, or its inverse where the covariance's kernel whitens
