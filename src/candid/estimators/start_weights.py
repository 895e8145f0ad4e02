"""Where q(u) starts, and the noise that goes with it: in closed form, as the objective likes it."""

from __future__ import annotations

from candid.engines import Rows, match_noise, match_output_noise, settle_weights, solve_together, solve_weights
from candid.estimators.pace import share_of_many
from candid.families import Sparse
from candid.likelihoods import Coregionalised, Gaussian, Likelihood, PartlyObserved
from candid.priors import HyperPrior

__all__ = ["start_weights"]

# q(u) has a closed form for every β > 0, and takes this one for β = 0.
LEAST_BETA = 1e-3
# Objectives that count the residual as loss; to the others it is spread of the prediction.
BOUNDS = ("elbo", "robust", "sgpr")


def start_weights(
    family: Sparse,
    likelihood: Likelihood,
    prior: HyperPrior | None,
    rows: Rows,
    objective: str,
    beta: float,
    noise_is_settled: bool = False,
) -> None:
    """Set q(v), in place, and the noise unless it is settled, for inducing points that see ``rows``."""
    bound, beta = objective in BOUNDS, max(beta, LEAST_BETA)
    openness = share_of_many(len(rows)) if objective == "predictive" else 0.0
    if isinstance(likelihood, (Coregionalised, PartlyObserved)):
        for turn in range(1 if noise_is_settled else 2):
            if turn:
                match_output_noise(family, likelihood, rows, variance_is_noise=bound)
            if isinstance(likelihood, Coregionalised):
                solve_together(family, likelihood, rows, beta, not bound, openness)
            else:
                settle_weights(family, likelihood, rows, beta, openness)
        return
    if not isinstance(likelihood, Gaussian):
        settle_weights(family, likelihood, rows, beta, openness)
        return
    if not noise_is_settled:
        match_noise(family, likelihood, prior, rows, share=1.0 if bound else 0.5)
    solve_weights(family, likelihood, rows, beta, not bound, openness)
