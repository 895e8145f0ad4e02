"""What is maximised: pure functions of marginals (row objectives) or of joint priors (evidences)."""

from candid.objectives.evidences import marginal_likelihood
from candid.objectives.rows import elbo, predictive

#: Objectives that are a sum over rows, and so can be estimated from a mini-batch.
ROW_OBJECTIVES = {"elbo": elbo, "predictive": predictive}
#: Objectives that need the joint density of all rows at once.
EVIDENCES = {"marginal_likelihood": marginal_likelihood}

__all__ = ["EVIDENCES", "ROW_OBJECTIVES", "elbo", "marginal_likelihood", "predictive"]
