"""p(y | f): how observations scatter around the latent function."""

from candid.likelihoods.gaussian import Gaussian, GaussianRows, GaussianSites

__all__ = ["Gaussian", "GaussianRows", "GaussianSites"]
