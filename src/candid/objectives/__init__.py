"""What is maximised: pure functions of marginals (row objectives) or of joint priors (evidences)."""

from candid.objectives.evidences import chain_rule, fitc, marginal_likelihood, sgpr
from candid.objectives.rows import elbo, fitc_elbo, polya_gamma, predictive, robust, vfitc

#: Objectives that are a sum over rows, and so can be estimated from a mini-batch.
ROW_OBJECTIVES = {
    "elbo": elbo,
    "predictive": predictive,
    "vfitc": vfitc,
    "fitc_elbo": fitc_elbo,
    "robust": robust,
    "polya_gamma": polya_gamma,
}
#: Objectives that are joint densities of rows: of all of them at once, unless the family makes groups or a chain.
EVIDENCES = {"marginal_likelihood": marginal_likelihood, "chain_rule": chain_rule, "sgpr": sgpr, "fitc": fitc}

__all__ = [
    "EVIDENCES",
    "ROW_OBJECTIVES",
    "chain_rule",
    "elbo",
    "fitc",
    "fitc_elbo",
    "marginal_likelihood",
    "polya_gamma",
    "predictive",
    "robust",
    "sgpr",
    "vfitc",
]
