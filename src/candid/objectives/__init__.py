"""What is maximised: pure functions of marginals (row objectives) or of joint priors (evidences)."""

from candid.objectives.evidences import fitc, marginal_likelihood, sgpr
from candid.objectives.rows import elbo, fitc_elbo, predictive, robust, vfitc

#: Objectives that are a sum over rows, and so can be estimated from a mini-batch.
ROW_OBJECTIVES = {"elbo": elbo, "predictive": predictive, "vfitc": vfitc, "fitc_elbo": fitc_elbo, "robust": robust}
#: Objectives that need the joint density of all rows at once.
EVIDENCES = {"marginal_likelihood": marginal_likelihood, "sgpr": sgpr, "fitc": fitc}

__all__ = [
    "EVIDENCES",
    "ROW_OBJECTIVES",
    "elbo",
    "fitc",
    "fitc_elbo",
    "marginal_likelihood",
    "predictive",
    "robust",
    "sgpr",
    "vfitc",
]
