"""p(y | f): how observations scatter around the latent function."""

from candid.likelihoods.base import Likelihood
from candid.likelihoods.bernoulli import Bernoulli
from candid.likelihoods.counts import Binomial, NegativeBinomial
from candid.likelihoods.gaussian import Gaussian, GaussianRows, GaussianSites
from candid.likelihoods.softmax import Softmax
from candid.likelihoods.student_t import StudentT

__all__ = [
    "Bernoulli",
    "Binomial",
    "Gaussian",
    "GaussianRows",
    "GaussianSites",
    "Likelihood",
    "NegativeBinomial",
    "Softmax",
    "StudentT",
]
