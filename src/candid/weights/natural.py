"""Natural gradients of q(v) = N(m, L Lᵀ).

Steepest descent where distance is measured between distributions rather than between numbers. With gradients ḡ and Ḡ of
a whole-data loss with respect to m and L, and X = tril(Lᵀ Ḡ) made symmetric, one step of rate ρ is

    S⁻¹ ← L⁻ᵀ (I + ρ X) L⁻¹          m ← m − ρ S ḡ    (with the new S)

No gradient with respect to S is ever formed. For Gaussian noise and the ELBO of all rows a step of ρ = 1 ends at the
optimum, wherever it starts; on mini-batches q(v) becomes an average over the last 1/ρ of them.

References
----------
J. Hensman, N. Fusi, N. Lawrence, Gaussian processes for big data (2013); H. Salimbeni, S. Eleftheriadis, J. Hensman,
Natural gradients in practice (2018).
"""

from __future__ import annotations

import torch

from candid.linalg import NotPositiveDefinite
from candid.weights.normal import Full

__all__ = ["natural_step"]

# A step after which S would not be a covariance is halved, so often at most.
MOST_HALVINGS = 20


@torch.no_grad()
def natural_step(weights: Full, rate: float, scale: float) -> None:
    """Move q(v), in place, along the natural gradient; the gradients that it finds are those of ``1/scale`` nats."""
    lower = weights.root()
    assert weights.mean.grad is not None
    assert weights.lower.grad is not None
    mean_gradient, lower_gradient = scale * weights.mean.grad, scale * weights.lower.grad.tril()
    # X = tril(Lᵀ Ḡ), made symmetric
    relative = (lower.mT @ lower_gradient).tril()
    relative = relative + relative.tril(-1).mT
    identity = torch.eye(lower.shape[-1], dtype=lower.dtype, device=lower.device)
    for _ in range(MOST_HALVINGS):
        # I + ρX = U Uᵀ with an upper triangle U: the factor of the matrix with its rows and columns reversed
        reversed_factor, failed = torch.linalg.cholesky_ex((identity + rate * relative).flip(-2, -1))
        if not bool(failed.any()):
            break
        rate = 0.5 * rate
    else:
        raise NotPositiveDefinite(
            "a natural gradient leads to something that is not a covariance, however short the step: training has "
            "diverged; try a smaller lr, optimizer='adam' or dtype='float64'"
        )
    # L ← L U⁻ᵀ
    upper = reversed_factor.flip(-2, -1)
    lower = torch.linalg.solve_triangular(upper.mT, lower, upper=False, left=False)
    weights.lower.copy_(lower)
    # m ← m − ρ S ḡ
    weights.mean.sub_(rate * (lower @ (lower.mT @ mean_gradient.unsqueeze(-1))).squeeze(-1))
