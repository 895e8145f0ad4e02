"""p(y | f): how observations scatter around the latent function."""

from candid.likelihoods.auxiliary import AuxiliarySites, PolyaGammaSites, StudentTSites, make_sites, new_observations
from candid.likelihoods.base import Likelihood, Sites, Surrogate
from candid.likelihoods.bernoulli import Bernoulli
from candid.likelihoods.coregionalised import Coregionalised, CoregionalisedSites
from candid.likelihoods.counts import Binomial, NegativeBinomial
from candid.likelihoods.gaussian import NOISE_FLOOR, Gaussian, GaussianRows, GaussianSites
from candid.likelihoods.normal_sites import matching_observations
from candid.likelihoods.one_against_all import OneAgainstAll
from candid.likelihoods.partly_observed import PartlyObserved
from candid.likelihoods.softmax import Softmax
from candid.likelihoods.student_t import StudentT, normal_deviation

__all__ = [
    "NOISE_FLOOR",
    "AuxiliarySites",
    "Bernoulli",
    "Binomial",
    "Coregionalised",
    "CoregionalisedSites",
    "Gaussian",
    "GaussianRows",
    "GaussianSites",
    "Likelihood",
    "NegativeBinomial",
    "OneAgainstAll",
    "PartlyObserved",
    "PolyaGammaSites",
    "Sites",
    "Softmax",
    "StudentT",
    "StudentTSites",
    "Surrogate",
    "make_sites",
    "matching_observations",
    "new_observations",
    "normal_deviation",
]
